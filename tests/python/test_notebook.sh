#!/usr/bin/env bash
# test_notebook.sh - the notebooks in examples/python run, with nbmake.
#
# Promise: Every notebook of the examples runs without a GPU, from its first cell to its last.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
PYTHONPATH=$PYTHONPATH:$packages/notebook
export JUPYTER_PATH=$packages/notebook/share/jupyter
python3 -s -c 'import nbmake, ipykernel' 2>/dev/null || {
    without "nbmake: for python3"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export HOME=$work JUPYTER_PLATFORM_DIRS=1 IPYTHONDIR=$work # nothing of the user's own settings
cp "$source"/examples/python/*.ipynb "$work" && cd "$work" || exit 1
python3 -s -m pytest -q -p no:cacheprovider --nbmake --nbmake-timeout=600 ./*.ipynb
