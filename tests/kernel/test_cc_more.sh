#!/bin/sh
# test_cc_more.sh - `heddle cc` with several sources, libraries, nvcc and CUDA C++, and the files
# that it writes for builds.
#
# Checks that need clang for GPUs, nvcc or ptxas run if these are installed.
#
# Promise: clang and nvcc put kernels of several sources into one file, and `heddle cc` refuses code
# that cannot be loaded.
# Tier: full.
set -u
source=$1
build=$2
heddle=$build/heddle
. "$source/tests/kernel/cc_support.sh"
unset NVCC CLANG

# lines N: true if stderr got this many lines
lines() {
    [ "$(wc -l <err)" -eq "$1" ] || fail "$(wc -l <err) lines, not $1: $(cat err)"
}

# Helpers and constants of the same name in two sources, and others in a header that both include.
cat >shared.h <<'END'
#include <heddle/kernel.h>
HD_DEVICE float shared_twice(float x) { return 2 * x; }
END
cat >one.c <<'END'
#include "shared.h"
HD_CONSTANT float table[4] = {1, 2, 3, 4};
HD_DEVICE float helper(float x) { return x + table[(int)x & 3]; }
HD_KERNEL(one, HD_INOUT(float, y))
{
    HD_SHARED float tile[32];
    HD_DYNAMIC_SHARED(float, extra);
    tile[hd_thread_x()] = extra[0] = y[0];
    hd_barrier();
    y[0] = helper(shared_twice(tile[0]));
}
END
sed 's/(one/(two/; s/1, 2, 3, 4/5, 6, 7, 8/; s/HD_DYNAMIC_SHARED(float/HD_DYNAMIC_SHARED(double/' one.c >two.c

expect 0 "" "$heddle" cc --no-gpu one.c two.c
[ -s one.hdk ] && [ ! -e two.hdk ] || fail "two sources did not make one.hdk alone"
sed 's/twice/thrice/' one.c >three.c
printf '\n\n#include "shared.h"\nHD_KERNEL(one, HD_INOUT(float, y)) { y[0] = 1; }\n' >again.c
expect 1 "heddle cc: again.c:4: kernel one is defined at one.c:4, too" "$heddle" cc --no-gpu -o again.hdk one.c again.c
lines 1
expect 1 "No such file" "$heddle" cc --no-gpu one.c missing.c
[ ! -e again.hdk ] || fail "two kernels of one name made a file"
expect 2 "each source of CUDA C++" "$heddle" cc one.c two.cu
expect 2 "each source of CUDA C++" "$heddle" cc one.cu two.cu
expect 2 "--no-gpu is not for CUDA C++" "$heddle" cc --no-gpu one.cu
expect 2 "unknown option '-static'" "$heddle" cc -static one.c
expect 2 "it becomes a name in C" "$heddle" cc --embed 1a one.c
for word in int class new _Bool; do
    [ $word = _Bool ] || expect 2 "that is a word of C or C++" "$heddle" cc --no-gpu --embed $word one.c
    [ ! -e $word.c ] || fail "a file has the name of the word $word"
done

# Variables that programs reach: each name once in all sources, and the same in both parts.
cat >variable.c <<'END'
#include <heddle/kernel.h>
struct pair { double a; char b; };
HD_GLOBAL_CONSTANT float coefficients[3][5] = {{1, 2}};
HD_GLOBAL uint32_t hits;
HD_GLOBAL struct pair odd;
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = coefficients[hd_thread_x() % 3][1] + odd.b; hd_atomic_add_u32(&hits, 1); }
END
printf '#include <heddle/kernel.h>\nHD_GLOBAL uint32_t hits;\nHD_KERNEL(l, HD_INOUT(float, y)) { y[0] = hits; }\n' >hits.c
sed 's/hits/misses/' hits.c >misses.c
expect 0 "" "$heddle" cc --no-gpu -Wall -Wextra -Werror variable.c misses.c
expect 1 "hits" "$heddle" cc --no-gpu variable.c hits.c

# both FILE: both parts contain the same variables, including a variable of a second source
both() {
    grep -q '^\.visible \.const .* coefficients\[60\]' "$1" && grep -q '^\.visible \.global .* odd\[16\]' "$1" &&
        grep -q '^\.visible \.global .* hits;' "$1" && grep -q '^\.visible \.global .* misses;' "$1" ||
        fail "$1 has not all variables: $(grep -e '\.global \.' -e '\.const \.' "$1")"
}

# Each compiler warns once.
printf '#include <heddle/kernel.h>\nHD_KERNEL(k, HD_OUT(int, y)) { int unused; y[0] = 1; }\n' >warned.c
expect 0 "warned.c:2:" "$heddle" cc --no-gpu -Wall warned.c
expect 1 "warned.c:2:" "$heddle" cc --no-gpu -Wall -Werror warned.c

# The headers cause no warnings, even with all warnings on.
cat >clean.c <<'END'
#include <heddle/kernel.h>
HD_SHARED float tile[4];
HD_KERNEL_BOUNDS(clean, 64, HD_INOUT(float, y), HD_IN(hd_f16, x), HD_VALUE(int, n))
{
    HD_DYNAMIC_SHARED(float, extra);
    tile[0] = extra[0] = hd_f16_to_f32(x[0]) + expf(y[1]);
    hd_barrier();
    if (hd_warp_any(n)) {
        hd_assert(n > 0);
    }
    hd_atomic_max_f32(y, hd_block_reduce_add_f32(hd_warp_shuffle_down_f32(tile[0], 1)));
}
END
for parts in --no-gpu --no-cpu; do
    "$heddle" cc $parts clean.c 2>/dev/null || [ $parts = --no-cpu ] || fail "clean.c does not compile"
    [ $parts = --no-gpu ] || [ -e clean.hdk ] || continue # no compiler for GPUs is installed, or no library
    expect 0 "" "$heddle" cc $parts -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wdouble-promotion -Wshadow \
        -Wcast-qual -Wmissing-prototypes -Wundef clean.c
    grep -v 'note: the GPU' err >rest && fail "warnings of the headers: $(cat rest)"
    rm clean.hdk
done

# Libraries and linker options concern the CPU. A symbol that no library defines is refused.
printf 'int seven(void) { return 7; }\n' >seven.c
${CC:-cc} -shared -fPIC -o libseven.so seven.c
printf '#include <heddle/kernel.h>\nint seven(void);\nHD_KERNEL(k, HD_OUT(int, y)) { y[0] = seven(); }\n' >use.c
expect 1 "seven" "$heddle" cc --no-gpu use.c
expect 1 "libseven.so: cannot open shared object file" "$heddle" cc --no-gpu use.c -L . -lseven
lines 1
expect 0 "" "$heddle" cc --no-gpu use.c -L. -l seven -Wl,-rpath,"$work"
expect 1 "cannot find -lnowhere" "$heddle" cc --no-gpu use.c -lnowhere
expect 0 "-std=c17" "$heddle" cc --no-gpu --verbose -std=c17 one.c

# Texture references, which nvcc supports up to CUDA 11, stay unbound. This nvcc makes one from
# every source.
cat >old_nvcc <<END
#!/bin/sh
[ "\$1" != --list-gpu-arch ] || exec echo compute_75
while [ \$# -gt 1 ]; do
    [ "\$1" != -o ] || cp "$source/tests/kernel/images/texture.ptx" "\$2"
    shift
done
END
chmod +x old_nvcc
echo 'texture<float, 1> picture; __global__ void sample(float *y) { *y = tex1Dfetch(picture, 0); }' >old.cu
NVCC=$work/old_nvcc
export NVCC
expect 1 "heddle cc: old.cu: the texture or surface reference 'picture' stays unbound" "$heddle" cc old.cu
[ ! -e old.fatbin ] || fail "a texture reference is in a fatbin"
unset NVCC

# C source with the file, and a rule for make.
expect 0 "" "$heddle" cc --no-gpu --embed kernels --depfile rule one.c two.c
expect 0 "" "$heddle" cc --no-gpu -o plain.hdk one.c two.c
printf '#include "kernels.h"\n#include <stdio.h>\nint main(void) { return fwrite(kernels, 1, kernels_size, stdout) != kernels_size; }\n' >main.c
for language in c c++; do
    if [ $language = c ] || installed c++; then
        $([ $language = c ] && echo "${CC:-cc}" || echo c++) -Wall -Wextra -Werror -pedantic -x $language -o main main.c kernels.c && ./main >embedded.hdk
        cmp -s plain.hdk embedded.hdk || fail "the embedded file, as $language, is another one"
    fi
done
printf 'all: kernels.c\n\t@:\ninclude rule\nkernels.c: ; @echo made\n' >Makefile
[ "$(make -s)" = "" ] || fail "make makes what is there: $(make -s)"
touch shared.h # the test may take longer than that minute
touch -d '-1 minute' kernels.c kernels.h
[ "$(make -s)" = made ] || fail "a changed header makes nothing: $(cat rule)"
rm shared.h
make -s >/dev/null 2>err || fail "a header that is gone stops make: $(cat err)"
printf '#include <heddle/kernel.h>\nHD_DEVICE float shared_twice(float x) { return 2 * x; }\n' >shared.h
mkdir "a folder"
expect 0 "" "$heddle" cc --no-gpu --depfile rule -o "a folder/k.hdk" one.c
grep -q '^a\\ folder/k.hdk:' rule || fail "a blank in a name: $(cat rule)"

# Mathematics that only a library for GPUs provides, in each source and in helpers of the same name.
for name in one two; do
    sed "s/(one/($name/" >math_$name.c <<'END'
#include "shared.h"
#include <math.h>
HD_DEVICE float helper(float x) { return erff(shared_twice(x)); }
HD_KERNEL(one, HD_INOUT(float, y)) { y[0] = helper(y[0]) + expf(y[1]) + sinf(y[2]); }
END
done

# assembles FILE: the PTX assembles, and contains both kernels
assembles() {
    grep -q '\.entry one(' "$1" && grep -q '\.entry two(' "$1" || fail "$1 has not both kernels"
    ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null) || {
        without ptxas
        return 0
    }
    "$ptxas" -arch=sm_80 -o cubin "$1" >err 2>&1 || fail "$1 does not assemble: $(cat err)"
}

# names_its_lines PTX: each kernel's lines name its own source and the shared header; each file and
# each label is declared once
names_its_lines() {
    awk '
        $1 == ".file" { gsub(".*/|\"", "", $3); twice = twice || ($2 in name); name[$2] = $3 }
        /^\$L__info_string.*:/ { sub(":.*", ""); twice = twice || ($0 in string); string[$0] = 1 }
        $2 == ".entry" { sub("\\(", "", $3); kernel = $3 }
        $1 == ".loc" { used[kernel, $2] = 1; lines[kernel]++ }
        match($0, "inlined_at [0-9]+") { used[kernel, substr($0, RSTART + 11, RLENGTH - 11)] = 1 }
        match($0, "function_name [^ ,]+") { refers[substr($0, RSTART + 14, RLENGTH - 14)] = 1 }
        END {
            for (pair in used) {
                split(pair, part, SUBSEP)
                good[part[1]] += name[part[2]] == part[1] ".c"
                if (name[part[2]] != part[1] ".c" && name[part[2]] != "shared.h") { print part[1] ": " name[part[2]]; wrong = 1 }
            }
            for (label in refers) { if (!(label in string)) { print label " is missing"; wrong = 1 } }
            exit wrong || twice || good["one"] != 1 || good["two"] != 1 || lines["one"] < 3 || lines["two"] < 3
        }' "$1" >out || fail "$1 has wrong lines: $(cat out "$1")"
}

if "$heddle" cc one.c 2>err; then
    expect 0 "" "$heddle" cc -g --emit-ptx clang.ptx one.c two.c
    assembles clang.ptx
    expect 0 "" "$heddle" cc -Wall --emit-ptx both.ptx variable.c misses.c
    both both.ptx
    sed 's/struct pair odd/struct { double a; char b; } odd/' variable.c >unnamed.c
    expect 1 "the PTX has no variable odd; its type needs a name" "$heddle" cc unnamed.c
    grep -q '^[[:space:]]*\.loc' clang.ptx || fail "-g puts no lines into PTX"
    grep -q '^\.target.*debug' clang.ptx && fail "-g makes code for a debugger"
    expect 1 "one" "$heddle" cc --no-cpu -o again.hdk one.c again.c
    [ ! -e again.hdk ] || fail "two kernels of one name made a file without code for the CPU"
    expect 0 "" "$heddle" cc -Wall warned.c
    [ "$(grep -c 'warning.*unused' err)" -le 2 ] || fail "a compiler warned twice: $(cat err)"
    printf '#include <heddle/kernel.h>\nHD_KERNEL(big, HD_INOUT(float, y)) { HD_SHARED float t[12289]; t[hd_thread_x()] = y[0]; hd_barrier(); y[0] = t[1]; }\n' >big.c
    expect 1 "heddle cc: big.c:2: kernel big has 49156 bytes of shared memory" "$heddle" cc big.c
    lines 1
    # a variable of another file; the part for the CPU comes from another source, so it does not
    # matter there
    printf '#include <heddle/kernel.h>\n#if HD_KERNEL_GPU\nextern __attribute__((device)) int outside;\n#else\n#define outside 1\n#endif\n' >extern.c
    printf 'HD_KERNEL(k, HD_OUT(int, y)) { y[0] = outside; }\n' >>extern.c
    expect 1 "the variable 'outside' is not defined" "$heddle" cc extern.c
    expect 1 "heddle cc: math_one.c:3: 'erff' is in a library for GPUs" "$heddle" cc --math none math_one.c math_two.c
    [ ! -e math_one.hdk ] || fail "a file without its library was written"
    if "$heddle" cc -o math.hdk math_one.c 2>err; then
        expect 0 "" "$heddle" cc -g -Wall -Werror --emit-ptx math.ptx --embed math --depfile rule math_one.c math_two.c
        lines 0
        assembles math.ptx
        grep -q '\.extern \.func' math.ptx && fail "with several sources something is missing: $(grep '\.extern \.func' math.ptx)"
        [ -s math.c ] && [ -s math.h ] || fail "mathematics are not embedded"
        for file in math_one.c math_two.c shared.h kernel_math.h; do
            grep -q "$file" rule || fail "the rule has no $file: $(cat rule)"
        done
        expect 0 "" "$heddle" cc --emit-ptx math.ptx one.c math_two.c # here the first source calls no library
        assembles math.ptx
        expect 0 "" "$heddle" cc --emit-ptx math.ptx math_one.c two.c # and here the last source calls none
        assembles math.ptx
        printf '#include <heddle/kernel.h>\nHD_KERNEL(k, HD_OUT(float, y)) { int unused; y[0] = erff(1); }\n' >warned_math.c
        expect 0 "" "$heddle" cc --no-cpu -Wall warned_math.c # the C compiler compiles the descriptions
        [ "$(grep -c 'warning.*unused' err)" -le 2 ] || fail "a compiler warned twice: $(cat err)"
    else
        grep -q "is in a library for GPUs" err || fail "mathematics do not compile: $(cat err)"
        without "libclc: mathematics of several sources"
    fi
else
    without "clang: $(head -n 1 err)"
fi

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ] && "$nvcc" --list-gpu-arch >/dev/null 2>&1; then
    NVCC=$nvcc
    export NVCC
    expect 0 "" "$heddle" cc --emit-ptx nvcc.ptx one.c two.c
    assembles nvcc.ptx
    expect 0 "" "$heddle" cc --emit-ptx both.ptx variable.c misses.c
    both both.ptx
    expect 0 "" "$heddle" cc -g --emit-ptx lines.ptx one.c two.c
    assembles lines.ptx
    names_its_lines lines.ptx
    expect 0 "" "$heddle" cc --math none --emit-ptx nvcc.ptx --embed math --depfile rule math_one.c math_two.c # nvcc uses its own library
    assembles nvcc.ptx
    grep -q 'shared.h' rule || fail "the rule has no header: $(cat rule)"
    expect 1 "the oldest that it has is sm_" "$heddle" cc --gpu-arch sm_35 one.c
    printf '#include <heddle/kernel.h>\nstatic float helper(float x) { return x; }\nHD_KERNEL(k, HD_INOUT(float, y)) { y[0] = helper(y[0]); }\n' >mistake.c
    expect 1 "helper" "$heddle" cc mistake.c
    printf '#define FACTOR 2\n' >factor.h
    printf '#include "factor.h"\nextern "C" __global__ void k(float *y) { *y *= FACTOR; }\n' >k.cu
    expect 0 "" "$heddle" cc --depfile rule k.cu
    [ "$(od -An -N4 -tx1 k.fatbin | tr -d ' ')" = 50ed55ba ] || fail "k.fatbin is no fatbin"
    grep -q 'factor.h' rule || fail "the rule for k.fatbin has no header: $(cat rule)"
    # a file named .cuh is CUDA C++, too
    printf '#include <cstddef>\ntemplate <class T> __global__ void scale(T *y, T a, size_t n) { if (threadIdx.x < n) y[threadIdx.x] *= a; }\n' >scale.cuh
    printf 'template __global__ void scale<float>(float *, float, size_t);\n' >>scale.cuh
    expect 0 "" "$heddle" cc --gpu-arch sm_80 scale.cuh
    [ "$(od -An -N4 -tx1 scale.fatbin | tr -d ' ')" = 50ed55ba ] || fail "scale.fatbin is no fatbin"
    # `heddle cc` compiles it like nvcc -fatbin, not as relocatable code: there, headers such as
    # CUB's would launch kernels
    printf '#ifdef __CUDACC_RDC__\n#error relocatable\n#endif\n__global__ void k(int *y) { *y = 1; }\n' >whole.cu
    expect 0 "" "$heddle" cc --gpu-arch sm_80 whole.cu
    printf '__global__ void child(int *y) { *y += 1; }\n__global__ void parent(int *y) { child<<<1, 1>>>(y); }\n' >launches.cu
    expect 1 "note: if a kernel launches kernels, compile the source with nvcc -rdc=true -dc; hd_module_link links" \
        "$heddle" cc --gpu-arch sm_80 launches.cu
    if "$nvcc" --version | grep -qE 'release (1[2-9]|[2-9][0-9])'; then # older versions support texture references
        printf 'texture<float, 1, cudaReadModeElementType> picture;\n__global__ void k(float *y) { *y = tex1Dfetch(picture, 0); }\n' >texture.cu
        expect 1 "note: CUDA 12 removed texture and surface references; pass a texture or surface object, or a buffer" \
            "$heddle" cc --gpu-arch sm_80 texture.cu
    fi
    printf 'int none() { return 1; }\n' >none.cu
    expect 1 "none.cu: there is no kernel" "$heddle" cc none.cu
    printf '__global__ void k(int *y) { *y = 1 }\n' >wrong.cu
    expect 1 "wrong.cu(1): error" "$heddle" cc wrong.cu
    # without clang, `heddle cc` finds nvcc by itself; here PATH contains only the programs that
    # compilers need
    mkdir bin
    for program in cc gcc ld as; do
        [ ! -x "$(command -v $program)" ] || ln -s "$(command -v $program)" bin/$program
    done
    expect 0 "note: the GPU's part runs on sm_" env -u NVCC -u CC PATH="$work/bin" CUDA_HOME="${nvcc%/bin/nvcc}" "$heddle" cc one.c
else
    without nvcc
fi
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
    mkdir cc_only
    for program in cc gcc ld as; do
        [ ! -x "$(command -v $program)" ] || ln -s "$(command -v $program)" cc_only/$program
    done
    expect 1 "found no clang that compiles for NVIDIA GPUs, and no nvcc" env -u NVCC -u CC -u CUDA_HOME -u CUDA_PATH PATH="$work/cc_only" "$heddle" cc one.c
fi
[ "$failures" -eq 0 ]
