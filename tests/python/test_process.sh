#!/usr/bin/env bash
# test_process.sh - the end of the interpreter, fork(), Ctrl-C, and objects in cycles, each in a
# process of its own.
#
# Promise: A Python program ends, forks, is interrupted and collects garbage without a hang, a crash or a leak.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
HEDDLE_PLACEMENT=thread runs check_process
