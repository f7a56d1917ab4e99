#!/usr/bin/env bash
# test_headers.sh - each public header compiles alone, as C11 and as C++17, without a warning.
set -u
include=$1/include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
flags=(-Wall -Wextra -Wshadow -Wstrict-aliasing -Werror -pedantic -fsyntax-only "-I$include")

for header in "$include"/heddle.h "$include"/heddle/*.h; do
    name=${header#"$include"/}
    printf '#include <%s>\n#include <%s>\nint compiled;\n' "$name" "$name" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    if ! "${CC:-cc}" -std=c11 "${flags[@]}" -Wstrict-prototypes "$work/alone.c"; then
        echo "$name: does not compile alone as C11"
        status=1
    fi
    if ! "${CXX:-c++}" -std=c++17 "${flags[@]}" "$work/alone.cc"; then
        echo "$name: does not compile alone as C++17"
        status=1
    fi
done
exit $status
