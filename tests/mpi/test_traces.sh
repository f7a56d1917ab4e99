#!/usr/bin/env bash
# test_traces.sh - the traces of several ranks, with both kinds of MPI (traced.c, traced.py).
#
# Promise: Traces of ranks name who waited for which message, on any clock.
#
# A rank in another time namespace has a clock that shows 1000 seconds more.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"
needs python3
tool=$build/heddle
cd "$work" || exit 1

# check MPI N PROGRAM-ARGUMENT... -- CHECK...: runs traced.c on N ranks, and checks their traces.
check() {
    local mpi=$1 n=$2 arguments=()
    shift 2
    while [ "$1" != -- ]; do
        arguments+=("$1")
        shift
    done
    shift
    rm -f run.*
    HEDDLE_TRACE=run.trace ranks "$mpi" "$n" traced "${arguments[@]}" || fail "$mpi: ${arguments[*]}"
    judge "$mpi: ${arguments[*]}" "$n" "$@"
}

# judge NAME N CHECK...: checks the traces of N ranks.
judge() {
    local name=$1 n=$2
    shift 2
    [ "$(echo run.*trace*)" = "$(for ((i = 0; i < n; i++)); do echo "run.$i.trace"; done | paste -sd' ')" ] ||
        fail "$name: the files are $(echo run.*trace*)"
    "$tool" trace run.*.trace --json run.json >text || fail "$name: heddle trace"
    python3 -B "$source/tests/mpi/traced.py" "$@" run.json || fail "$name: $*"
}

compiled mpich traced || exit 1
check mpich 3 planted -- planted
grep -q 'rank 2 waited .* for 1 message of rank 1, tag 7 .* until its call' text || fail "the text names no wait: $(cat text)"
grep -q 'rank 1 waited .* for rank 0 in 1 allreduce' text || fail "the text names no allreduce: $(cat text)"
HEDDLE_PLACEMENT=process check mpich 3 planted -- planted
check mpich 4 random 600 1 -- random 600
"$tool" trace run.*.trace --export chrome -o chrome.json && judge "chrome" 4 chrome chrome.json || fail "the export for Perfetto"
HEDDLE_PLACEMENT=inline check mpich 2 random 200 2 -- random 200
if compiled openmpi traced; then
    check openmpi 3 planted -- planted
    check openmpi 2 random 300 3 -- random 300
fi

# a rank whose clock shows something else; MPICH shares no memory across user namespaces
if unshare -r -T --monotonic 1000 true 2>/dev/null; then
    rm -f run.*
    UCX_TLS=tcp,self HEDDLE_TRACE=run.trace mpiexec.mpich -n 1 ./traced.mpich random 200 4 : -n 1 unshare -r -T --monotonic 1000 \
        ./traced.mpich random 200 4 </dev/null || fail "another clock"
    judge "another clock" 2 clock 1 999 1010
else
    without "time namespaces: a rank with another clock"
fi

# files that do not belong together
cp run.0.trace old.0.trace
HEDDLE_TRACE=run.trace ranks mpich 2 traced random 20 5 || fail "a second run"
"$tool" trace old.0.trace run.1.trace >text 2>&1 && fail "files of different runs"
grep -q 'old.0.trace and run.1.trace are of different runs' text || fail "different runs: $(cat text)"
"$tool" trace run.1.trace run.1.trace >text 2>&1 && fail "the same rank twice"
grep -q 'both of rank 1' text || fail "the same rank twice: $(cat text)"
"$tool" trace run.1.trace | grep -q '^run.1.trace: ' || fail "one file alone"
exit $failed
