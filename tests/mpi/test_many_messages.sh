#!/usr/bin/env bash
# test_many_messages.sh - 10,000 random messages of up to 64 MiB with each kind of MPI (messages.c).
#
# Promise: Many messages of all sizes, by several threads of 2 to 4 ranks, arrive as a model says in every placement.
# Tier: stress.
set -u
. "$1/tests/mpi/ranks.sh"
seed=10
for mpi in $kinds; do
    compiled "$mpi" messages || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 messages 3000 $((seed++))
        try "$mpi" "$placement" 4 messages 2000 $((seed++))
    done
done
try mpich inline 3 messages 1000 $seed
exit $failed
