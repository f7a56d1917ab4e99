#!/usr/bin/env bash
# test_direct.sh - MPI uses device memory itself only where messages arrived (direct.c).
#
# Promise: An MPI that lies about device memory corrupts no message.
set -u
. "$1/tests/mpi/ranks.sh"
compiled mpich direct || exit 1
for way in unaware good send receive long refuse; do
    HEDDLE_PLACEMENT=thread ranks mpich 2 direct $way || fail "$way"
done
HEDDLE_PLACEMENT=thread ranks mpich 3 direct one || fail "one of three ranks"
HEDDLE_PLACEMENT=inline ranks mpich 2 direct good || fail "inline"
HEDDLE_PLACEMENT=process ranks mpich 2 direct good || fail "process"
exit $failed
