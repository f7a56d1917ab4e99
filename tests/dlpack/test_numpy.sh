#!/usr/bin/env bash
# test_numpy.sh - NumPy takes Heddle's tensors, and Heddle takes NumPy's arrays: NumPy 2 in DLPack's
# form with a version, the system's older NumPy in the form without one.
#
# Promise: NumPy and Heddle exchange tensors of every type without a copy, in order, and every deleter is called once.
#
# Without an installed NumPy (tools/install-deps --ci installs both), the test exchanges nothing.
set -u
source=$1
. "$source/tests/support/installed.sh"
library=$2/libheddle.so
failed=0
tried=0

# with PYTHON FOLDER: tests with this Python, whose packages are in FOLDER
with() {
    installed "$1" || return 0
    PYTHONPATH=$2 "$1" -s -c 'import numpy' 2>/dev/null || {
        without "NumPy: for $1${2:+, in $2}"
        return 0
    }
    tried=$((tried + 1))
    for placement in thread inline process; do
        HEDDLE_DRIVER=host HEDDLE_PLACEMENT=$placement HEDDLE_WORKER=${library%/*}/heddle-worker PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$2 \
            "$1" -s "$source/tests/dlpack/exchange.py" "$library" || {
            echo "FAILED: $1, placement $placement"
            failed=1
        }
    done
}

with python3 "$("$source/tools/install-deps" --where)"
with /usr/bin/python3 ''
[ $tried -gt 0 ] || exit 77
exit $failed
