#!/usr/bin/env bash
# test_bench_alloc.sh - `heddle bench alloc` on host devices: a quick run measures every part, verifies, and writes a record that
# parses; wrong command lines, damaged recordings and files that cannot be written are refused with a message.
#
# Promise: `heddle bench alloc` measures and verifies every part, and refuses bad command lines and files.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench alloc
source=$1
export HEDDLE_DRIVER=host
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_DEVICES

# ---- a whole quick run
"$tool" bench alloc --quick --json "$work/all.json" >"$work/table" 2>"$work/err" || fail "the quick run: $(cat "$work/err")"
shows "$work/all.json" "$work/table" random holes live replay threads hand_over multi_stream 'free busy' 'beside growth' 'limit' 'reclaim' \
    unified pinned 'reserved over live' 'figures that have goals' 'verified: blocks'
grep -qF 'not reached' "$work/table" && fail "host devices are judged by goals for GPUs"
if installed python3; then
    python3 - "$work/all.json" "$source" <<'END' || fail "the record is not what it should be"
import json, os, sys

d = json.load(open(sys.argv[1]))
logs = [f for f in os.listdir(sys.argv[2] + "/bench/logs") if f.endswith(".hdlog")]
assert d["benchmark"] == "alloc" and d["runtime"]["driver"] == "host" and d["goals_apply"] is False
parts = {}
for c in d["cases"]:
    parts.setdefault(c["part"], []).append(c)
    h = c["heddle"]
    assert h["ns"]["median"] > 0 and len(h["ns"]["rounds"]) == d["run"]["rounds"], c["id"]
    assert h["operations"] > 0 and h["refused"] == 0 and 0 < h["part"] <= 1, c["id"]
    assert h["single"]["p99_ns"] >= h["single"]["median_ns"] >= 0 and h["single"]["calls"] > 0, c["id"]
    for rival in ("async", "plain"):
        assert c[rival].get("not_measured") or c[rival]["heddle_over_this"]["median"] > 0, (c["id"], rival)
    if "reserved_over_live" in h:
        assert h["reserved_peak_bytes"] >= h["live_peak_bytes"] > 0, c["id"]
for part in ("pair", "random", "holes", "live", "threads", "hand_over", "multi_stream"):
    assert parts.get(part), part
assert len(parts.get("replay", [])) == len(logs)
assert "libc" in parts["pair"][0] and parts["random"][0]["heddle"]["driver_calls"] > 0
assert d["limit"]["threads"] == 16 and d["limit"]["reserved_peak_bytes"] <= d["limit"]["limit_bytes"] < d["limit"]["asked_bytes"]
assert d["limit"]["allocations"] > 0
for way in ("early", "at_limit"):
    assert d["reclaim"][way]["reserved_peak_mib"]["max"] * 1048576 <= d["reclaim"]["limit_bytes"]
    assert d["reclaim"][way]["total_ns"]["median"] > 0
assert d["reclaim"]["early"]["collections_early"]["min"] > 0 and d["reclaim"]["at_limit"]["collections_early"]["max"] == 0
assert d["reclaim"]["at_limit"]["collections_at_limit"]["min"] > 0
assert d["free_busy"]["plain"]["unused_ns"]["median"] > 0 and d["free_busy"]["heddle"]["unused_ns"]["median"] > 0
assert d["unified"]["element_ns"]["median"] > 0 and d["pinned"]["heddle_ns"]["median"] > 0
assert all(k in d["beside_growth"]["heddle"] for k in ("share", "alone", "beside"))
assert d["verified"]["blocks"] > 1000 and d["verified"]["blocks_with_bytes"] > 100 and d["verified"]["kernel_results"] > 10
assert {g["id"] for g in d["goals"]} >= {"pair", "flat", "free_busy", "replay_peak", "limit", "reclaim_total", "reclaim_pause"}
END
fi

# ---- parts, other placements, a hand-written recording
printf 'heddle-log 1\n# recorded: by hand\n\na 7 1000 0\na 8 4194304 3\nt 2\nf 7 0\na 7 1 0\nf 8 3\n' >"$work/small.hdlog"
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement "$tool" bench alloc --quick --rounds=1 --only replay,pair --replay "$work/small.hdlog" --json \
        >"$work/out" 2>"$work/err" || fail "placement $placement: $(cat "$work/err")"
    grep -qF '"id": "replay_small"' "$work/out" || fail "placement $placement: the recording is not in the record"
    grep -qF '"id": "pair_64MiB"' "$work/out" || fail "placement $placement: the pairs are not in the record"
    grep -qF '"part": "random"' "$work/out" && fail "placement $placement: --only was not heeded"
done
"$tool" bench alloc --quick --rounds=1 --replay "$work/small.hdlog" --json >"$work/out" 2>"$work/err" || fail "--replay: $(cat "$work/err")"
grep -qF '"id": "replay_small"' "$work/out" || fail "--replay: the recording is not in the record"
grep -F '"part": "' "$work/out" | grep -qv '"replay"' && fail "--replay measures more than the recording"

# ---- command lines
refused 2 'unknown option' --no-such-option
refused 2 'there are: pair,random,holes,' --only foo
refused 2 'unexpected' something
refused 2 '--only wants' --only pair,none
refused 2 '--only wants' --only pair,
refused 2 '--only wants' --only
refused 2 '--rounds wants' --rounds 0
refused 2 '--rounds wants' --rounds 21
refused 2 '--rounds wants' --rounds two
refused 2 '--device wants' --device -1
refused 2 '--device wants' --device x
refused 2 '--replay wants' --replay
refused 1 'device' --device 63 --quick
refused 1 'cannot be written' --quick --json "$work/none/out.json"
HEDDLE_MEMORY_LIMIT=32M refused 1 'at least 64 are needed' --quick --only pair
"$tool" bench alloc --help | grep -qF -- '--replay FILE' || fail "--help does not name --replay"

# ---- damaged recordings: the message names file and line damaged TEXT LINE...
damaged() {
    local text=$1
    shift
    printf '%s\n' "$@" >"$work/bad.hdlog"
    refused 1 "$text" --quick --only replay --replay "$work/bad.hdlog"
}
damaged 'bad.hdlog:1: the first line' 'heddle-log 2' 'a 1 100 0'
damaged 'bad.hdlog:1: the first line' 'a 1 100 0'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 0 0'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 -5 0'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 100'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 100 64'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 100 0 0'
damaged 'bad.hdlog:2: an allocation is' 'heddle-log 1' 'a 1 99999999999999999999 0'
damaged 'bad.hdlog:3: this ID is still allocated' 'heddle-log 1' 'a 1 100 0' 'a 1 100 0'
damaged 'bad.hdlog:2: this ID is not allocated' 'heddle-log 1' 'f 1 0'
damaged 'bad.hdlog:4: this ID is not allocated' 'heddle-log 1' 'a 1 100 0' 'f 1 0' 'f 1 0'
damaged 'bad.hdlog:3: a free is' 'heddle-log 1' 'a 1 100 0' 'f 1'
damaged 'bad.hdlog:2: a thread is' 'heddle-log 1' 't 65536'
damaged 'bad.hdlog:3: neither an operation' 'heddle-log 1' 'a 1 100 0' 'x 1'
damaged 'has no allocation' 'heddle-log 1' '# nothing'
damaged 'bad.hdlog:1: the first line' ''
: >"$work/empty.hdlog"
refused 1 'has no allocation' --only replay --replay "$work/empty.hdlog"
printf 'heddle-log 1\na 1 100 0\0\n' >"$work/zero.hdlog"
refused 1 'zero.hdlog:2: not text' --only replay --replay "$work/zero.hdlog"
refused 1 'cannot be read' --only replay --replay "$work/none.hdlog"
refused 1 'cannot be read' --only replay --replay "$work"
exit $failed
