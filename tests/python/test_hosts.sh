#!/usr/bin/env bash
# test_hosts.sh - memory for the allocators of CuPy, Numba, cuda.core and RMM: random histories of
# the functions of C that these packages call.
#
# Promise: Memory that other packages take from Heddle belongs to one owner, and late work of Heddle never changes it.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
failed=0
for placement in thread inline; do
    HEDDLE_PLACEMENT=$placement runs check_hosts || failed=1
done
exit $failed
