#!/usr/bin/env bash
# test_consumers.sh - programs can use the installed library: in C11 through pkg-config, shared and
# static, and in C and C++17 through CMake. The tool, its manual page and its completion are
# installed and work.
#
# Promise: An installed library builds into C and C++ programs with pkg-config and CMake, and the tool works.
set -eu
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
export HEDDLE_DRIVER=host

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/a prefix"
cmake --install "$build" --prefix "$prefix" >/dev/null

pc=$(dirname "$(find "$prefix" -name heddle.pc)")
libraries=$(dirname "$pc")
export PKG_CONFIG_PATH=$pc
export LD_LIBRARY_PATH=$libraries

[ "$(pkg-config --modversion heddle)" = "$(sed -nE 's/^#define HD_VERSION_(MAJOR|MINOR|PATCH) //p' "$source/include/heddle/version.h" | paste -sd.)" ]

# pkg-config prints words for a shell, so it escapes blanks in the prefix
compile() {
    eval "${CC:-cc} -std=c11 -Wall -Wextra -Werror -pedantic $(pkg-config --cflags heddle) $*"
}
compile "'$source/examples/first.c' -o '$work/shared'" "$(pkg-config --libs heddle)"
"$work/shared" >"$work/shared.out"
compile "'$source/examples/first.c' -o '$work/static'" "'$libraries/libheddle.a' -pthread -ldl"
env -u LD_LIBRARY_PATH "$work/static" >"$work/static.out"
cmp "$work/shared.out" "$work/static.out"
number=$(sed -nE 's/^set\(heddle_abi ([0-9]+)\)$/\1/p' "$source/CMakeLists.txt")
readelf -d "$work/shared" | grep -q "NEEDED.*\[libheddle\.so\.$number\]"

# C++ finds heddle.hpp by the same flags
eval "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -pedantic $(pkg-config --cflags heddle) '$source/examples/cpp/forum.cpp' -o '$work/face' $(pkg-config --libs heddle) -pthread"
"$work/face" >/dev/null

# the library needs the C library and nothing else
if readelf -d "$libraries/libheddle.so" | grep NEEDED | grep -vE '\[(libc|libm|libdl|libpthread|ld-linux[^]]*)\.so\.[0-9]+\]'; then
    echo "libheddle.so needs more than the C library"
    exit 1
fi
if readelf -lW "$libraries/libheddle.so" | grep -q 'GNU_STACK.*RWE'; then
    echo "libheddle.so has an executable stack"
    exit 1
fi

mkdir "$work/consumer"
cp "$source/examples/first.c" "$source/examples/cpp/forum.cpp" "$work/consumer/"
cat >"$work/consumer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C CXX)
find_package(Heddle ${release} REQUIRED)
set(CMAKE_CXX_STANDARD 17)
add_executable(first_shared first.c)
target_link_libraries(first_shared PRIVATE heddle::heddle)
add_executable(first_static first.c)
target_link_libraries(first_static PRIVATE heddle::heddle_static)
add_executable(plus plus.cc)
target_link_libraries(plus PRIVATE heddle::heddle)
add_executable(face forum.cpp)
target_link_libraries(face PRIVATE heddle::heddle)
CMAKE
cat >"$work/consumer/plus.cc" <<'CXX'
#include <cstdio>
#include <heddle.h>

int main()
{
    hd_runtime *runtime = nullptr;
    hd_options options{sizeof(hd_options), "driver=host host_devices=2"};
    if (hd_open(&options, &runtime) != HD_OK) {
        std::fprintf(stderr, "%s\n", hd_message());
        return 1;
    }
    int devices = hd_device_count(runtime);
    hd_arg arguments[] = {hd_f32(1.5f), hd_u64(7), hd_in(nullptr)};
    hd_close(runtime);
    return devices == 2 && arguments[0].kind == HD_ARG_F32 ? 0 : 1;
}
CXX
release=$(sed -nE 's/^#define HD_VERSION_(MAJOR|MINOR) //p' "$source/include/heddle/version.h" | paste -sd.)
cmake -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" -Drelease="$release" >/dev/null
cmake --build "$work/consumer/build" >/dev/null
for program in first_shared first_static plus face; do
    "$work/consumer/build/$program" >/dev/null
done

tool=$prefix/bin/heddle
[ -x "$tool" ]
"$tool" info >/dev/null
# the library finds the installed programs that it starts
HEDDLE_CACHE="$work/findings" HEDDLE_HOST_DEVICES=2 "$tool" p2p --verdicts >"$work/verdicts"
grep -qwE 'usable|slow' "$work/verdicts"
HEDDLE_PLACEMENT=process HEDDLE_CACHE="$work/findings" HEDDLE_HOST_DEVICES=2 "$tool" p2p --verdicts >"$work/verdicts"
grep -qwE 'usable|slow' "$work/verdicts"
[ -s "$prefix/share/man/man1/heddle.1" ]
# the installed documents are those that the manual page names, their links lead to files, and the
# examples compile
documents=$prefix/share/doc/heddle
for named in $(sed 's/\\//g' "$prefix/share/man/man1/heddle.1" | grep -oE 'share/doc/heddle/[a-z./-]+'); do
    [ -e "$prefix/$named" ]
done
for folder in "$documents" "$documents/guide"; do
    for link in $(grep -ohE '\]\([a-z.][^)#]*\)' "$folder"/*.md | sed 's/^](//; s/)$//' | sort -u); do
        [ -e "$folder/$link" ] || { echo "$folder: no $link" && exit 1; }
    done
done
for example in "$documents"/examples/*.c; do
    compile "'$example' -o '$work/example'" "$(pkg-config --libs heddle)" -pthread -D_GNU_SOURCE -lm
done
[ -s "$documents/examples/cpp/wave.cpp" ] && [ -s "$documents/examples/cuda/wave.cu" ] && [ -s "$documents/examples/kernels/wave.c" ]
bash -c 'source "$1" && complete -p heddle' - "$prefix/share/bash-completion/completions/heddle" >/dev/null
