#!/usr/bin/env bash
# test_bench_start.sh - `heddle bench start` on host devices: it samples every way to begin, and the
# record parses. With one device it makes no copies. It names a sample that fails, and refuses wrong
# command lines.
#
# Promise: `heddle bench start` samples every way to begin, and names a sample that fails.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench start
export HEDDLE_DRIVER=host
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_DEVICES HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT
export HEDDLE_CACHE="$work/cache"

HEDDLE_HOST_DEVICES=2 "$tool" bench start --rounds 1 --json "$work/all.json" >"$work/table" 2>"$work/err" ||
    fail "a round: $(cat "$work/err")"
shows "$work/all.json" "$work/table" 'bare program' 'placement thread' 'placement process' 'a spare worker' 'first hd_copy' \
    'figures that have goals'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, sys

d = json.load(open(sys.argv[1]))
assert d["benchmark"] == "start" and d["goals_apply"] is False and d["run"] == {"devices": 2, "rounds": 1}
assert set(d["figures"]) == {
    "bare", "bare_driver", "bare_context", "bare_close", "bares", "bares_close", "thread", "thread_open", "thread_close", "process", "process_open", "process_close", "restart",
    "restart_spare", "first_copy", "later_copy", "worst_copy"}
assert all(len(f["rounds"]) == 1 and f["median"] > 0 and f["unit"] == "ns" and f["name"] for f in d["figures"].values())
assert d["figures"]["bare"]["over_bare"] == 1 and all(f["over_bare"] > 0 for f in d["figures"].values())
assert {g["id"] for g in d["goals"]} == {"open", "restart", "first_copy"}
END
fi

HEDDLE_HOST_DEVICES=1 "$tool" bench start --rounds 1 --json >"$work/out" 2>"$work/err" || fail "one device: $(cat "$work/err")"
grep -qF 'first_copy"' "$work/out" && ! grep -qF '"id": "first_copy"' "$work/out" && fail "one device: there is a copy"
HEDDLE_WORKER=/bin/false refused 1 'process: hd_open' --rounds 1

refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--rounds wants' --rounds 0
refused 1 'cannot be written' --quick --json "$work/none/out.json"
"$tool" bench start --help | grep -qF -- '--rounds R' || fail "--help does not name --rounds"
exit $failed
