#!/usr/bin/env bash
# test_scaling.sh - tools/make-scaling --measure measures the costs of a step on 1, 2 and 4 ranks, and
# makes a page from them.
#
# Promise: One command measures the costs behind docs/scaling.md on another machine.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"
needs python3
mkdir -p "$work/bench" "$work/docs"
cp -r "$source/bench/results" "$work/bench"
rm -f "$work"/bench/results/*-scaling.json
HEDDLE_DRIVER=host "$source/tools/make-scaling" --measure --build "$build" --mpi mpich --seconds 0 --to "$work/bench/results/new-scaling.json" \
    >"$work/out" 2>&1 || fail "does not measure: $(cat "$work/out")"
"$source/tools/make-scaling" "$work" || fail "makes no page"
grep -qF '[new-scaling.json](../bench/results/new-scaling.json)' "$work/docs/scaling.md" || fail "the page does not name its source"
# measured: 3 rows for 1, 2 and 4 ranks each; computed: 2 rows for 8, 64 and 1024 ranks each, here and for GPUs
[ "$(grep -cE '^\| (weak|strong) \| (1|2|4) \| [0-9]+ \|' "$work/docs/scaling.md")" -eq 9 ] || fail "measured rows are missing"
[ "$(grep -cE '^\| (8|64|1024) \| [0-9]+ \|' "$work/docs/scaling.md")" -eq 12 ] || fail "computed rows are missing"
HEDDLE_DRIVER=host "$source/tools/make-scaling" --measure --build "$work/none" --to "$work/none.json" >"$work/out" 2>&1 && fail "measures without a build"
[ ! -e "$work/none.json" ] || fail "a failure leaves a file"
exit $failed
