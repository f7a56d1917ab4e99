#!/usr/bin/env bash
# test_bench_submit.sh - `heddle bench submit` on host devices: it measures every row on both sides,
# and the record parses. With one device it omits the rows for all devices. The user can leave out
# parts, and wrong command lines are refused.
#
# Promise: `heddle bench submit` measures every row on both sides, and refuses bad command lines.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench submit
export HEDDLE_DRIVER=host
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_DEVICES HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT

HEDDLE_HOST_DEVICES=2 "$tool" bench submit --quick --rounds 1 --json "$work/all.json" >"$work/table" 2>"$work/err" ||
    fail "a round: $(cat "$work/err")"
shows "$work/all.json" "$work/table" '16 threads, all devices' 'beside 8 threads' transfers 'figures that have goals'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, os, sys

d = json.load(open(sys.argv[1]))
assert d["benchmark"] == "submit" and d["goals_apply"] is False
assert d["run"]["devices"] == 2 and d["run"]["rounds"] == 1 and d["run"]["launches"] > 0
rows = {r["id"]: r for r in d["rows"]}
assert set(rows) == {f"{where}_{n}" for where in ("one", "all") for n in (1, 4, 8, 16)} | {"written", "same", "cold"} | {
    f"beside_{n}" for n in (0, 1, 4, 8)}
for id, row in rows.items():
    sides = [row["driver"], row["heddle"]]
    assert all(s["call_median_ns"]["median"] > 0 for s in sides), id
    flows = id not in ("cold", "beside_0")
    assert all(("launches_per_s" in s) == flows for s in sides) and ("rate_ratio" in row) == flows, id
    assert row["p99_ratio"]["median"] > 0 and len(row["p99_ratio"]["rounds"]) == 1, id
assert all(rows[f"one_{n}"]["threads"] == n for n in (1, 4, 8, 16))
transfers = {t["id"]: t for t in d["transfers"]}
assert list(transfers) == ["read", "write", "copy", "fill"]
for id, transfer in transfers.items():
    assert all(transfer[b]["call_median_ns"]["median"] > 0 for b in ("alone", "other", "own")), id
    assert all(len(transfer[b]["alone_ratio"]["rounds"]) == 1 for b in ("other", "own")) and "alone_ratio" not in transfer["alone"], id
if len(os.sched_getaffinity(0)) > 1:
    assert d["one_way_ns"]["pairs"] >= 1 and 0 < d["one_way_ns"]["min"] <= d["one_way_ns"]["median"]
assert {g["id"] for g in d["goals"]} == {
    "submit", "threads_8", "threads_any", "alone", "beside_1", "beside_4", "beside_4_p99", "beside_8", "beside_8_p99",
    "blocked"}
assert all("value" in g for g in d["goals"])
END
fi

# transfers beside waiting transfers, in the other placements
for placement in process inline; do
    HEDDLE_HOST_DEVICES=1 HEDDLE_PLACEMENT=$placement "$tool" bench submit --quick --rounds 1 --only blocked --json >"$work/out" 2>"$work/err" ||
        fail "$placement: $(cat "$work/err")"
    grep -qF '"alone_ratio"' "$work/out" || fail "$placement: no ratio of transfers beside others that wait"
    grep -qF '"one_1"' "$work/out" && fail "$placement: --only blocked measured launches"
done

# with workers, and with one device
HEDDLE_HOST_DEVICES=1 HEDDLE_PLACEMENT=process "$tool" bench submit --quick --rounds 1 --only one,all,ways --json >"$work/out" 2>"$work/err" ||
    fail "one device: $(cat "$work/err")"
grep -qF '"one_16"' "$work/out" || fail "one device: a row is missing"
grep -qF '"all_4"' "$work/out" && fail "one device: there is a row of all devices"
grep -qF '"transfers"' "$work/out" && fail "--only: transfers were measured that were left out"
grep -qF '"bystander": true' "$work/out" && fail "--only: a part is there that was left out"

refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--rounds wants' --rounds 0
refused 2 'there are: one,all,ways,beside,blocked' --only none
refused 1 'cannot be written' --quick --json "$work/none/out.json"
HEDDLE_DEVICES=7 refused 1 'hd_open' --quick
"$tool" bench submit --help | grep -qF -- '--rounds R' || fail "--help does not name --rounds"
exit $failed
