#!/usr/bin/env bash
# test_guide.sh - the program of docs/guide/mpi.md compiles, and runs on several ranks. The other
# blocks of C compile, those that do not begin with "static" in a function.
#
# Promise: The program in the guide to MPI works as it stands there.
set -u
. "$1/tests/mpi/ranks.sh"
# block NUMBER: writes a block of C; block 0: writes the number of blocks
block() { awk -v n="$1" '/^```c$/ { inside = ++seen; next } /^```/ { inside = 0 } inside && inside == n; END { if (!n) print seen }' "$source/docs/guide/mpi.md"; }
block 1 >"$work/ring.c"
for ((n = 2; n <= $(block 0); n++)); do
    {
        printf '#include <heddle/mpi.h>\n#include "%s"\n' "$source/tests/mpi/libraries.h"
        if block "$n" | head -n 1 | grep -q '^static '; then
            block "$n"
        else
            printf 'void part(hd_mpi *mpi, hd_buffer *on_device_0, hd_buffer *on_device_1)\n{\n'
            block "$n"
            echo '}'
        fi
    } >"$work/part.c"
    mpicc.mpich -std=gnu11 -Wall -Wextra -Wno-unused-function -Werror -fsyntax-only "$work/part.c" -I "$source/include" || exit 1
done
mpicc.mpich -std=gnu11 -O2 -Wall -Wextra -Werror "$work/ring.c" -o "$work/ring.mpich" -I "$source/include" -L "$build" -lheddle \
    "-Wl,-rpath,$build" || exit 1
HEDDLE_DRIVER=host ranks mpich 3 ring >"$work/out" || exit 1
sort "$work/out" >"$work/sorted"
diff "$work/sorted" - <<'TEXT'
rank 0, device 0 of its machine: 2 on the left, 3 in all
rank 1, device 0 of its machine: 0 on the left, 3 in all
rank 2, device 0 of its machine: 1 on the left, 3 in all
TEXT
