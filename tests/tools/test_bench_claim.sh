#!/usr/bin/env bash
# test_bench_claim.sh - `heddle bench claim` on host devices: every row is measured on both sides,
# and the record parses. With worker processes it omits the rows of streams. Wrong command lines are
# refused.
#
# Promise: `heddle bench claim` measures every row on both sides, and refuses bad command lines.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench claim
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=1
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT

"$tool" bench claim --quick --json "$work/all.json" >"$work/table" 2>"$work/err" || fail "a run: $(cat "$work/err")"
shows "$work/all.json" "$work/table" 'figures that have goals'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, sys

d = json.load(open(sys.argv[1]))
assert d["benchmark"] == "claim" and d["goals_apply"] is False and d["run"]["rounds"] == 2
rows = {r["id"]: r for r in d["rows"]}
assert set(rows) == {"claim_1", "claim_8", "stream_1", "stream_8", "again", "other", "behind"}
for id, row in rows.items():
    for side in (row["driver"], row["heddle"]):
        assert side["calls"]["calls"] == 2 * d["run"]["samples"] and len(side["median_ns"]["rounds"]) == 2, id
    assert row["name"] and row["ratio"]["median"] > 0, id
assert {g["id"] for g in d["goals"]} == {"claim", "stream", "again"} and all("value" in g for g in d["goals"])
END
fi

HEDDLE_PLACEMENT=process "$tool" bench claim --quick --json >"$work/out" 2>"$work/err" || fail "processes: $(cat "$work/err")"
grep -qF '"claim_8"' "$work/out" || fail "processes: a row is missing"
grep -qF '"id": "other"' "$work/out" && fail "processes: there is a row of streams"

refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--rounds wants' --rounds 0
refused 1 'cannot be written' --quick --json "$work/none/out.json"
HEDDLE_DEVICES=7 refused 1 'hd_open' --quick
"$tool" bench claim --help | grep -qF -- '--rounds R' || fail "--help does not name --rounds"
exit $failed
