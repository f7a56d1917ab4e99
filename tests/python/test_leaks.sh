#!/usr/bin/env bash
# test_leaks.sh - 100,000 cycles of making and dropping every kind of object.
#
# Promise: 100,000 cycles of allocations, launches, claims, lanes and exchanges from Python leave no memory and no handle.
# Tier: full.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
HEDDLE_PLACEMENT=thread python3 -s "$source/tests/python/leaks.py" 100000
