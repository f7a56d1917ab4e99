#!/bin/sh
# test_builtin_ptx.sh - the committed PTX of the built-in kernels agrees with their source; skipped
# without a clang that can compile it.
#
# Promise: The committed PTX is what the sources of the built-in kernels compile to.
source=$1
. "$source/tests/support/installed.sh"
"$source/tools/make-builtin-ptx" --check
rc=$?
[ $rc -ne 77 ] || without "clang: of the version that made the committed PTX"
exit $rc
