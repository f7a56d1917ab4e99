#!/usr/bin/env bash
# test_api.sh - the calls of the Python package, and the examples in docstrings.
#
# Promise: Each call of the Python package does what its docstring says.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
failed=0
export HEDDLE_PLACEMENT=thread
runs check_memory check_work check_other check_exchange check_exchange_c check_files check_edges || failed=1
python3 -s "$source/tests/python/docstrings.py" || failed=1
exit $failed
