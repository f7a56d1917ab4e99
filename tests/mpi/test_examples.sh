#!/usr/bin/env bash
# test_examples.sh - the examples over MPI on 1, 2 and 4 ranks with 1 and 2 devices each, with both kinds of MPI.
#
# Promise: The examples over MPI give the bits of one rank and one device, for any number of ranks and devices.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"
tool=${HEDDLE_TOOL:-$build/heddle}
for example in wave heat; do
    "$tool" cc --no-gpu -I "$source/include" -o "$work/$example.hdk" "$source/examples/kernels/$example.c" || exit 1
done

# equal MPI PLACEMENT RANKS DEVICES EXAMPLE ARGUMENT...: the result is that of one rank and one device
equal() {
    local mpi=$1 placement=$2 n=$3 devices=$4 example=$5
    shift 5
    HEDDLE_DRIVER=host HEDDLE_PLACEMENT=$placement HEDDLE_HOST_DEVICES=$devices \
        ranks "$mpi" "$n" "$example" "$work/$example.hdk" --check "$@" >"$work/out" 2>&1 &&
        grep -q "^$n ranks with $devices devices\|^[1-4] x [1-4] ranks with $devices devices" "$work/out" &&
        grep -qx 'the result is equal to that of one rank and one device, bit by bit' "$work/out" ||
        fail "$*: $example, $mpi, $placement, $n ranks with $devices devices: $(cat "$work/out")"
}

# refuses TEXT EXAMPLE ARGUMENT...
refuses() {
    local text=$1 example=$2
    shift 2
    HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=1 ranks mpich 1 "$example" "$@" >"$work/out" 2>&1
    [ $? -ne 0 ] && grep -qF -- "$text" "$work/out" || fail "$example $*: does not say \"$text\": $(cat "$work/out")"
}

for mpi in mpich openmpi; do
    compiled "$mpi" ../../examples/mpi/wave && compiled "$mpi" ../../examples/mpi/heat || continue
    equal "$mpi" thread 2 1 wave --cells 21 --steps 12
    equal "$mpi" process 2 1 heat --cells 33 --steps 12
done
for n in 1 4; do
    equal mpich thread "$n" 1 wave --cells 35 --steps 12 # slabs of 8 and 9 planes
    equal mpich thread "$n" 2 heat --cells 41 --steps 12
done
equal mpich thread 2 2 wave --cells 50 --steps 12
equal mpich thread 4 1 heat --cells 3 --steps 12 # parts with rows of one cell
equal mpich process 2 2 wave --cells 33 --steps 12
equal mpich thread 2 2 heat --cells 50 --steps 12
refuses 'at least 8' wave "$work/wave.hdk" --cells 7
refuses 'usage:' wave "$work/wave.hdk" --cells
refuses 'cannot be read' heat "$work/none.hdk"
exit $failed
