#!/usr/bin/env bash
# test_collectives.sh - random collective operations of 2 to 4 ranks, with both kinds of MPI (collectives.c).
#
# Promise: Collective operations over MPI give the results of a model in every placement, and no thread races another.
# Tier: full.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
count=300
[ -z "$sanitizer" ] || count=100
seed=1
for mpi in $kinds; do
    compiled "$mpi" collectives || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 collectives $count $((seed++))
        try "$mpi" "$placement" 4 collectives $count $((seed++))
    done
done
[ -n "$sanitizer" ] || try mpich inline 3 collectives $count $seed
exit $failed
