#!/usr/bin/env bash
# test_bench_copy.sh - `heddle bench copy` on host devices: a quick run measures every part,
# verifies the bytes that arrived, and writes a record that parses. Without two devices, or without
# peers, it leaves out the parts that need them, and prints a note. Wrong command lines, and files
# that cannot be written, are refused with a message.
#
# Promise: `heddle bench copy` measures and verifies every part for which the devices suffice, and
# refuses bad command lines.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench copy
export HEDDLE_DRIVER=host
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_DEVICES HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT
export HEDDLE_CACHE="$work/cache"

# ---- a whole quick run
"$tool" bench copy --quick --seconds 2 --rounds 2 --json "$work/all.json" >"$work/table" 2>"$work/err" ||
    fail "the quick run: $(cat "$work/err")"
shows "$work/all.json" "$work/table" GB/s 'beside transfers' 'figures that have goals' 'verified: bytes'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, sys

d = json.load(open(sys.argv[1]))
assert d["benchmark"] == "copy" and d["runtime"]["driver"] == "host" and d["goals_apply"] is False
assert d["run"]["devices"] == 2 and d["run"]["rounds"] == 2
parts = {}
for row in d["rows"]:
    parts.setdefault(row["part"], []).append(row)
    assert "left_out" not in row, row["id"]
    for side in ("heddle", "driver"):
        figures = row.get(side + "_gb_per_s") or row[side + "_ns"]
        assert len(figures["rounds"]) == 2, row["id"]
        assert 0 < figures["min"] <= figures["median"] <= figures["max"], row["id"]
    ratio = row.get("speed_over_driver") or row["time_over_driver"]
    assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"] and row["bytes"] > 0, row["id"]
    assert ("heddle_over_one_direction" in row) == ("_both_" in row["id"]), row["id"]
    assert ("roofline_gb_per_s" in row) == (row["part"] in ("pageable", "staged")), row["id"]
assert len({row["id"] for row in d["rows"]}) == len(d["rows"])
assert set(parts) == {"pageable", "pinned", "device", "box", "small", "staged", "peer"}, set(parts)
assert len(parts["pageable"]) == 4 and len(parts["pinned"]) == 2 and len(parts["small"]) == 6
assert len(parts["staged"]) == 2 and len(parts["peer"]) == 3
link = [row["driver_gb_per_s"]["median"] for row in parts["pinned"]]
roofs = [row["roofline_gb_per_s"] for row in parts["pageable"][:2] + parts["staged"]]
for a, b in zip(roofs, link + [min(link), 2 * min(link)]):
    assert abs(a - b) <= 1e-6 * b, (roofs, link)
for way in ("alone", "beside_transfers"):
    s = d["submit"][way]
    assert s["calls"] > 0 and s["max_ns"] >= s["p99_ns"] >= s["median_ns"] >= 0, way
assert d["submit"]["staged_gb_per_s"] > 0 and d["submit"]["pageable_gb_per_s"] > 0
assert d["verified"]["bytes"] > 50e6
goals = {g["id"]: g for g in d["goals"]}
assert set(goals) == {"pageable_h2d", "pageable_d2h", "peer", "peer_small", "staged", "staged_both", "submit_p99"}
assert all("reached" in g for g in goals.values())
END
fi

# ---- parts, other placements, one device, no peers
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement "$tool" bench copy --quick --seconds=0.5 --rounds=1 --only small,staged --json >"$work/out" \
        2>"$work/err" || fail "placement $placement: $(cat "$work/err")"
    grep -qF '"id": "small_write_4_KiB"' "$work/out" || fail "placement $placement: small transfers are not in the record"
    grep -qF '"id": "staged_both_' "$work/out" || fail "placement $placement: staged copies are not in the record"
    grep -qF '"part": "pinned"' "$work/out" && fail "placement $placement: --only was not heeded"
done
HEDDLE_HOST_DEVICES=1 "$tool" bench copy --quick --seconds 0.5 --rounds 1 --only device,staged,peer,submit --json "$work/one.json" \
    >"$work/out" 2>"$work/err" || fail "one device: $(cat "$work/err")"
shows "$work/one.json" "$work/out"
[ "$(grep -cF 'needs two devices' "$work/out")" -eq 2 ] || fail "one device: does not say what is left out"
grep -qF 'copy on the device' "$work/out" || fail "one device: its own rows are missing"
HEDDLE_HOST_PEERS=none "$tool" bench copy --quick --seconds 0.5 --rounds 1 --only peer >"$work/out" 2>"$work/err" ||
    fail "no peers: $(cat "$work/err")"
grep -qF 'no access to each other' "$work/out" || fail "no peers: does not say so"

# ---- command lines
refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--only wants' --only pageable,none
refused 2 '--only wants' --only pageable,
refused 2 '--only wants' --only
refused 2 '--rounds wants' --rounds 0
refused 2 '--rounds wants' --rounds 51
refused 2 '--seconds wants' --seconds 0
refused 2 '--seconds wants' --seconds long
refused 1 'cannot be written' --quick --json "$work/none/out.json"
HEDDLE_DEVICES=63 refused 1 'device' --quick
"$tool" bench copy --help | grep -qF -- '--only PARTS' || fail "--help does not name --only"
exit $failed
