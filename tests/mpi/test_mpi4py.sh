#!/usr/bin/env bash
# test_mpi4py.sh - mpi4py's own tests with arrays in memory that Heddle owns (heddle_arrays.py).
#
# Promise: The tests of mpi4py for messages and collective operations pass on Heddle's device memory and pinned memory.
# Tier: full.
set -u
. "$1/tests/mpi/ranks.sh"
installed python3 || exit 77
packages=$("$source/tools/install-deps" --where)
tests=$packages/mpi4py_source/test
if ! [ -e "$tests/arrayimpl.py" ] || ! PYTHONPATH=$packages python3 -s -c 'import numpy' 2>/dev/null; then
    without "mpi4py"
    exit 77
fi
# mpi4py looks for MPICH under the common name of its interface, which Debian's package lacks
mkdir "$work/lib"
ln -s "$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libmpich.so.12" { print $NF; exit }')" "$work/lib/libmpi.so.12"
export LD_LIBRARY_PATH=$work/lib MPI4PY_MPIABI PYTHONPATH=$packages/mpi4py:$packages PYTHONDONTWRITEBYTECODE=1 HEDDLE_DRIVER=host

# on MPI N MODULE...: runs these modules of mpi4py's tests on N ranks
on() {
    local more=(--oversubscribe) mpi=$1 n=$2
    shift 2
    MPI4PY_MPIABI=$mpi
    [ "$mpi" = openmpi ] || more=()
    "mpiexec.$mpi" "${more[@]}" -n "$n" python3 -s "$source/tests/mpi/heddle_arrays.py" "$build/libheddle.so" "$tests" "$@" \
        >"$work/out" 2>&1 </dev/null || fail "$* with $mpi, $n ranks: $(tail -n 40 "$work/out")"
    grep -h '^Ran\|^arrays' "$work/out" | sort -u
}

on mpich 2 test_p2p_buf test_p2p_buf_matched test_cco_buf test_cco_vec
! installed mpiexec.openmpi || on openmpi 2 test_p2p_buf test_cco_buf
exit $failed
