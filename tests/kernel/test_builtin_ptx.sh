#!/bin/sh
# test_builtin_ptx.sh - the committed PTX of the built-in kernels is what their source gives; skipped without a clang
# that can tell.
#
# Promise: The committed PTX is what the sources of the built-in kernels compile to.
exec "$1/tools/make-builtin-ptx" --check
