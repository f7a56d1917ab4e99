#!/usr/bin/env bash
# test_trouble.sh - messages that fail, that are refused, and that never come (trouble.c).
#
# Promise: What fails over MPI fails its ticket and its readers, and nothing else.
# Tier: full.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
for mpi in $kinds; do
    compiled "$mpi" trouble || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 trouble
    done
done
[ -n "$sanitizer" ] || try mpich inline 2 trouble
exit $failed
