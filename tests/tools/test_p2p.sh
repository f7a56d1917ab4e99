#!/usr/bin/env bash
# test_p2p.sh - `heddle p2p` on host devices: the verdicts with all, no and some peers and with a
# corrupt pair, the exit status, the record, and nvbandwidth's schema. The command does not measure
# directly if the verdict forbids that. It refuses wrong command lines with a message.
#
# Promise: `heddle p2p` reports the verdict of every pair and measures only what the verdicts allow.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" p2p
export HEDDLE_DRIVER=host HEDDLE_CACHE=none # each run tests the pairs itself
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_DEVICES HEDDLE_HOST_PEERS HEDDLE_HOST_CORRUPT HEDDLE_PEERS HEDDLE_PLACEMENT

# run NAME STATUS ARGUMENT...: writes a record of that name; the command must end with STATUS, and
# print nothing on stderr
run() {
    local name=$1 status=$2
    shift 2
    "$tool" p2p --quick --json "$work/$name.json" --nvbandwidth "$work/$name.nv" "$@" >"$work/$name" 2>"$work/err"
    local got=$?
    [ $got -eq "$status" ] || fail "$name: status $got, not $status: $(cat "$work/err")"
    [ -s "$work/err" ] && fail "$name: writes to stderr: $(cat "$work/err")"
    for text in 'verdicts:' "the driver's copies, one direction" 'hd_copy, both directions at once' 'without peer access' \
        'devices and pinned memory' 'compared:'; do
        grep -qF "$text" "$work/$name" || fail "$name: the tables lack \"$text\""
    done
}

# ---- four machines
HEDDLE_HOST_DEVICES=3 HEDDLE_HOST_PEERS=all run all 0
HEDDLE_HOST_DEVICES=3 HEDDLE_HOST_PEERS=none run none 0
HEDDLE_HOST_DEVICES=4 HEDDLE_HOST_PEERS=ring run ring 0
HEDDLE_HOST_DEVICES=3 HEDDLE_HOST_CORRUPT='0>1' run corrupt 3
grep -qF 'kernels, direct' "$work/all" || fail "all: the tables lack the kernels"
grep -qE 'direct( |:|,|$)' "$work/none" && fail "none: the tables have direct copies"
grep -qE '^ +refused +0 -> 1' "$work/none" || fail "none: the reasons are not listed"
grep -qE '^ +corrupt +0 -> 1$' "$work/corrupt" || fail "corrupt: the pair is not listed"
if installed python3; then
    python3 - "$work" <<'END' || fail "a record is not what it should be"
import json, sys

ONE_WAY = ["ce_write", "ce_read", "kernel_write", "kernel_read"]
BOTH = [f"{who}_both_{way}{part}" for who in ("ce", "kernel") for way in ("write", "read") for part in ("", "_1", "_2")]
DIRECT = ONE_WAY + ["kernel_load", "driver_direct_4B", "driver_direct_4KiB"]
WHAT = ("", "_both", "_4B", "_4KiB")
STAGED = [f"{who}_staged{what}" for who in ("driver", "heddle") for what in WHAT]
OWN = [f"heddle_direct{what}" for what in WHAT]
CASES = {  # nvbandwidth's, by the rows of a matrix with n columns
    "1": ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "host_to_device_bidirectional_memcpy_ce",
          "device_to_host_bidirectional_memcpy_ce", "host_to_device_memcpy_sm", "device_to_host_memcpy_sm", "host_device_latency_sm",
          "device_local_copy"],
    "n": ["device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce", "device_to_device_memcpy_read_sm",
          "device_to_device_memcpy_write_sm", "device_to_device_latency_sm"],
    "3n": ["device_to_device_bidirectional_memcpy_read_ce", "device_to_device_bidirectional_memcpy_write_ce",
           "device_to_device_bidirectional_memcpy_read_sm", "device_to_device_bidirectional_memcpy_write_sm"]}


def check(name, n, verdict):
    d = json.load(open(f"{sys.argv[1]}/{name}.json"))
    assert d["benchmark"] == "p2p" and d["runtime"]["driver"] == "host" and len(d["runtime"]["devices"]) == n
    assert d["run"]["host_devices"] and d["run"]["measured"] and d["run"]["bytes"] == 1 << 20
    pairs = {(p["device"], p["owner"]): p for p in d["pairs"]}
    everyone = [(a, b) for a in range(n) for b in range(n) if a != b]
    assert sorted(pairs) == everyone
    for pair in everyone:
        p = pairs[pair]
        assert p["verdict"] in verdict(*pair), (name, pair, p)
        assert p["verdict"] == "usable" or (p["reason"] and p["remedy"]), (name, p)
    direct = {pair: pairs[pair]["verdict"] in ("usable", "slow") for pair in everyone}
    copies = {pair: "usable" in (pairs[pair]["verdict"], pairs[pair[::-1]]["verdict"]) for pair in everyone}

    figures = {f["id"]: f for f in d["figures"]}
    assert sorted(figures) == sorted(DIRECT + BOTH + STAGED + OWN)
    for f in figures.values():
        assert f["unit"] in ("GB/s", "us", "ns") and f["text"] and len(f["values"]) == n
        assert all(len(row) == n for row in f["values"]) and all(f["values"][i][i] is None for i in range(n))

    def measured(ids, of):
        for i in ids:
            for a, b in everyone:
                value = figures[i]["values"][a][b]
                assert (value is not None and value > 0) == of(a, b), (name, i, a, b, value)

    measured(DIRECT, lambda a, b: direct[a, b])
    measured(BOTH, lambda a, b: direct[a, b] and direct[b, a])
    measured(STAGED, lambda a, b: True)
    measured(OWN, lambda a, b: copies[a, b])
    for link in d["links"]:
        assert len(link["values"]) == n and all(v > 0 for v in link["values"]), link
    assert d["verified"]["compared"] > 10 * n and d["verified"]["wrong"] == 0 and d["notes"] == []

    nv = json.load(open(f"{sys.argv[1]}/{name}.nv"))
    assert list(nv) == ["nvbandwidth"] and nv["nvbandwidth"] == d["nvbandwidth"]
    nv = nv["nvbandwidth"]
    assert nv["version"] == "v0.8" and "heddle" in nv["git_version"] and nv["Driver Version"] == "host"
    assert isinstance(nv["CUDA Runtime Version"], int) and "1 MiB" in nv["warning"]
    assert [line.split(":")[0] for line in nv["GPU Device list"]] == [str(i) for i in range(n)]
    cases = {c["name"]: c for c in nv["testcases"]}
    assert len(nv["testcases"]) == len(cases) and sorted(cases) == sorted(sum(CASES.values(), []))
    passes = {"1": True, "n": any(direct.values()), "3n": any(direct[a, b] and direct[b, a] for a, b in everyone)}
    for kind, names in CASES.items():
        rows = {"1": 1, "n": n, "3n": 3 * n}[kind]
        for c in (cases[i] for i in names):
            assert c["status"] == ("Passed" if passes[kind] else "Waived"), (name, c)
            if not passes[kind]:
                assert set(c) == {"name", "status"}
                continue
            m = c["bandwidth_matrix"]
            assert len(m) == rows and all(len(row) == n for row in m) and c["bandwidth_description"]
            assert all(isinstance(v, str) and (v == "N/A" or float(v) > 0) for row in m for v in row), c
            assert kind == "1" or all(m[i][i % n] == "N/A" for i in range(rows))
            total = sum(float(v) for row in m[-n:] for v in row if v != "N/A")
            assert abs(c["sum"] - total) <= 1e-4 * total, c
    if passes["n"]:
        read = cases["device_to_device_memcpy_read_ce"]["bandwidth_matrix"]
        assert all((read[a][b] != "N/A") == direct[a, b] for a, b in everyone)


fast = ("usable", "slow")  # the speed decides between the two
check("all", 3, lambda a, b: fast)
check("none", 3, lambda a, b: ("refused",))
check("ring", 4, lambda a, b: fast if (a - b) % 4 in (1, 3) else ("refused",))
check("corrupt", 3, lambda a, b: ("corrupt",) if (a, b) == (0, 1) else fast)
END
fi

# ---- verdicts alone; one device; some devices; other placements; the output
HEDDLE_HOST_DEVICES=3 HEDDLE_HOST_CORRUPT='2>0' "$tool" p2p --verdicts --again >"$work/out" 2>"$work/err"
[ $? -eq 3 ] || fail "--verdicts: a corrupt pair does not show in the status"
grep -qF 'corrupt' "$work/out" || fail "--verdicts: the corrupt pair is not told"
grep -qF 'GB/s' "$work/out" && fail "--verdicts: something was measured"
HEDDLE_HOST_DEVICES=1 "$tool" p2p --quick >"$work/out" 2>"$work/err" || fail "one device: $(cat "$work/err")"
grep -qF 'there are no pairs' "$work/out" || fail "one device: it does not say that there are no pairs"
grep -qF 'devices and pinned memory' "$work/out" || fail "one device: its link is not measured"
"$tool" p2p --quick --devices 1,3 --json - --samples=2 --size 2 >"$work/out" 2>"$work/err" || fail "--devices 1,3: $(cat "$work/err")"
for text in '"samples": 2' '"bytes": 2097152' 'Heddle host device 3' '"device_local_copy"'; do
    grep -qF -- "$text" "$work/out" || fail "--devices 1,3: the record lacks $text"
done
grep -qF 'Heddle host device 2' "$work/out" && fail "--devices 1,3: device 2 was opened"
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement HEDDLE_HOST_DEVICES=2 "$tool" p2p --quick --nvbandwidth --progress >"$work/out" 2>"$work/err" ||
        fail "placement $placement: $(cat "$work/err")"
    grep -qF '"testcases"' "$work/out" || fail "placement $placement: the output is not nvbandwidth's schema"
    grep -qF 'verdicts' "$work/err" || fail "placement $placement: --progress shows none"
done

# ---- failing calls of the driver: after one, a pair lacks its figures; after a loss of a device,
# all further figures are missing; the verdicts stay
HEDDLE_FAULT=cuMemcpyPeerAsync:2 HEDDLE_PEERS=trust HEDDLE_HOST_DEVICES=2 "$tool" p2p --quick >"$work/out" 2>"$work/err" ||
    fail "a failing copy: status $?: $(cat "$work/err")"
grep -qF 'note: 0 -> 1: not all was measured: cuMemcpyPeerAsync' "$work/out" || fail "a failing copy is not told"
grep -qE '^ +1 +[0-9.]+ +\. +1 ' "$work/out" || fail "a failing copy costs the other pair its figures"
HEDDLE_FAULT=cuStreamWaitEvent:2+=700 HEDDLE_PEERS=trust HEDDLE_HOST_DEVICES=2 "$tool" p2p --quick --nvbandwidth "$work/lost.nv" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || fail "a lost device: the status does not say so"
grep -qF 'ILLEGAL_ADDRESS' "$work/err" || fail "a lost device: stderr does not say so: $(cat "$work/err")"
grep -qF 'verdicts:' "$work/out" && grep -qF 'measuring ended early' "$work/out" || fail "a lost device: what was found out is not printed"
grep -qF '"Error"' "$work/lost.nv" && ! grep -qF '"Waived"' "$work/lost.nv" || fail "a lost device: cases that could not be measured are no errors"

# ---- a test that cannot be made is not repeated
printf '#!/bin/sh\necho run >>"%s/runs"\nexit 1\n' "$work" >"$work/probe" && chmod +x "$work/probe"
HEDDLE_PROBE=$work/probe HEDDLE_HOST_DEVICES=2 "$tool" p2p --verdicts >"$work/out" 2>"$work/err" || fail "no test: status $?: $(cat "$work/err")"
grep -qE '^ +inconclusive +0 -> 1, 1 -> 0$' "$work/out" || fail "no test: the pairs are not told"
[ "$(wc -l <"$work/runs")" -eq 1 ] || fail "no test: it was tried $(wc -l <"$work/runs") times"

# ---- if hd_copy trusts a driver that is wrong, the measurement detects it
HEDDLE_HOST_CORRUPT='0>1' HEDDLE_PEERS=trust HEDDLE_HOST_DEVICES=2 "$tool" p2p --quick --json "$work/trust.json" >"$work/out" 2>"$work/err"
[ $? -eq 3 ] || fail "trusted and wrong: bytes that are lost do not show in the status"
grep -qE '^note: 0 -> 1, .*[0-9]+ words did not arrive' "$work/out" || fail "trusted and wrong: no note tells of it"
grep -qE '"wrong": 0,?$' "$work/trust.json" && fail "trusted and wrong: the record does not tell of it"

# ---- command lines
refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--devices wants' --devices
refused 2 '--devices wants' --devices 0,,1
refused 2 '--devices wants' --devices=0-3
refused 2 '--devices wants' --devices 0,
refused 2 '--size wants' --size 0
refused 2 '--size wants' --size 1G
refused 2 '--size wants' --size
refused 2 '--samples wants' --samples 100
refused 2 'cannot both' --json --nvbandwidth
refused 2 'cannot both' --json=- --nvbandwidth -
refused 2 'measures nothing' --verdicts --nvbandwidth
refused 1 'do not fit' --quick --size 16384
refused 1 'devices' --devices 63 --quick
refused 1 'cannot be written' --quick --json "$work/none/out.json"
refused 1 'cannot be written' --quick --nvbandwidth "$work/none/out.json"
HEDDLE_HOST_MEMORY=4M refused 1 'are the least' --quick
"$tool" p2p --help | grep -qF -- '--nvbandwidth [FILE]' || fail "--help does not name --nvbandwidth"
"$tool" help p2p | grep -qF 'inconclusive' || fail "help p2p does not explain the verdicts"
# If the command is killed at any time, it has written the results as a whole or not at all. The
# former file stays until then.
for seconds in 0.05 0.3 1; do
    rm -rf "$work/killed" && mkdir "$work/killed"
    [ $seconds = 0.3 ] && echo '{}' >"$work/killed/out.json"
    HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none timeout -s KILL $seconds "$tool" p2p --verdicts --json "$work/killed/out.json" >/dev/null 2>&1
    for file in $(ls -A "$work/killed"); do
        [ "$file" = out.json ] && python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/killed/$file" ||
            fail "killed after $seconds s it leaves $file"
    done
done
if [ -w /dev/full ]; then
    HEDDLE_HOST_DEVICES=1 "$tool" p2p --verdicts >/dev/full 2>"$work/err"
    [ $? -eq 1 ] || fail "a full disk is not noticed"
    for option in --json --nvbandwidth; do
        HEDDLE_HOST_DEVICES=1 "$tool" p2p --quick $option /dev/full >"$work/out" 2>"$work/err"
        [ $? -eq 1 ] && grep -qF '/dev/full' "$work/err" || fail "a full disk is not noticed by $option: $(cat "$work/err")"
    done
fi
exit $failed
