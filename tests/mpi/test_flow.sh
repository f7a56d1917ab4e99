#!/usr/bin/env bash
# test_flow.sh - messages flow while many receives wait for messages that do not come (flow.c).
#
# Promise: Receives whose messages do not come keep no pinned memory from messages that depend on none of them.
# Sanitizers: yes.
set -u
. "$1/tests/mpi/ranks.sh"
for mpi in $kinds; do
    compiled "$mpi" flow || continue
    for placement in $placements; do
        try "$mpi" "$placement" 2 flow
    done
done
exit $failed
