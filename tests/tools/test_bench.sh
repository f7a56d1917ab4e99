#!/usr/bin/env bash
# test_bench.sh - `heddle bench` becomes heddle-bench, so the user gets its messages, its help and
# its exit status. If that program is missing, the tool reports its name and the searched folders.
#
# Promise: The command bench of the tool starts heddle-bench, and its absence is reported with the folders that were searched.
set -u
. "$1/tests/tools/support.sh" "$2" bench

refused 2 'heddle bench: the name of a benchmark is missing'
refused 2 'Try: heddle bench --help'
refused 2 "heddle bench: unknown benchmark 'lane' (did you mean 'lanes'?)" lane
refused 2 "heddle bench: unknown option '--quick'" --quick
refused 2 "heddle bench lanes: unknown option '--quik'" lanes --quik
refused 2 "heddle bench lanes: unknown option '--device'" lanes --device 1
refused 2 "heddle bench lanes: unknown option '--qui'" lanes --qui
refused 2 "heddle bench lanes: --quick=1: the option takes no value" lanes --quick=1
refused 2 "heddle bench lanes: unknown option '-q'" lanes -q
refused 2 "--rounds wants a number from 1 to 100, not ''" lanes --rounds
refused 2 "--rounds wants a number from 1 to 100, not 'x'" lanes --rounds=x
refused 2 "heddle bench lanes: unexpected '--quick'" lanes -- --quick
refused 2 "heddle bench lanes: unexpected 'x'" lanes --json - x
"$tool" bench --help >"$work/help" || fail "--help: status $?"
"$tool" help bench | cmp -s "$work/help" - || fail "heddle help bench is not heddle bench --help"
for name in lanes faults alloc copy tensor start submit; do
    grep -qE "^ *(usage:)? heddle bench $name \[OPTION\]" "$work/help" || fail "--help does not name $name"
    "$tool" bench $name --help >"$work/one" || fail "$name --help: status $?"
    head -n 1 "$work/one" | grep -q "^usage: heddle bench $name " || fail "$name --help: $(head -n 1 "$work/one")"
    "$tool" help bench $name | cmp -s "$work/one" - || fail "heddle help bench $name is not heddle bench $name --help"
done

"$tool" bench -- lanes -h | cmp -s - <("$tool" bench lanes --help) || fail "-- before the name is not left out"

# the output goes to the tool's output, and a failed write is a failure
"$tool" bench --help >/dev/full 2>"$work/err" && fail "a full disk is no failure"
grep -q '^heddle bench: the output could not be written$' "$work/err" || fail "a full disk: $(cat "$work/err")"

# an installation without the benchmarks
if cmake --install "$2" --prefix "$work/installed" >/dev/null; then
    tool=$work/installed/bin/heddle
    programs=$(echo "$work"/installed/libexec/heddle-*)
    "$tool" bench --help | cmp -s "$work/help" - || fail "the installed tool has no benchmarks"
    rm "$programs/heddle-bench"
    refused 1 "heddle bench: heddle-bench is not in $work/installed/bin, $programs" lanes --quick
    refused 1 'build it with -DHEDDLE_BENCH=ON' --help
    printf '#!/bin/sh\nexit 0\n' >"$programs/heddle-bench"
    chmod 777 "$programs/heddle-bench"
    refused 1 "$programs/heddle-bench was not taken: others can write it" lanes
else
    fail "the build could not be installed"
fi
exit $failed
