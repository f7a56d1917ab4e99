#!/usr/bin/env bash
# test_lost.sh - a rank that is killed or stopped while others exchange messages with it (lost.c).
#
# Promise: If a rank dies or stops, operations with it fail within their limits, name it, and disturb no others.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"

# survives MPI PLACEMENT HOW RANKS: this number of ranks gets to its end. The launchers end all ranks when one dies.
# Open MPI has an option against that. MPICH also looks at the status of the process, and sends SIGUSR1.
survives() {
    local rank=("$work/lost.$1" "$3") with=(--oversubscribe --enable-recovery) well
    if [ "$1" = mpich ]; then
        with=(-disable-auto-cleanup)
        rank=(sh -c 'trap "" USR1; "$@"; exit 0' sh "${rank[@]}")
    fi
    HEDDLE_PLACEMENT=$2 timeout -k 1 200 "mpiexec.$1" "${with[@]}" -n 3 "${rank[@]}" </dev/null >"$work/out" 2>&1
    well=$(grep -cE '^rank [012] is well$' "$work/out")
    [ "$well" = "$4" ] || fail "$1, placement $2: rank 1 is $3, and $well ranks are well instead of $4: $(grep -v '^$' "$work/out")"
}

for mpi in $kinds; do
    compiled "$mpi" lost || continue
    survives "$mpi" thread killed 2
    survives "$mpi" thread stopped 2
    survives "$mpi" thread continued 3
done
survives mpich process killed 2
exit $failed
