#!/usr/bin/env bash
# test_graphs.sh - random operations on views of a few tensors, compared with the same operations in NumPy.
#
# Promise: Random graphs of operations from Python, over devices, lanes and kinds of memory, compute the same as NumPy.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
failed=0
for placement in thread process; do
    HEDDLE_PLACEMENT=$placement python3 -s "$source/tests/python/graphs.py" 40 || failed=1
done
exit $failed
