# shellcheck shell=bash disable=SC2154
# with.sh - functions for the tests of the Python package, which use the package in this tree with the library of the build.
#
# The packages of tools/install-deps belong to the python3 in PATH.
. "$source/tests/support/installed.sh"
needs python3
packages=$("$source/tools/install-deps" --where)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$source/python:$source/tests/python:$packages"
export HEDDLE_DRIVER=host HEDDLE_WORKER=$build/heddle-worker HEDDLE_SHARED_LIBRARY=$build/libheddle.so
[ -e "$build/libheddle_python.so" ] || {
    echo "skipped: $build/libheddle_python.so is not built"
    exit 77
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {
    without "Python 3.9"
    exit 77
}

# needs_numpy: skips the whole test without NumPy
needs_numpy() {
    python3 -s -c 'import numpy' 2>/dev/null || {
        without "NumPy: for python3"
        exit 77
    }
}

# runs FILE ARGUMENT...: runs tests of unittest
runs() {
    python3 -s -W error::ResourceWarning -m unittest -q "$@"
}
