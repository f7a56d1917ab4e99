#!/usr/bin/env bash
# test_units.sh - several source files of one program include heddle/mpi.h, and share one link
# (units.c).
#
# Promise: A link that one source file opened works in all source files of the program.
set -u
. "$1/tests/mpi/ranks.sh"
flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -I "$source/include")
mpicc.mpich "${flags[@]}" -DUNITS_USE -c "$source/tests/mpi/units.c" -o "$work/use.o" || exit 1
mpicc.mpich "${flags[@]}" "$source/tests/mpi/units.c" "$work/use.o" -o "$work/units.mpich" -L "$build" -lheddle \
    "-Wl,-rpath,$build" || exit 1
ranks mpich 1 units
