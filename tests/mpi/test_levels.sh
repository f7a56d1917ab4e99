#!/usr/bin/env bash
# test_levels.sh - the levels of threads that MPI may provide, and the devices of each rank (levels.c).
#
# Promise: Heddle shares the program's lock with MPI_THREAD_SERIALIZED, refuses lower levels by name, and divides devices.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
export HEDDLE_DRIVER=host
compiled mpich levels || exit 1
for level in single funneled serialized multiple; do
    try mpich thread 2 levels $level
done
exit $failed
