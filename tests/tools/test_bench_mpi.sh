#!/usr/bin/env bash
# test_bench_mpi.sh - `heddle bench mpi` on host devices: a quick run with MPICH measures every row
# on every side, verifies the bytes that arrived, and writes a record that parses. It leaves no
# temporary file, also after a signal. A message names what is missing or failed: the MPI, the
# compiler, or a rank. Wrong command lines are refused.
#
# Promise: `heddle bench mpi` measures and verifies every row, names what failed, and leaves no file.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" bench mpi
needs mpicc.mpich
export HEDDLE_DRIVER=host TMPDIR="$work/temporary"
unset HEDDLE_MEMORY_LIMIT HEDDLE_HOST_MEMORY HEDDLE_HOST_DEVICES HEDDLE_HOST_PEERS HEDDLE_DEVICES HEDDLE_PLACEMENT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$TMPDIR"
mpich=(--mpicc mpicc.mpich)
clean() {
    # MPICH may leave files of its own
    [ -z "$(find "$TMPDIR" -name 'heddle-*')" ] || fail "$1: files stay in TMPDIR: $(ls "$TMPDIR")"
}

# ---- a quick run
"$tool" bench mpi "${mpich[@]}" --quick --rounds 1 --json "$work/all.json" >"$work/table" 2>"$work/err" || fail "the quick run: $(cat "$work/err")"
clean "the quick run"
shows "$work/all.json" "$work/table" goals 'verified: bytes' 'in 1 round'
if installed python3; then
    python3 - "$work/all.json" <<'END' || fail "the record is not what it should be"
import json, sys

d = json.load(open(sys.argv[1]))
run = d["run"]
assert d["benchmark"] == "mpi" and run["rounds"] == 1 and run["ranks"] == 2 and run["thread_level"] == "multiple"
assert run["mpi"].startswith("MPICH") and run["mpiexec"] == "mpiexec.mpich" and run["piece_bytes"] > 0
parts = {}
for row in d["rows"]:
    parts.setdefault(row["part"], []).append(row)
    assert "left_out" not in row, row["id"]
    sides = ["work", "message", "both"]
    if row["part"] != "beside":
        sides = ["mpi", "heddle"] + ["by_hand"] * ("_device_" in row["id"])
        assert ("speed_over_mpi" if row["part"] == "bandwidth" else "time_over_mpi") in row, row["id"]
    for side in sides:
        figures = row[side + ("_gb_per_s" if row["part"] == "bandwidth" else "_ns")]
        assert 0 < figures["min"] <= figures["median"] <= figures["max"] and len(figures["rounds"]) == 1, row["id"]
assert {part: len(rows) for part, rows in parts.items()} == {"latency": 6, "bandwidth": 6, "allreduce": 8, "beside": 1}
assert len({row["id"] for row in d["rows"]}) == len(d["rows"])
assert d["verified"]["bytes"] > 100e6
goals = {g["id"]: g for g in d["goals"]}
assert set(goals) == {"latency", "bandwidth", "device", "hidden"}
assert goals["device"]["value"] is None and all(goals[id]["value"] is not None for id in ("latency", "bandwidth", "hidden"))
for id in ("latency", "bandwidth", "hidden"):
    assert goals[id]["rounds"] == 1 and goals[id]["min"] == goals[id]["value"] == goals[id]["max"], id
END
fi

# ---- three ranks, worker processes, another MPI
HEDDLE_PLACEMENT=process "$tool" bench mpi "${mpich[@]}" --mpiexec "mpiexec.mpich -prepend-rank" --quick --rounds 1 --only latency >"$work/out" \
    2>"$work/err" && fail "lines with another beginning: no failure"
grep -qF 'without all results' "$work/err" || fail "lines with another beginning: $(cat "$work/err")"
HEDDLE_PLACEMENT=process "$tool" bench mpi "${mpich[@]}" --ranks 3 --quick --rounds 1 --only latency,allreduce --json >"$work/out" 2>"$work/err" ||
    fail "three ranks: $(cat "$work/err")"
grep -qF '"ranks": 3' "$work/out" || fail "three ranks: the record has another number"
grep -qF '"part": "bandwidth"' "$work/out" && fail "three ranks: --only was not heeded"
if installed mpicc.openmpi; then
    "$tool" bench mpi --mpicc mpicc.openmpi --mpiexec "mpiexec.openmpi --oversubscribe" --quick --rounds 1 --only beside >"$work/out" \
        2>"$work/err" || fail "Open MPI: $(cat "$work/err")"
    grep -qF 'mpi Open MPI' "$work/out" || fail "Open MPI: the table does not name it"
fi
clean "other runs"

# ---- what goes wrong
env PATH="$work/nothing" "$tool" bench mpi --quick 2>"$work/err" && fail "without an MPI: no failure"
grep -qF 'found no mpicc, mpicc.mpich or mpicc.openmpi; install an MPI' "$work/err" || fail "without an MPI: $(cat "$work/err")"
refused 1 "--mpicc: there is no program '$work/none'" --mpicc "$work/none"
refused 1 "--mpiexec: there is no program '$work/none'" "${mpich[@]}" --mpiexec "$work/none -x"
ln -s "$(command -v mpicc.mpich)" "$work/mpicc.lonely"
refused 1 "found no $work/mpiexec.lonely for $work/mpicc.lonely; name it with --mpiexec" --mpicc "$work/mpicc.lonely"
refused 1 'could not compile the program of the ranks' --mpicc 'mpicc.mpich -Dmain=' --quick
grep -q 'error' "$work/err" || fail "a compiler that fails: its output is not shown: $(cat "$work/err")"
HEDDLE_HOST_MEMORY=2M refused 1 'mpiexec.mpich failed (exit status' "${mpich[@]}" --quick --rounds 1 --only allreduce
grep -qE '^rank [01]: ' "$work/err" || fail "a rank that fails: its message is not shown: $(cat "$work/err")"
HEDDLE_DEVICES=63 refused 1 'device' "${mpich[@]}" --quick
refused 1 'cannot be written' "${mpich[@]}" --quick --json "$work/none/out.json"
clean "what goes wrong"

# ---- a signal ends the ranks, too
"$tool" bench mpi "${mpich[@]}" --rounds 50 --only allreduce >"$work/out" 2>"$work/err" &
bench=$!
until grep -qF 'allreduce' "$work/err"; do
    kill -0 $bench 2>/dev/null || break
    sleep 0.1
done
kill -TERM $bench || fail "a signal: the benchmark ended before: $(cat "$work/err")"
wait $bench
[ $? -eq 143 ] || fail "a signal: the exit status is not that of the signal: $(cat "$work/err")"
clean "a signal"

# ---- command lines
refused 2 'unknown option' --no-such-option
refused 2 'unexpected' something
refused 2 '--ranks wants' --ranks 1
refused 2 '--ranks wants' --ranks 65
refused 2 '--mpicc wants' --mpicc=
refused 2 '--mpiexec wants' --mpiexec=
refused 2 '--only wants' --only latency,none
refused 2 '--rounds wants' --rounds 0
refused 2 '--rounds wants' --rounds 51
"$tool" bench mpi --help | grep -qF -- '--mpiexec PROGRAM' || fail "--help does not name --mpiexec"
exit $failed
