#!/usr/bin/env bash
# test_bench_trace.sh - `heddle bench trace` on host devices: it measures every row without a trace
# and with each detail, also in the placements inline and process, and leaves no file. It refuses
# wrong command lines, and a trace that is already being written.
#
# Promise: `heddle bench trace` measures every row with each detail, leaves no file, and refuses bad command lines.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench trace
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 TMPDIR=$work/traces
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT HEDDLE_TRACE
mkdir "$TMPDIR"

"$tool" bench trace --quick --json "$work/all.json" >"$work/table" 2>"$work/err" || fail "a run: $(cat "$work/err")"
shows "$work/all.json" "$work/table" 'trace: 2 x ' 'placement thread' 'submit' 'figures that have goals'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, sys

d = json.load(open(sys.argv[1]))
assert d["benchmark"] == "trace" and d["goals_apply"] is False and d["run"]["rounds"] == 2
assert d["run"]["records"] > 0 and d["run"]["devices"] == 2
rows = {r["id"]: r for r in d["rows"]}
assert set(rows) == {"flow", "trip", "matmul", "disturbed"}
for id, row in rows.items():
    for side in ("none", "edges", "full"):
        values = row[side]
        assert len(values["us"]["rounds"]) == 2 and min(values["us"]["rounds"]) > 0, (id, side)
        assert ("submit_ns" in values) == (id in ("matmul", "disturbed")), (id, side)
        assert side == "none" or values["ratio"] > 0, (id, side)
        assert ("submit_more_ns" in values) == (id == "matmul" and side != "none"), (id, side)
assert all(c > 0 for c in rows["disturbed"]["full"]["disturb_cycles_per_s"]["rounds"])
assert {g["id"] for g in d["goals"]} == {"submit", "flow", "trip", "matmul", "disturbed"}
END
fi
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement "$tool" bench trace --quick --json >"$work/out" 2>"$work/err" || fail "$placement: $(cat "$work/err")"
    grep -qF '"disturbed"' "$work/out" || fail "$placement: a row is missing"
done
[ -z "$(ls "$TMPDIR")" ] || fail "files are left: $(ls "$TMPDIR")"

refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--rounds wants' --rounds 0
refused 1 'cannot be written' --quick --json "$work/none/out.json"
HEDDLE_DEVICES=7 refused 1 'hd_open' --quick
TMPDIR=$work/none refused 1 'set TMPDIR' --quick
HEDDLE_TRACE=$work/other refused 1 'hd_trace_start' --quick
"$tool" bench trace --help | grep -qF -- '--rounds R' || fail "--help does not name --rounds"
exit $failed
