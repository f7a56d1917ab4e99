#!/usr/bin/env bash
# test_placements.sh - the tests of the Python package with the other placements, and with each
# Python and NumPy of this machine.
#
# Promise: The Python package works in every placement, with old and new releases of Python and NumPy.
# Tier: full.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
failed=0
for placement in inline process; do
    HEDDLE_PLACEMENT=$placement runs check_memory check_work check_other check_exchange check_exchange_c check_files check_process || {
        echo "FAILED: placement $placement"
        failed=1
    }
done
export HEDDLE_PLACEMENT=thread
for python in /usr/bin/python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
    "$python" --version
    PYTHONPATH=$source/python:$source/tests/python "$python" -s -m unittest -q check_process || failed=1
    PYTHONPATH=$source/python:$source/tests/python "$python" -s -c 'import numpy' 2>/dev/null || continue
    PYTHONPATH=$source/python:$source/tests/python "$python" -s -m unittest -q check_memory check_work check_other check_exchange check_exchange_c check_files || failed=1
done
exit $failed
