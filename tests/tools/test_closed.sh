#!/usr/bin/env bash
# test_closed.sh - the tool with any of its standard descriptors closed: its results, its files, and
# the descriptors that its compilers get.
#
# Promise: The tool works with any of its standard descriptors closed, and neither it nor a compiler opens a file in their place.
set -u
build=$2
heddle=$build/heddle
[ -x "$heddle" ] || {
    echo "skipped: $heddle is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export HEDDLE_DRIVER=host HEDDLE_CACHE=none
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cat >say.c <<'END'
#include <heddle/kernel.h>
#include <stdio.h>
HD_KERNEL(say, HD_INOUT(uint32_t, y)) { printf("said\n"); y[hd_thread_x()] += 1; }
END
# a compiler that notes which of the three are closed: opening a file would take their numbers
cat >compiler <<'END'
#!/bin/sh
for n in 0 1 2; do
    readlink "/proc/$$/fd/$n" >/dev/null || echo "$n is closed" >>"$NOTES"
done
exec cc "$@"
END
chmod +x compiler
export NOTES=$work/notes
"$heddle" cc --no-gpu say.c -o expected.hdk || fail "say.c does not compile"

# closed N...: runs the tool with these descriptors closed, and a file as each of the others; the
# tool's arguments follow --
closed() {
    local numbers=() redirections=""
    while [ "$1" != -- ]; do
        numbers+=("$1")
        shift
    done
    shift
    for n in "${numbers[@]}"; do
        redirections+=" $n>&-"
    done
    rm -f out err
    (
        eval "exec </dev/null >out 2>err $redirections"
        exec "$heddle" "$@"
    )
}

for set in "" 0 1 2 "0 1" "0 2" "1 2" "0 1 2"; do
    read -ra numbers <<<"$set"
    rm -f made.hdk notes
    CC=$work/compiler closed "${numbers[@]}" -- cc --no-gpu say.c -o made.hdk || fail "cc with '$set' closed: $(cat err 2>&1)"
    cmp -s made.hdk expected.hdk || fail "cc with '$set' closed makes another file"
    [ ! -e notes ] || fail "cc with '$set' closed: for the compiler $(sort -u notes | tr '\n' ' ')"
    closed "${numbers[@]}" -- info
    status=$?
    case $set in
    *1*) [ $status = 1 ] || fail "info with '$set' closed ends with $status, and says that its output was written" ;;
    *)
        [ $status = 0 ] || fail "info with '$set' closed ends with $status"
        grep -q '^heddle' out || fail "info with '$set' closed prints: $(cat out)"
        ;;
    esac
done
[ $failures = 0 ]
