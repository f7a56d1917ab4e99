#!/usr/bin/env bash
# test_classes.sh - the classes of heddle/cpp/mpi.hpp on two ranks (classes.cpp).
#
# Promise: Spans, buffers and tensors in C++ are operands of MPI, and failures are exceptions.
set -u
. "$1/tests/mpi/ranks.sh"
needs mpicxx.mpich
mpicxx.mpich -std=c++17 -g -Wall -Wextra -Wshadow -Werror -I "$source/include" "$source/tests/mpi/classes.cpp" -o "$work/classes.mpich" \
    -L "$build" -lheddle "-Wl,-rpath,$build" || exit 1
ranks mpich 2 classes
