#!/usr/bin/env bash
# test_bench_tensor.sh - `heddle bench tensor` on host devices: a quick run, also with --variants,
# measures every part, compares every element, and writes a record that parses. It reduces sizes if
# memory is too small. Wrong command lines, failing calls, and files that cannot be written, end
# with a message. The scripts for PyTorch and CuPy understand their rows.
#
# Promise: `heddle bench tensor` measures every part and compares every element; failures end with a message.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench tensor
source=$1
export HEDDLE_DRIVER=host
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_DEVICES HEDDLE_PLACEMENT HEDDLE_FAULT

# record FILE: runs the Python program from stdin, with the record in d
record() {
    installed python3 || return 0
    { printf 'import json, sys\nd = json.load(open(sys.argv[1]))\n' && cat; } >"$work/check.py"
    python3 "$work/check.py" "$1" || fail "the record $1 is not what it should be"
}

# ---- a whole quick run
"$tool" bench tensor --quick --json "$work/all.json" >"$work/table" 2>"$work/err" || fail "the quick run: $(cat "$work/err")"
shows "$work/all.json" "$work/table" 'sizes are cut' transpose permute slice broadcast products calls PyTorch 'for GPUs only' \
    'figures that have goals on GPUs: share of the device copy' 'verified: copies'
record "$work/all.json" <<'END'
import math

assert d["benchmark"] == "tensor" and d["runtime"]["driver"] == "host" and d["goals_apply"] is False
rounds = d["run"]["rounds"]
rows = {r["id"]: r for r in d["rows"]}
assert len(rows) == len(d["rows"])
for part in ("transpose", "permute", "slice", "broadcast"):
    assert any(r["part"] == part for r in d["rows"]), part
sizes = {"f16": 2, "f32": 4, "f64": 8}
for r in d["rows"]:
    for side in ("heddle", "device_copy", "plain_kernel"):
        assert r[side]["ns"]["median"] > 0 and len(r[side]["ns"]["rounds"]) == rounds, (r["id"], side)
        assert r[side]["gbs"]["median"] > 0, (r["id"], side)
    for ratio in ("heddle_over_device_copy", "heddle_over_plain_kernel"):
        assert len(r[ratio]["rounds"]) == rounds and r[ratio]["median"] > 0, (r["id"], ratio)
    payload = math.prod(r["shape"]) * sizes[r["type"]]
    assert r["copy_bytes"] == 2 * payload and payload < r["bytes"] <= 2 * payload, r["id"]
    assert not r["cut"] and 1 <= r["pairs"] <= 8, r["id"]
    # ratios are those of times, round by round
    for h, c, q in zip(r["heddle"]["ns"]["rounds"], r["device_copy"]["ns"]["rounds"], r["heddle_over_device_copy"]["rounds"]):
        assert abs(c / h - q) <= 1e-6 * q, r["id"]
    if r["part"] in ("transpose", "permute"):
        assert r["bytes"] == 2 * payload and r["shape"] == [r["source_shape"][i] for i in r["order"]], r["id"]
        assert sorted(r["full_source_shape"]) == sorted(r["full_source_shape"][i] for i in r["order"])
odd = rows["transpose_f32_10007x9973"]
assert odd["full_source_shape"] == [10007, 9973] and all(n % 2 for n in odd["source_shape"])
assert {p["id"] for p in d["products"]} == {"matmul_f32", "matmul_f16", "matmul_f64"}
for p in d["products"]:
    assert p["heddle"]["gflops"] > 0 and p["builtin"]["gflops"] > 0 and "cublas" not in p and p["heddle_library"], p["id"]
calls = {c["id"]: c["call"] for c in d["calls"]}
assert {"hd_tensor_copy", "hd_tensor_matmul", "cuLaunchKernel", "cuMemcpyDtoDAsync"} == set(calls)
for c in calls.values():
    assert c["calls"] >= 100 and 0 <= c["median_ns"] <= c["p99_ns"] <= c["max_ns"]
goals = {g["id"]: g for g in d["goals"]}
assert all(rows[i]["part"] in ("transpose", "permute") for i in goals)
assert goals["transpose_f32_16384"]["limit"] == 0.95 and goals["permute_f32_5d"]["limit"] == 0.85
assert goals["transpose_f16_16384"]["limit"] == goals["transpose_f64_16384"]["limit"] == 0.93
# for each row: both sides before, and Heddle's pairs afterwards; for each product: two sides
assert d["verified"]["copies"] == sum(2 + r["pairs"] for r in d["rows"]) + 2 * len(d["products"])
END

# ---- every kernel
"$tool" bench tensor --variants --quick --json "$work/variants.json" >"$work/table" 2>"$work/err" || fail "--variants: $(cat "$work/err")"
shows "$work/variants.json" "$work/table" planner 'copy GB/s' 'verified: copies'
record "$work/variants.json" <<'END'
assert d["benchmark"] == "tensor_variants" and {r["part"] for r in d["rows"]} == {"transpose", "permute"}
for r in d["rows"]:
    assert r["copy_gbs"] > 0
    names = [c["kernel"] for c in r["cells"]]
    assert "planner" in names and "units" in names and len(set(names)) >= 3, r["id"]
    assert all(c["wrong"] == 0 and c["gbs"] > 0 and c["ratio"] > 0 for c in r["cells"]), r["id"]
    assert len({(c["kernel"], c["strip"]) for c in r["cells"]}) == len(r["cells"]), r["id"]
    assert all(a["gbs"] >= b["gbs"] for a, b in zip(r["cells"], r["cells"][1:])), r["id"]
assert d["verified"]["copies"] == sum(len(r["cells"]) for r in d["rows"])
END

# ---- parts, other placements, JSON on the output
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement "$tool" bench tensor --quick --rounds=1 --only permute,submit --json >"$work/out" 2>"$work/err" ||
        fail "placement $placement: $(cat "$work/err")"
    grep -qF "\"placement\": \"$placement\"" "$work/out" || fail "placement $placement is not in the record"
    grep -qF '"id": "permute_f32_5d"' "$work/out" || fail "placement $placement: the permute is not in the record"
    grep -qF '"part": "transpose"' "$work/out" && fail "placement $placement: --only was not heeded"
done
"$tool" bench tensor --quick --only transpose --rounds 1 --json - >"$work/out" 2>"$work/err" || fail "--json -: $(cat "$work/err")"
grep -qF '"benchmark": "tensor"' "$work/out" || fail "--json - does not print the record"
HEDDLE_BLAS=builtin "$tool" bench tensor --quick --only matmul --rounds 1 --json "$work/builtin.json" >/dev/null 2>"$work/err" ||
    fail "blas=builtin: $(cat "$work/err")"
record "$work/builtin.json" <<'END'
assert [p["heddle_library"] for p in d["products"]] == 3 * ["built-in"]
END

# ---- too little memory: smaller rows, by which no goal is judged
HEDDLE_HOST_MEMORY=64M "$tool" bench tensor --rounds 1 --only transpose --json "$work/small.json" >"$work/table" 2>"$work/err" ||
    fail "64 MiB: $(cat "$work/err")"
grep -qF 'cut, for want of memory' "$work/table" || fail "64 MiB: the table does not say what was cut"
sed -n '/^figures that have goals/,$p' "$work/table" | grep -q 32768 && fail "64 MiB: a goal is judged by a row that was cut"
grep -qF 'not reached' "$work/table" && fail "host devices are judged by goals for GPUs"
record "$work/small.json" <<'END'
rows = {r["id"]: r for r in d["rows"]}
goals = {g["id"]: g for g in d["goals"]}
large, small = rows["transpose_f32_32768"], rows["transpose_f32_4096"]
assert large["cut"] and not small["cut"]
assert "reached" not in goals["transpose_f32_32768"] and "reached" in goals["transpose_f32_4096"]
assert max(2 * r["pairs"] * r["bytes"] for r in d["rows"]) <= 64 << 20
END

# ---- failures that must be noticed
HEDDLE_CHAINS=0 HEDDLE_FAULT=cuLaunchKernel:5 refused 1 'transpose_f32_4096' --quick
HEDDLE_MEMORY_LIMIT=32M refused 1 'at least 64 are needed' --quick
refused 1 'device' --device 63 --quick
refused 1 'cannot be written' --quick --json "$work/none/out.json"

# ---- command lines
refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--only wants' --only transpose,none
refused 2 '--only wants' --only transpose,
refused 2 '--only wants' --only
refused 2 '--rounds wants' --rounds 0
refused 2 '--rounds wants' --rounds 21
refused 2 '--device wants' --device -1
refused 2 '--device wants' --device x
"$tool" bench tensor --help | grep -qF -- '--variants' || fail "--help does not name --variants"
"$tool" bench --help | grep -qF 'tensor' || fail "bench --help does not name tensor"

# ---- the scripts for PyTorch and CuPy: wrong rows are refused, missing libraries are skipped
if installed python3; then
    for peer in torch cupy; do
        script=$source/bench/peers/tensor_$peer.py
        for row in x 'x=f32:4:1,0' 'x=f32:4x4:0,0' 'x=f31:4' 'x=f32:0' 'x=f32:4x4'; do
            python3 "$script" "$row" >"$work/out" 2>"$work/err"
            [ $? -eq 2 ] || fail "tensor_$peer.py takes the row '$row'"
        done
        CUDA_VISIBLE_DEVICES='' python3 "$script" --quick x=f32:4x4:1,0 y=f32:4 >"$work/out" 2>"$work/err"
        [ $? -eq 77 ] || fail "tensor_$peer.py without a GPU: $(cat "$work/err")"
        grep -qF "tensor_$peer.py: " "$work/err" || fail "tensor_$peer.py does not say why it skips"
    done
fi
exit $failed
