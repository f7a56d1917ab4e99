#!/usr/bin/env bash
# test_compile.sh - heddle.hpp and each of its parts compile without a warning: alone, as C++17, 20
# and 23, with and without exceptions and type information, by g++ and clang++ if installed. A wrong
# argument of a launch gets a clear message, and so do other mistakes.
#
# Compilers spend nearly all of the time on headers. So tests with the same headers are one source,
# or use precompiled headers.
#
# Tier: full.
# Promise: heddle.hpp compiles in every supported version of C++ without a warning, and mistakes get one clear message.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs "${CXX:-c++}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
flags=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only "-I$source/include" '-DHD_TEST_KERNEL_FILE=""')

compilers=()
for compiler in g++ clang++ "${CXX:-c++}"; do
    path=$(readlink -f "$(command -v "$compiler")")
    [ -z "$path" ] || [[ " ${compilers[*]} " == *" $path "* ]] || compilers+=("$path")
done

# The tests with the same options go into one source. The includes come first, and each test is in
# its own namespace.
all=$work/all.cpp
tests=()
for test in "$source"/tests/cpp/test_*.cpp; do
    [ "${test##*/}" = test_expected.cpp ] || tests+=("$test")
done
[ ${#tests[@]} -ge 9 ] || fail "found too few tests"
grep -h '^#include ' "${tests[@]}" >"$all"
for test in "${tests[@]}"; do
    name=${test##*/}
    printf 'namespace %s {\n#line 1 "%s"\n' "${name%.cpp}" "$test"
    sed 's/^#include .*//' "$test"
    printf '}\n'
done >>"$all"
for compiler in "${compilers[@]}"; do
    for standard in 17 20 2b; do
        options=("-std=c++$standard" "${flags[@]}")
        "$compiler" "${options[@]}" -fno-rtti "-I$source/tests/cpp" "$all" || fail "$compiler -std=c++$standard, the tests of heddle.hpp"
        for more in "-fno-rtti -fno-exceptions" -DHEDDLE_NO_EXCEPTIONS; do
            # shellcheck disable=SC2086
            "$compiler" "${options[@]}" $more "$source/tests/cpp/test_expected.cpp" || fail "$compiler -std=c++$standard $more"
        done
    done
done

# heddle/cpp/mpi.hpp needs the headers of an MPI, which are no part of the system's own
for header in "$source"/include/heddle.hpp "$source"/include/heddle/cpp/*.hpp; do
    name=${header#"$source"/include/}
    printf '#include <%s>\n#include <%s>\nint main() {}\n' "$name" "$name" >"$work/alone.cpp"
    compiler=("${CXX:-c++}")
    if [ "${name##*/}" = mpi.hpp ]; then
        installed mpicxx.mpich || continue
        compiler=(mpicxx.mpich "-cxx=${CXX:-c++}")
    fi
    "${compiler[@]}" -std=c++17 "${flags[@]}" "$work/alone.cpp" || fail "$name does not compile alone"
done

common=$work/common.hpp
printf '#include <heddle.hpp>\n' >"$common"
"${CXX:-c++}" -std=c++17 "-I$source/include" -x c++-header -o "$common.gch" "$common" || fail "heddle.hpp is not precompiled"

# refused CODE TEXT: a program with this code does not compile, and the message contains this text
refused() {
    printf 'void f(hd::lane l, hd::kernel k, hd::buffer<float> b, hd::buffer<double> d) { %s }\n' "$1" >"$work/bad.cpp"
    "${CXX:-c++}" -std=c++17 "-I$source/include" -fsyntax-only -include "$common" "$work/bad.cpp" >"$work/messages" 2>&1 && fail "compiles: $1"
    grep -qF -- "$2" "$work/messages" || fail "the message for \"$1\" has no \"$2\": $(cat "$work/messages")"
}
refused 'hd::launch(l, k, 1, 1, b);' 'state how the kernel uses a buffer: hd::in(b), hd::out(b) or hd::inout(b)'
refused 'hd::launch(l, k, 1, 1, b.span(1, 2));' 'state how the kernel uses a buffer'
refused 'hd::launch(l, k, 1, 1, hd::tensor_view<float>());' 'state how the kernel uses a buffer'
refused 'float x = 1; hd::launch(l, k, 1, 1, &x);' 'a pointer of the program is no argument'
refused 'hd::launch(l, k, 1, 1, 1.0L);' 'an argument is a buffer, an integer, a float, a double, or a structure by value'
refused 'hd::launch(l, k, 1, 1, std::string());' 'it must be trivially copyable'
refused 'struct large { char c[5000]; }; hd::launch(l, k, 1, 1, large());' 'at most 4096 bytes'
refused 'hd::begin_claim(hd::runtime_ref(), b);' 'a use is hd::in(b), hd::out(b) or hd::inout(b)'
refused 'hd::copy(b, d);' 'the elements are of different types'
refused 'hd::buffer<std::string> s;  s.size();' 'it must be trivially copyable'
refused 'hd::alloc_tensor<bool *>(l, {1});' 'an element is an integer, float, double'
refused 'hd::buffer<float> c = b;' 'deleted'
printf '#include <heddle.hpp>\n' >"$work/bad.cpp"
"${CXX:-c++}" -std=c++14 "-I$source/include" -fsyntax-only "$work/bad.cpp" 2>&1 | grep -q 'needs C++17 or later' || fail "C++14 is not refused in words"
exit $failed
