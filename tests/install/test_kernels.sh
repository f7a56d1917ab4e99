#!/usr/bin/env bash
# test_kernels.sh - a project that uses an installed library builds kernels: by heddle_add_kernels
# in CMake, with each installed generator, and by heddle.mk in make. A program runs kernels from a
# file, and kernels embedded in the program.
#
# Promise: A project that uses an installed library builds kernels with CMake and make, and a
# changed header builds them again.
# Tier: full.
set -eu
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
export HEDDLE_DRIVER=host

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >/dev/null
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name heddle.pc)")
export PKG_CONFIG_PATH
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
export LD_LIBRARY_PATH

# Makes the part for GPUs if a compiler for GPUs is installed.
gpu=
echo '__global__ void k() { }' >"$work/probe.cu"
printf '#include <heddle/kernel.h>\nHD_KERNEL(k) { }\n' >"$work/probe.c"
"$prefix/bin/heddle" cc -o "$work/probe.hdk" "$work/probe.c" 2>/dev/null || gpu=--no-gpu
cuda=no
"$prefix/bin/heddle" cc -o "$work/probe.fatbin" "$work/probe.cu" 2>/dev/null && cuda=yes

project=$work/project
mkdir -p "$project/shared"
mkdir "$project/other"
echo '#define FACTOR 10.0f' >"$project/other/factor.h"
echo '#define FACTOR 2.0f' >"$project/shared/factor.h"
cat >"$project/scale.c" <<'END'
#include <heddle/kernel.h>
#include "factor.h"
HD_KERNEL(scale, HD_INOUT(float, y)) { y[hd_global_x()] *= FACTOR; }
END
cat >"$project/shift.c" <<'END'
#include <heddle/kernel.h>
#include "factor.h"
HD_DEVICE float shifted(float x) { return x + FACTOR; }
HD_KERNEL(shift, HD_INOUT(float, y)) { y[hd_global_x()] = shifted(y[hd_global_x()]); }
END
cat >"$project/cuda.cu" <<'END'
#include "factor.h"
extern "C" __global__ void from_cuda(float *y) { *y *= FACTOR; }
END
# This program runs `scale` from a file and its embedded `shift`, and prints y * FACTOR + FACTOR for
# y = 1.
cat >"$project/main.c" <<'END'
#include <heddle.h>
#include <stdio.h>
#include "inside.h"
#define NEED(e) if ((e) != HD_OK) { printf("%s\n", hd_message()); return 1; }
int main(int argc, char **argv)
{
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer;
    hd_module *file, *own;
    hd_kernel *scale, *shift;
    float y = 1;
    if (argc < 2) return 1;
    NEED(hd_open(NULL, &runtime));
    NEED(hd_lane_get_default(runtime, 0, &lane));
    NEED(hd_alloc(lane, sizeof y, &buffer));
    NEED(hd_write(buffer, 0, &y, sizeof y));
    NEED(hd_module_load_file(runtime, argv[1], &file));
    NEED(hd_module_load(runtime, inside, inside_size, &own));
    NEED(hd_kernel_get(file, "scale", &scale));
    NEED(hd_kernel_get(own, "shift", &shift));
    hd_arg args[1];
    args[0] = hd_inout(buffer);
    hd_dims one = {1, 1, 1};
    NEED(hd_launch(lane, scale, one, one, 0, args, 1, NULL));
    NEED(hd_launch(lane, shift, one, one, 0, args, 1, NULL));
    NEED(hd_read(buffer, 0, &y, sizeof y));
    printf("%g\n", (double)y);
    return hd_close(runtime) != HD_OK;
}
END

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# follow NAME RUN BUILD...: builds, builds again after a header changed, and builds nothing if
# nothing changed
follow() {
    name=$1 run=$2
    shift 2
    echo '#define FACTOR 2.0f' >"$project/shared/factor.h"
    "$@" >"$work/log" 2>&1 || { fail "$name does not build: $(cat "$work/log")" && return; }
    result=$($run 2>&1)
    [ "$result" = 4 ] || fail "$name: $result, not 4 ($(cat "$work/log"))"
    sleep 1.1 # a file system may store times in whole seconds
    echo '#define FACTOR 3.0f' >"$project/shared/factor.h"
    "$@" >"$work/log" 2>&1 || { fail "$name does not build again: $(cat "$work/log")" && return; }
    result=$($run 2>&1)
    [ "$result" = 6 ] || fail "$name, after its header changed: $result, not 6"
    "$@" >"$work/log" 2>&1
    ! grep -qE 'Compiling kernels|heddle.* cc ' "$work/log" || fail "$name builds again what did not change: $(cat "$work/log")"
}

cat >"$project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES ${language})
find_package(Heddle REQUIRED)
set_source_files_properties(main.c PROPERTIES LANGUAGE ${language})
add_executable(consumer main.c)
target_include_directories(consumer PRIVATE shared)
target_link_libraries(consumer PRIVATE heddle::heddle)
heddle_add_kernels(consumer scale.c OPTIONS ${gpu})
heddle_add_kernels(consumer EMBED shift.c NAME inside OPTIONS ${gpu} -g)
heddle_add_kernels(consumer scale.c shift.c NAME both OPTIONS ${gpu})
if(cuda)
    heddle_add_kernels(consumer cuda.cu OPTIONS ${arch})
endif()
# a second program in the folder embeds the same kernels with its own headers, and shares the file
set_source_files_properties(main.c PROPERTIES LANGUAGE ${language})
add_executable(second main.c)
target_include_directories(second PRIVATE other)
target_link_libraries(second PRIVATE heddle::heddle)
heddle_add_kernels(second scale.c OPTIONS ${gpu})
heddle_add_kernels(second EMBED shift.c NAME inside OPTIONS ${gpu} -g)
if(wrong STREQUAL options)
    heddle_add_kernels(second scale.c OPTIONS ${gpu} -g)
elseif(wrong STREQUAL twice)
    heddle_add_kernels(second EMBED scale.c NAME inside OPTIONS ${gpu})
endif()
get_target_property(files consumer HEDDLE_KERNEL_FILES)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/files" "${files}")
END
arch= # first for all GPUs, which takes nvcc long, and then for one GPU
for generator in "Unix Makefiles" Ninja; do
    [ "$generator" != Ninja ] || installed ninja || continue
    for language in C CXX; do
        out="$work/$generator $language"
        cmake -G "$generator" -S "$project" -B "$out" -DCMAKE_PREFIX_PATH="$prefix" -Dgpu=$gpu -Dcuda=$cuda "-Darch=$arch" -Dlanguage=$language >"$work/log" 2>&1 ||
            { fail "$generator: $(cat "$work/log")" && continue; }
        run() { "$out/consumer" "$out/scale.hdk"; }
        follow "$generator, $language" run cmake --build "$out"
        result=$("$out/second" "$out/scale.hdk" 2>&1)
        [ "$result" = 13 ] || fail "$generator, the second program: $result, not 13"
        [ -s "$out/both.hdk" ] || fail "$generator: there is no both.hdk"
        [ $cuda = no ] || [ -s "$out/cuda.fatbin" ] || fail "$generator: there is no cuda.fatbin"
        grep -q "scale.hdk;.*both.hdk" "$out/files" || fail "HEDDLE_KERNEL_FILES is $(cat "$out/files")"
        arch='--gpu-arch;sm_80'
    done
done

for wrong in options:'with other options; give one of them another NAME' twice:'has kernels of the name inside already'; do
    cmake -S "$project" -B "$work/wrong" -DCMAKE_PREFIX_PATH="$prefix" -Dgpu=$gpu -Dcuda=no -Dlanguage=C "-Dwrong=${wrong%%:*}" >"$work/log" 2>&1 &&
        fail "${wrong%%:*}: CMake takes it"
    tr -s ' \n' ' ' <"$work/log" | grep -q "${wrong#*:}" || fail "${wrong%%:*}: $(cat "$work/log")"
done

cat >"$project/Makefile" <<'END'
HEDDLE := $(shell pkg-config --variable=tool heddle)
HEDDLE_CCFLAGS := -Ishared $(gpu)
include $(shell pkg-config --variable=makefile heddle)
CFLAGS += $(shell pkg-config --cflags heddle) -I.
LDLIBS += $(shell pkg-config --libs heddle)
all: consumer scale.hdk $(cuda)
consumer: main.o shift_hdk.o
	$(CC) -o $@ $^ $(LDLIBS)
main.o: inside.h shift_hdk.h
inside.h:
	printf '#include "shift_hdk.h"\n#define inside shift_hdk\n#define inside_size shift_hdk_size\n' >$@
END
run() { "$project/consumer" "$project/scale.hdk"; }
follow make run make -C "$project" gpu=$gpu cuda="$([ $cuda = no ] || echo cuda.fatbin)"
exit $failed
