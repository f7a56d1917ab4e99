#!/usr/bin/env bash
# test_torch_native.sh - the C functions that PyTorch calls for memory, on host devices.
#
# Promise: Memory that PyTorch frees serves other work only after its streams' work and its graphs' end, and a failure throws.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs c++
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

for placement in thread inline; do
    for schedule in 0 1 2; do
        HEDDLE_PLACEMENT=$placement SCHEDULE=$schedule runs check_torch_native || {
            echo "FAILED: placement $placement, schedule $schedule"
            failed=1
        }
    done
done

c++ -std=c++17 -O1 -I"$source/include" -o "$work/memory" "$source/tests/python/torch_memory.cpp" -L"$build" -lheddle -ldl \
    -Wl,-rpath,"$build" || exit 1
"$work/memory" "$build/libheddle_python.so" >"$work/out" || failed=1
expect() { # expect COUNT TEXT: as many lines contain the text
    [ "$(grep -c -F -- "$2" "$work/out")" -eq "$1" ] || {
        echo "FAILED: not $1 lines with: $2"
        cat "$work/out"
        failed=1
    }
}
expect 3 "CUDA out of memory. Tried to allocate 32.00 MiB on GPU 0."
expect 3 "PyTorch's tensors hold 40.00 MiB"
expect 3 "holders: 'torch' 40 MiB in 1"
expect 2 "a device that Heddle's runtime lacks"
expect 2 "heddle.torch: an allocation of 256 bytes failed"
expect 1 "3 destructors, closed"
exit $failed
