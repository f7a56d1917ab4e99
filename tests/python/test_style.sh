#!/usr/bin/env bash
# test_style.sh - mypy and ruff find nothing in the Python package, its tests, examples and maker.
#
# Promise: The Python package passes mypy in strict mode, and all Python of the package passes ruff.
# Tier: full.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
tried=0
export PYTHONPATH=$packages/python_tools
cd "$source" || exit 1

if python3 -s -c 'import mypy' 2>/dev/null; then
    tried=1
    MYPYPATH=$source/python:$packages python3 -s -m mypy --cache-dir "$work/mypy" || failed=1
    # a mistake in the types is found
    cp -r python/heddle "$work/heddle"
    sed -i 's/return int(lib.hd_wait(self._value, nanoseconds))/return str(nanoseconds)/' "$work/heddle/tickets.py"
    ! MYPYPATH=$packages python3 -s -m mypy --strict --cache-dir "$work/mypy" "$work/heddle" >"$work/out" 2>&1 || failed=1
    grep -q 'tickets.py.*return-value' "$work/out" || failed=1
else
    without "mypy: for python3"
fi
ruff=$packages/python_tools/bin/ruff
if [ -x "$ruff" ]; then
    tried=1
    "$ruff" check --no-cache python tests/python examples/python tests/gpu/python_hosts.py tools/make-python-abi tools/make-hosts-table || failed=1
    "$ruff" format --no-cache --check python tests/python examples/python tests/gpu/python_hosts.py tools/make-python-abi tools/make-hosts-table || failed=1
else
    without ruff
fi
[ $tried -eq 1 ] || exit 77
exit $failed
