#!/bin/bash
# test_pairs.sh - the kernels of tests/kernel/pairs, each as kernel source and as CUDA C++. Kernel
# source runs on host devices in every placement, and clang and nvcc compile it for GPUs. nvcc
# compiles CUDA C++. The library reads the images without a GPU.
#
# Checks that need clang for GPUs, nvcc or ptxas run if these are installed.
#
# Promise: Kernels of the usual kinds compute right results on host devices, and their images
# describe the arguments in both forms.
# Tier: full.
set -u
source=$1
build=$2
[ -x "$build/heddle" ] || {
    echo "skipped: $build/heddle is not built"
    exit 77
}
. "$source/tests/kernel/cc_support.sh"
unset NVCC CLANG
make_pairs=$source/tests/kernel/pairs/make_pairs
ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null)
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)

# describe SET: the image of each kernel describes the arguments of its launch
describe() {
    ./describe "$1=$1" >out 2>&1
    case $? in
    0) ;;
    77) cat out ;;
    *) fail "$1: $(cat out)" ;;
    esac
}

# assembles FOLDER: ptxas assembles all PTX in the folder
assembles() {
    [ -n "$ptxas" ] || return 0
    for ptx in "$1"/*.ptx; do
        [ ! -e "$ptx" ] || "$ptxas" -arch=sm_90 -o cubin "$ptx" >err 2>&1 || fail "$ptx does not assemble: $(head -5 err)"
    done
}

"$make_pairs" "$build" . pairs && "$make_pairs" "$build" . describe || fail "the programs do not compile"

# Kernel source, compiled by clang; without clang, only for the CPU.
"$build/heddle" cc --no-cpu -o one.hdk "$source/tests/kernel/pairs/half.c" 2>without_clang
if [ ! -s without_clang ]; then
    set -- --emit-ptx hdk/NAME.ptx
else
    without "clang: $(head -1 without_clang)"
    set -- --no-gpu
fi
"$make_pairs" "$build" hdk source -Wall -Wextra -Werror "$@" || fail "kernel source does not compile"
assembles hdk
describe hdk
for placement in thread process inline; do
    HEDDLE_DRIVER=host HEDDLE_PLACEMENT=$placement ./pairs "$placement=hdk" >out 2>&1 || fail "$placement: $(cat out)"
done
grep -q '^[3-9][0-9] kernels' out || fail "less than thirty kernels: $(cat out)"

# If the processor supports it, products are fused with sums, as on GPUs.
if "$make_pairs" "$build" fused source --no-gpu -march=native 2>err; then
    HEDDLE_DRIVER=host ./pairs apart=hdk fused=fused >out 2>&1 || fail "fused: $(cat out)"
else
    without "fused products and sums ($(head -1 err))"
fi

# The comparison finds a wrong result and names it. It also compares two sets with each other.
mkdir wrong
cp hdk/*.hdk wrong
sed 's/(sum + 128)/(sum + 384)/' "$source/tests/kernel/pairs/images.c" >images.c
"$build/heddle" cc --no-gpu -o wrong/images.hdk images.c || fail "a wrong kernel does not compile"
HEDDLE_DRIVER=host ./pairs right=hdk wrong=wrong >out 2>&1 && fail "a wrong kernel is right: $(cat out)"
grep -q "^FAILED: kernel 'blur' of set wrong, argument 0, index [0-9]*: got [0-9]*, expected [0-9]* " out || fail "its result is not named: $(cat out)"
grep -q "kernel 'blur' of set wrong.*set right has [0-9]* " out || fail "the sets do not differ: $(cat out)"
grep -q "kernel 'blur', argument 0: sets right and wrong differ in their bits" out || fail "the sets' bits do not differ: $(cat out)"
[ "$(grep -c FAILED out)" -eq 3 ] || fail "other kernels are wrong, too: $(cat out)"

# Both forms, compiled by nvcc.
if [ -n "$nvcc" ]; then
    NVCC=$nvcc "$make_pairs" "$build" nvcc source --no-cpu --emit-ptx nvcc/NAME.ptx 2>err || fail "nvcc does not compile kernel source: $(cat err)"
    NVCC=$nvcc "$make_pairs" "$build" cuda cuda --gpu-arch sm_80 2>err || fail "nvcc does not compile CUDA C++: $(cat err)"
    assembles nvcc
    describe nvcc
    describe cuda
    NVCC=$nvcc "$build/heddle" cc -o textures.fatbin "$source/tests/kernel/pairs/textures.cu" 2>err && fail "a texture reference is compiled"
    grep -q "textures.cu.*\(reference 'picture'\|texture\)" err || fail "the texture is not named: $(cat err)"
else
    without nvcc
fi
[ -n "$ptxas" ] || without ptxas
[ $failures -eq 0 ] && echo "test_pairs: ok"
exit $((failures != 0))
