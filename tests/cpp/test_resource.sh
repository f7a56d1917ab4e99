#!/usr/bin/env bash
# test_resource.sh - heddle/resource.hpp with the CCCL of the CUDA toolkit and with that of the
# Python package index: the concepts of cuda::mr, and a program on host devices.
#
# Promise: hd::memory_resource satisfies the concepts of cuda::mr in CCCL 3.0 and later, and each block belongs to one owner.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs "${CXX:-c++}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
tried=0
packages=$("$source/tools/install-deps" --where)
toolkit=$(command -v "${NVCC:-nvcc}") && toolkit=$(dirname "$(dirname "$(readlink -f "$toolkit")")")

# with_headers FOLDER: compiles and runs the program with the headers of this folder
with_headers() {
    [ -e "$1/cccl/cuda/memory_resource" ] || {
        without "CCCL in $1"
        return 0
    }
    tried=$((tried + 1))
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -Wconversion -Wshadow -Werror -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE \
        "-I$source/include" -isystem "$1/cccl" -isystem "$1" -o "$work/resource" "$source/tests/cpp/resource.cpp" \
        "-L$build" -lheddle "-Wl,-rpath,$build" -pthread || {
        failed=1
        return
    }
    local placement
    for placement in thread inline; do
        HEDDLE_PLACEMENT=$placement "$work/resource" || failed=1
    done
}
with_headers "${toolkit:-/usr/local/cuda}/include"
with_headers "$packages/cccl_headers/nvidia/cu13/include"
[ $tried -gt 0 ] || exit 77
exit $failed
