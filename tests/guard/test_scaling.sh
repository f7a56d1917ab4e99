#!/usr/bin/env bash
# test_scaling.sh - docs/scaling.md is the page that tools/make-scaling computes from bench/results, and
# the tool finds and mends a page that differs.
#
# Promise: The page about scaling contains the figures that the script computes from measured costs.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

"$source/tools/make-scaling" --check "$source" || fail "docs/scaling.md differs"
mkdir -p "$work/bench" "$work/docs"
cp -r "$source/bench/results" "$work/bench"
sed 's/^| 64 | /&1/' "$source/docs/scaling.md" >"$work/docs/scaling.md"
"$source/tools/make-scaling" --check "$work" >"$work/out" && fail "a page that differs passes"
grep -qxF -- '--- docs/scaling.md' "$work/out" || fail "the difference is missing: $(cat "$work/out")"
"$source/tools/make-scaling" "$work" && cmp "$source/docs/scaling.md" "$work/docs/scaling.md" || fail "the page is not written again"

# other costs make another page
sed -i '0,/"median_ns": /s/"median_ns": /&9/' "$work"/bench/results/*-scaling.json
"$source/tools/make-scaling" --check "$work" >"$work/out" 2>&1
grep -qE '^[+]\| a launch, calling thread \| 9' "$work/out" || fail "the page does not depend on the costs: $(cat "$work/out")"
"$source/tools/make-scaling" --unknown >"$work/out" 2>&1
[ $? -eq 2 ] && grep -q '^usage: ' "$work/out" || fail "an unknown option passes: $(cat "$work/out")"
exit $failed
