#!/usr/bin/env bash
# test_headers.sh - each public header compiles alone, as C99, C11, C++11 and C++17, without a warning.
#
# Promise: Each public header compiles alone, in every supported language version, without a warning.
set -u
. "$1/tests/support/installed.sh"
include=$1/include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
flags=(-Wall -Wextra -Wshadow -Wstrict-aliasing -Werror -pedantic -fsyntax-only "-I$include")

for header in "$include"/heddle.h "$include"/heddle/*.h; do
    name=${header#"$include"/}
    [ "$name" != heddle/mpi.h ] || continue # it needs MPI; tests/mpi compile it
    printf '#include <%s>\n#include <%s>\nint compiled;\n' "$name" "$name" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    for standard in c99 c11; do
        if ! "${CC:-cc}" -std=$standard "${flags[@]}" -Wstrict-prototypes "$work/alone.c"; then
            echo "$name: does not compile alone as $standard"
            status=1
        fi
    done
    # warnings that C++ programs may turn on; clang also finds casts in extern "C"
    if installed clang++ && ! clang++ -std=c++17 -Werror -Wold-style-cast -Wcomma -Wconversion -Wsign-conversion \
        -fsyntax-only "-I$include" "$work/alone.cc"; then
        echo "$name: clang++ has warnings"
        status=1
    fi
    for standard in c++11 c++17; do
        if ! "${CXX:-c++}" -std=$standard "${flags[@]}" "$work/alone.cc"; then
            echo "$name: does not compile alone as $standard"
            status=1
        fi
    done
done
exit $status
