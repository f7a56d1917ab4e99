#!/usr/bin/env bash
# test_demo.sh - the commands of `make demo`, in less time and in one placement, on host devices.
#
# Promise: The page that `make demo` writes contains ranges that name the phases of the run.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench lanes
source=$1
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_PLACEMENT=thread HEDDLE_CACHE="$work/cache"
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_PEERS HEDDLE_DEVICES

# The benchmark that the Makefile traces.
read -r -a run <<<"$(sed -n 's/^\tHEDDLE_TRACE=.*\/heddle \(bench .*\)$/\1/p' "$source/Makefile")"
[ "${run[0]-}" = bench ] || fail "the demo in the Makefile traces no benchmark"
HEDDLE_TRACE="$work/demo.trace" "$tool" "${run[@]}" --seconds 1 >"$work/out" 2>"$work/err" ||
    fail "${run[*]}: $(cat "$work/err")"
"$tool" report "$work"/demo.trace* -o "$work/demo.html" >"$work/out" 2>"$work/err" || fail "report: $(cat "$work/err")"
# A phase is a round in a placement; inside of it, each row is a range.
for phase in 'placement thread, round 1 of ' 'Heddle, one device alone"' 'Heddle, thread per device, disturbed"' \
    'Heddle, one thread, disturbed"'; do
    grep -qF "\"$phase" "$work/demo.html" || fail "the page has no range '$phase'"
done
exit $failed
