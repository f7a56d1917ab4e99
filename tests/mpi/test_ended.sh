#!/usr/bin/env bash
# test_ended.sh - calls through a link that was closed, or whose MPI was finalized (ended.c).
#
# Promise: Calls through a closed link, or after MPI_Finalize, are refused by name, and the link can still be closed.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
for mpi in $kinds; do
    compiled "$mpi" ended || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 ended
    done
done
exit $failed
