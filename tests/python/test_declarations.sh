#!/usr/bin/env bash
# test_declarations.sh - the declarations for ctypes are those that tools/make-python-abi makes from
# the headers and the record of the binary interface, and a difference is found.
#
# Promise: The Python package declares every function, structure and constant exactly as the C headers do.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
"$source/tools/make-python-abi" --check || failed=1

mkdir -p "$work/tools" "$work/tests" "$work/python/heddle"
cp "$source/tools/make-python-abi" "$work/tools/"
cp -r "$source/tests/abi" "$work/tests/"

# finds FILE SED WHAT: after this change of a file, the check must fail
finds() {
    rm -rf "$work/include"
    cp -r "$source/include" "$work/"
    cp "$source/python/heddle/_abi.py" "$work/python/heddle/"
    sed -i "$2" "$work/$1"
    ! cmp -s "$source/$1" "$work/$1" || { echo "FAILED: '$2' changes nothing" && failed=1; }
    ! "$work/tools/make-python-abi" --check >/dev/null 2>&1 || { echo "FAILED: not found: $3" && failed=1; }
}
finds python/heddle/_abi.py 's/("lane", c.c_int)/("lane", c.c_uint)/' "another type of a field"
finds python/heddle/_abi.py '/"hd_fill":/d' "a missing function"
finds include/heddle/lane.h 's/    uint64_t sequence;/    uint32_t sequence;/' "another size of a field"
finds include/heddle/status.h 's/    int lane; .*/    int lane, more;/' "a new field"
finds include/heddle/tensor.h 's/HD_TYPE_I8 = 1,/HD_TYPE_I4 = 1,/' "another constant"
exit $failed
