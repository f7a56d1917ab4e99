#!/usr/bin/env bash
# test_launch_cost.sh - a launch by heddle.hpp costs no more than one in C: compiled with -O2, it
# takes no more instructions from its beginning to its return without a failure. launch_cost.cpp
# contains the pairs of launches. The test counts instructions in the compiled code, since that is
# the same in every run. It does not count moves between registers: their number depends on the
# order of parameters, and they take no time, since processors rename registers.
#
# Promise: A launch in C++ compiles to no more instructions than the same launch in C.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs objdump
needs "${CXX:-c++}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# Counts the instructions of each function up to its first return. The compiler puts the likely code
# there without jumps, and unlikely code behind the return.
count() {
    objdump -d --no-show-raw-insn "$1" | awk '
        /^[0-9a-f]+ <[A-Za-z0-9_.]+>:$/ { name = $2; gsub(/[<>:]/, "", name); open = 1; next }
        open && /^ +[0-9a-f]+:/ { if (!(/\tmov +%[a-z0-9]+,%[a-z0-9]+$/)) n[name]++; if ($2 ~ /^ret/ || ($2 == "jmp" && $NF ~ /hd_launch/)) open = 0 }
        END { for (name in n) if (name ~ /^(plain|face)_/ && name !~ /\./) print name, n[name] }' | sort
}

compare() { # WHAT
    local pairs=0 name plain face
    while read -r name plain; do
        name=${name#plain_}
        face=$(awk -v name="face_$name" '$1 == name { print $2 }' "$work/counts")
        [ -n "$face" ] || fail "$1: there is no face_$name"
        pairs=$((pairs + 1))
        if [ "$name" = heavier ]; then
            [ "$face" -gt "$plain" ] || fail "$1: a launch with one argument more counts no more instructions ($face, $plain)"
        elif [ "$face" -gt "$plain" ]; then
            fail "$1: $name takes $face instructions in C++, $plain in C"
        fi
    done < <(grep ^plain_ "$work/counts")
    [ $pairs -eq 7 ] || fail "$1: found $pairs pairs of functions"
}

for compiler in "${CXX:-c++}" g++ clang++; do
    installed "$compiler" || continue
    for way in "" -fno-exceptions; do
        # shellcheck disable=SC2086
        if "$compiler" -std=c++17 -O2 -fno-ipa-icf $way "-I$source/include" -c -o "$work/cost.o" "$source/tests/cpp/launch_cost.cpp" 2>"$work/messages" ||
            "$compiler" -std=c++17 -O2 $way "-I$source/include" -c -o "$work/cost.o" "$source/tests/cpp/launch_cost.cpp" 2>"$work/messages"; then
            count "$work/cost.o" >"$work/counts"
            compare "$compiler $way"
        else
            fail "$compiler $way: $(cat "$work/messages")"
        fi
    done
done
exit $failed
