#!/usr/bin/env bash
# test_devices.sh - random collective operations with operands of several devices of each rank, with
# both kinds of MPI (devices.c).
#
# Promise: A collective operation over several devices of each rank gives the result of a model, and a lost device holds up no rank.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"
compiled mpich devices || exit 1
HEDDLE_PLACEMENT=thread ranks mpich 2 devices 150 1 || fail "mpich, thread, 2 ranks"
HEDDLE_PLACEMENT=process ranks mpich 3 devices 100 2 || fail "mpich, process, 3 ranks"
HEDDLE_PLACEMENT=inline ranks mpich 4 devices 100 3 || fail "mpich, inline, 4 ranks"
if compiled openmpi devices; then
    HEDDLE_PLACEMENT=thread ranks openmpi 2 devices 100 4 || fail "openmpi, thread, 2 ranks"
fi
exit $failed
