#!/usr/bin/env bash
# test_layout.sh - the library's structures for DLPack agree with DLPack's own header, both Debian's
# (the form without a version) and PyTorch's (DLPack 1).
#
# Promise: The library's structures for DLPack agree with DLPack's own header, and a program may
# include both headers.
#
# Without an installed header (tools/install-deps --ci installs both), the test compares nothing.
set -u
source=$1
. "$source/tests/support/installed.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
tried=0
flags=(-Wall -Wextra -Werror -fsyntax-only "-I$source/include" "-I$source/src")

# with FOLDER WHOSE: compares with the header FOLDER/dlpack/dlpack.h
with() {
    local order compiler
    [ -e "$1/dlpack/dlpack.h" ] || {
        without "DLPack's header: $2"
        return 0
    }
    tried=$((tried + 1))
    for order in HEDDLE_FIRST HEDDLE_LAST; do
        "${CC:-cc}" -std=c11 "${flags[@]}" -isystem "$1" "-D$order" "$source/tests/dlpack/layout.c" || failed=1
        for compiler in g++ clang++; do
            installed "$compiler" || continue
            $compiler -std=c++17 -x c++ "${flags[@]}" -isystem "$1" "-D$order" "$source/tests/dlpack/layout.c" || failed=1
        done
    done
    echo "compared: $1: $(sed -nE 's/^#define DLPACK_(VERSION|MAJOR_VERSION|MINOR_VERSION) /\1 /p' "$1/dlpack/dlpack.h" | paste -sd' ')"
}

mkdir "$work/debian"
[ ! -e /usr/include/dlpack/dlpack.h ] || ln -s /usr/include/dlpack "$work/debian/dlpack"
with "$work/debian" "the system's"
with "$("$source/tools/install-deps" --where)/torch_header" "that of PyTorch"

# The comparison finds a difference.
if [ $tried -gt 0 ]; then
    mkdir -p "$work/src/dlpack"
    sed 's/int32_t dims;/int64_t dims;/' "$source/src/dlpack/layout.h" >"$work/src/dlpack/layout.h"
    if "${CC:-cc}" -std=c11 -fsyntax-only "-I$work/src" "-I$source/include" -isystem "$work/debian" \
        -isystem "$("$source/tools/install-deps" --where)/torch_header" "$source/tests/dlpack/layout.c" 2>/dev/null; then
        echo "a difference is not found"
        failed=1
    fi
fi
[ $tried -gt 0 ] || exit 77
exit $failed
