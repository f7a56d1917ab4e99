#!/usr/bin/env bash
# test_messages.sh - random messages between 2 and 4 ranks, with both kinds of MPI (messages.c).
#
# Promise: Messages over MPI arrive as a model says, from every kind of memory, and no thread races another.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
largest=4000000
for mpi in $kinds; do
    compiled "$mpi" messages || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 messages 200 1 $largest
    done
done
[ -n "$sanitizer" ] || try mpich thread 4 messages 300 2 $largest
exit $failed
