#!/bin/sh
# test_language.sh - kernel source is C for the CPU and C++ for a GPU: source that both accept
# computes the same values in both.
#
# For each `same`, gcc and clang compile the source for the CPU, and a host device runs it. For
# GPUs, clang and nvcc compile it, and the values are the constants that the PTX stores. All
# warnings are errors. Each `refused` gets one line of error with every compiler. Random expressions
# of all integer types are compared in the same way.
#
# Checks that need clang for GPUs or nvcc run if these are installed.
#
# Promise: Kernel source computes the same on the CPU and on a GPU, or `heddle cc` refuses it and names the place.
# Tier: full.
set -u
source=$1
build=$2
heddle=$build/heddle
[ -x "$heddle" ] || {
    echo "skipped: $heddle is not built"
    exit 77
}
. "$source/tests/kernel/cc_support.sh"
unset NVCC CLANG CC
compilers=$(for compiler in gcc clang; do command -v $compiler; done)
[ -n "$compilers" ] || compilers=cc
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)

# Prints the constants that each kernel stores: KERNEL INDEX VALUE. A value that is no constant
# appears as its register.
cat >stored.awk <<'AWK'
/\.visible \.entry/ { kernel = $3; sub("\\(.*", "", kernel); split("", value) }
$1 ~ /^mov\./ { to = $2; sub(",", "", to); what = $3; sub(";", "", what); value[to] = what }
$1 ~ /^st\.global\./ {
    split($0, part, /[][,;]+/)
    split(part[2], address, "+")
    from = part[3]
    gsub(/[ \t]/, "", from)
    print kernel, (address[2] + 0) / 8, (from in value ? value[from] : from)
}
AWK

# Prints the differences of two such lists. It skips values that a kernel computes while it runs, as
# nvcc does with some casts.
cat >agree.awk <<'AWK'
FNR == NR { wanted[$1 " " $2] = $3; n++; next }
!($1 " " $2 in wanted) { print "the CPU does not store " $0; wrong = 1; next }
{ of = $1 " " $2; value = wanted[of]; delete wanted[of] }
$3 ~ /^%/ { unknown++; next }
$3 != value { print of ": " value " on the CPU, " $3 " on the GPU"; wrong = 1 }
END {
    for (of in wanted) { print of " is missing"; wrong = 1 }
    if (n == 0 || unknown > n / 5) { print unknown " of " n " values are not known"; wrong = 1 }
    exit wrong
}
AWK

# Prints the values that each kernel computes on a host device: KERNEL INDEX VALUE, without the
# zeros behind the last stored value.
cat >run.c <<'RUN'
#include <heddle.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { MOST = 64 };
static void check(hd_status status)
{
    if (status != HD_OK) {
        printf("%s\n", hd_message());
        exit(1);
    }
}
int main(int argc, char **argv)
{
    static int64_t nothing[MOST], y[MOST];
    hd_options options = {sizeof options, "driver=host placement=inline"};
    hd_runtime *runtime;
    hd_lane *lane;
    hd_module *module;
    hd_buffer *buffer;
    check(hd_open(&options, &runtime));
    check(hd_lane_get_default(runtime, 0, &lane));
    check(hd_module_load_file(runtime, argv[1], &module));
    check(hd_alloc(lane, sizeof y, &buffer));
    memset(nothing, 0x5a, sizeof nothing);
    for (int i = 2; i < argc; i++) {
        hd_kernel *kernel;
        hd_arg argument = hd_out(buffer);
        hd_dims one = {.x = 1};
        check(hd_kernel_get(module, argv[i], &kernel));
        check(hd_write(buffer, 0, nothing, sizeof nothing));
        check(hd_launch(lane, kernel, one, one, 0, &argument, 1, NULL));
        check(hd_read(buffer, 0, y, sizeof y));
        for (int at = 0; at < MOST; at++) {
            if (y[at] != nothing[0]) {
                printf("%s %d %" PRId64 "\n", argv[i], at, y[at]);
            }
        }
    }
    return hd_close(runtime) != HD_OK;
}
RUN
cc -std=c11 -Wall -Wextra -Werror "-I$source/include" -o run run.c "-L$build" -lheddle "-Wl,-rpath,$build" || exit 1

same_source=same.c
echo '#include <heddle/kernel.h>' >$same_source
kernels=
# same NAME FILE BODY: source that means the same in both languages; the body stores into y[0] and
# so on
same() {
    kernels="$kernels $1"
    printf '%s\nHD_KERNEL(%s, HD_OUT(int64_t, y))\n{\n%s\n}\n' "$2" "$1" "$3" >>$same_source
}

# compare FILE OPTION...: all kernels of the file compute the same values with every compiler
compare() {
    file=$1
    shift
    reference=
    for compiler in $compilers; do
        # shellcheck disable=SC2086
        if CC=$compiler "$heddle" cc --no-gpu "$@" -o cpu.hdk "$file" 2>err; then
            ./run cpu.hdk $kernels >cpu.values || fail "$file by $compiler: $(cat cpu.values)"
            [ -n "$reference" ] || cp cpu.values reference
            reference=reference
            cmp -s reference cpu.values || fail "$file: $compiler has other values: $(diff reference cpu.values)"
        else
            fail "$compiler refuses $file: $(cat err)"
        fi
    done
    [ "$(cut -d ' ' -f 1 reference | sort -u | wc -l)" -eq "$(echo "$kernels" | wc -w)" ] || fail "$file: a kernel stores nothing"
    for gpu in clang nvcc; do
        [ $gpu = clang ] || [ -n "$nvcc" ] || continue
        options=
        [ $gpu = clang ] || options="NVCC=$nvcc"
        # shellcheck disable=SC2086
        if env $options "$heddle" cc --no-cpu "$@" --emit-ptx $gpu.ptx -o gpu.hdk "$file" 2>err; then
            awk -f stored.awk $gpu.ptx >gpu.values
            awk -f agree.awk reference gpu.values >differences || fail "$file: the GPU's part by $gpu: $(cat differences)"
        elif grep -q 'found no clang' err; then
            echo "not tested: the GPU's part ($(head -n 1 err))"
        else
            fail "$gpu refuses $file: $(cat err)"
        fi
    done
}

same integers '' '
    unsigned char c = 200; char d = (char)200; short s = -3; bool b = 5;
    y[0] = c + c; y[1] = (unsigned char)(c + c); y[2] = d; y[3] = s >> 1; y[4] = s / 2; y[5] = s % 2;
    y[6] = b; b = c == 0; y[7] = b; y[8] = !s + !s; y[9] = (c == 200) << 3; y[10] = -(c == 200);
    y[11] = 7 / -2; y[12] = (uint32_t)-1 > 0; y[13] = (int)-2.7; y[14] = (int)2.5f; y[15] = d < 0;
    y[16] = 0xffffffff + 0l; y[17] = 2147483648; y[18] = 5u - 6 > 0; y[19] = 010; y[20] = ~0; y[21] = (_Bool)7;'
same characters '' "
    y[0] = '\\xff'; y[1] = 'a' + 1; y[2] = L'\\xff'; y[3] = sizeof(\"abc\"); y[4] = \"\\xe9\"[0] < 0; y[5] = sizeof(L\"abc\");
    y[6] = sizeof(char); y[7] = sizeof('a' + 0); y[8] = sizeof((1 < 2) + 0); y[9] = sizeof(y['a' == 'b']); y[10] = sizeof(wchar_t);"
same numbers '' '
    y[0] = (int64_t)(0.1 * 3 * 1e17); y[1] = (int64_t)(0.1f * 3 * 1e10); y[2] = (int64_t)(1e-3f * 1e12); y[3] = 0.1f == 0.1;
    y[4] = sizeof(sqrt(1.0f)); y[5] = sizeof(fabs(1.0f)); y[6] = sizeof(sqrtf(1.0f)); y[7] = sizeof(pow(2, 3)); y[8] = sizeof(NAN);'
same sizes '#include <float.h>
#include <limits.h>' '
    y[0] = sizeof(int8_t) + sizeof(int_least16_t); y[1] = sizeof(int_fast8_t); y[2] = sizeof(intmax_t); y[3] = sizeof(size_t);
    y[4] = sizeof(ptrdiff_t); y[5] = sizeof(bool); y[6] = sizeof(long); y[7] = CHAR_MIN; y[8] = INT_MAX; y[9] = FLT_MANT_DIG;
    y[10] = DBL_MAX_EXP; y[11] = SIZE_MAX > UINT32_MAX; y[12] = sizeof(NULL); y[13] = sizeof(hd_f16);'
same layout '#pragma pack(push, 2)
struct two { char c; int i; };
#pragma pack(pop)
struct mixed { char c; double d; bool b; void *p; short s; };
struct wide { char c; __int128 i; };
struct packed { char c; int i; } __attribute__((packed));
struct aligned { char c; short s __attribute__((aligned(8))); };
struct fields { char c; _Bool b : 1; int : 0; long l : 5; unsigned u : 32; uint64_t w : 32; };
union either { float f; uint32_t u; char c[5]; };
struct tail { int n; float x[]; };' '
    y[0] = sizeof(struct two); y[1] = sizeof(struct mixed); y[2] = sizeof(struct wide); y[3] = sizeof(struct packed);
    y[4] = sizeof(struct aligned); y[5] = sizeof(struct fields); y[6] = sizeof(union either); y[7] = sizeof(struct tail);
    y[8] = offsetof(struct mixed, p); y[9] = offsetof(struct aligned, s); y[10] = __alignof__(double);
    union either u; u.f = 1; y[11] = u.u;'
same fields 'struct bits { int a : 3; unsigned b : 5; unsigned c : 32; uint64_t d : 32; uint64_t e : 31; int64_t f : 32; };' '
    struct bits s = {3, 31, 0, 0xffffffffu, 0, 0};
    s.b = (unsigned)(s.b + 1) & 31; y[0] = s.a; y[1] = s.b; y[2] = s.b - 1 < 0; y[3] = s.c - 1 < 1; y[4] = s.d << 4;
    y[5] = s.e - 1 < 0; y[6] = s.f - 1 < 0; y[7] = s.d - 1 + 2;'
same objects 'struct point { int a, b; };
HD_DEVICE int sum(struct point p) { return p.a + p.b; }
HD_DEVICE int sum_at(const struct point *p) { return p->a + p->b; }' '
    struct point p = {.a = 3, .b = 4}, none = {}, last = {.b = 1};
    static const int table[2] = {3, 4};
    y[0] = sum((struct point){1, 2}); y[1] = sum_at(&p); y[2] = ((int[3]){1, 2, 3})[1]; y[3] = none.b; y[4] = last.a + last.b;
    y[5] = ({ int q = 3; q + 1; }); y[6] = p.a ?: 9; y[7] = table[1]; y[8] = sizeof(struct point); y[9] = sizeof(p);'
same enums 'enum color { RED, GREEN, BLUE };
enum sign { MINUS = -1, PLUS = 1 };
typedef enum { SLOW, FAST } speed;
struct has { enum color color; speed speed; };' '
    enum color c = BLUE; enum sign s = MINUS; struct has h = {GREEN, FAST}; enum color all[2] = {RED, BLUE};
    y[0] = c == BLUE; y[1] = (int)c - 3; y[2] = s - 1 < 0; y[3] = c > RED; y[4] = h.color; y[5] = (int)h.speed - 2;
    y[6] = RED - 1 < 0; y[7] = sizeof(enum color); y[8] = sizeof c; y[9] = c | 4; y[10] = all[1]; y[11] = (h.color == GREEN) - 1;
    switch (c) { case RED: y[12] = 1; break; case BLUE: y[12] = 2; break; default: y[12] = 3; }'
same control '' '
    int n = 0;
    for (int i = 0; i < 5; i++) { switch (i) { case 0: case 1: case 2: n += 1; break; default: n += 10; } }
    y[0] = n; y[1] = n > 3 ? 1 : -1; y[2] = (n, 4);
    do { n--; } while (n > 7);
    y[3] = n;
    goto end;
end:
    y[4] = 5;'
sed -i 's/y\[2\] = (n, 4);/y[2] = 4;/' $same_source # a comma without effect causes a warning

printf '#if true\n#define HOLDS 1\n#else\n#define HOLDS 0\n#endif\n#include <heddle/kernel.h>\nHD_KERNEL(first, HD_OUT(int64_t, y)) { y[0] = HOLDS; }\n' >first.c
compare same.c -Wall -Wextra -Werror
all=$kernels
kernels=first
compare first.c -Wall -Wextra -Werror

# Random expressions without undefined behaviour: shifts are short, and divisors are not 0.
cat >random.awk <<'AWK'
function pick(n) { seed = (seed * 1103515245 + 12345) % 2147483648; return int(seed / 65536) % n }
function number() {
    split("0 1 2 3 7 -1 -5 100 127 -128 'a' 0x40 1u 5u 9l 3ul true false 2.5f 0.75", words, " ")
    return words[1 + pick(20)]
}
function term() {
    split("c s b u h p.f p.g v i l (int)e (unsigned)e", names, " ")
    return pick(2) ? names[1 + pick(12)] : "(" number() ")"
}
function whole(x) { return "(int)(" x ")" }
function expression(depth,    a, b, how) {
    if (depth == 0) { return term() }
    a = expression(depth - 1); b = expression(depth - 1); how = pick(14)
    if (how == 0) { return "(" a " + " b ")" }
    if (how == 1) { return "(" a " - " b ")" }
    if (how == 2) { return "(" whole(a) " % 1000 * (" whole(b) " % 1000))" }
    if (how == 3) { return "(" whole(a) " / " (1 + pick(9)) ")" }
    if (how == 4) { return "(" whole(a) " % " (1 + pick(9)) ")" }
    if (how == 5) { return "(" a " < " b ")" }
    if (how == 6) { return "(" a " == " b ")" }
    if (how == 7) { return "(" a " ? " b " : " expression(depth - 1) ")" }
    if (how == 8) { return "(" whole(a) " & " whole(b) ")" }
    if (how == 9) { return "(" whole(a) " >> " pick(8) ")" }
    if (how == 10) { return "(" whole(a) " ^ " whole(b) ")" }
    if (how == 11) { return "(!" a ")" }
    if (how == 12) { split("unsigned@char short bool signed@char uint16_t float int64_t", to, " "); cast = to[1 + pick(7)]; gsub("@", " ", cast)
        return "((" cast ")" (cast == "float" || cast == "int64_t" ? a : cast == "bool" ? a : whole(a)) ")" }
    return "(~" whole(a) ")"
}
BEGIN {
    print "#include <heddle/kernel.h>\nenum e { A, B, C };\nstruct fields { int f : 5; unsigned g : 7; };"
    for (k = 0; k < 40; k++) {
        printf "HD_KERNEL(k%d, HD_OUT(int64_t, y))\n{\n", k
        printf "    char c = %d; short s = %d; bool b = %d; unsigned char u = %d; unsigned short h = %d; struct fields p = {%d, %d};\n", \
            pick(256) - 128, pick(65536) - 32768, pick(2), pick(256), pick(65536), pick(32) - 16, pick(128)
        printf "    unsigned v = %d; int i = %d; int64_t l = %d; enum e e = %s;\n", pick(30000), pick(60000) - 30000, pick(60000) - 30000, pick(2) ? "B" : "C"
        print "    (void)c; (void)s; (void)b; (void)u; (void)h; (void)p; (void)v; (void)i; (void)l; (void)e;"
        for (n = 0; n < 8; n++) { printf "    y[%d] = (int64_t)(%s);\n", n, expression(1 + pick(3)) }
        print "}"
    }
}
AWK
for seed in 1 2; do
    awk -v seed=$seed -f random.awk </dev/null | sed "s/HD_KERNEL(k\([0-9]*\)/HD_KERNEL(r${seed}_\1/" >random.c
    kernels=$(seq -f "r${seed}_%g" -s ' ' 0 39)
    compare random.c
done
kernels=$all

# refused TEXT FILE BODY: `heddle cc` must print one line with TEXT. It names line 3, the body; or
# line 2, the file's text, if TEXT begins with "2:"
refused() {
    message=$1
    place=3
    case $1 in 2:*) place=2 message=${1#2:} ;; esac
    printf '#include <heddle/kernel.h>\n%s\nHD_KERNEL(k, HD_OUT(int64_t, y)) { %s }\n' "$2" "$3" >refused.c
    for compiler in $compilers; do
        CC=$compiler
        export CC
        expect 1 "heddle cc: refused.c:$place: $message" "$heddle" cc --no-gpu refused.c
        [ "$(wc -l <err)" -eq 1 ] || fail "$compiler: more than a line for '$3': $(cat err)"
        [ ! -e refused.hdk ] || fail "there is a result of '$3'"
    done
    unset CC
}
# refused_by_compiler WORD OUTSIDE BODY: each C compiler must refuse it with a message that contains
# the word
refused_by_compiler() {
    printf '#include <heddle/kernel.h>\n%s\nHD_KERNEL(k, HD_OUT(int64_t, y)) { %s }\n' "$2" "$3" >refused.c
    for compiler in $compilers; do
        CC=$compiler
        export CC
        expect 1 "$1" "$heddle" cc --no-gpu refused.c
        [ ! -e refused.hdk ] || fail "there is a result of '$3'"
    done
    unset CC
}
refused_by_compiler half '' 'auto half = 2.5f; y[0] = (int64_t)(half * 2);'
refused_by_compiler half '' 'static const half = 2; y[0] = half;'
refused_by_compiler half 'HD_CONSTANT half = 2;' 'y[0] = half;'
operand='the operand of'
for type in "sizeof('a')" "sizeof 'a'" 'sizeof(1 == 1)' 'sizeof(!y[0])' 'sizeof(y[0] && y[1])' 'sizeof(true)' 'sizeof(((1 < 2)))' \
    'sizeof(y[0] ? y : y)' '__alignof__(1 < 2)'; do
    refused "$operand" '' "y[0] = $type;"
done
refused "$operand __typeof__" '' '__typeof__(1 < 2) x = 5; y[0] = x;'
refused "$operand __typeof__" '' "__typeof__('a') x = 300; y[0] = x;"
refused "$operand _Generic" '' "y[0] = _Generic('a', int: 1, char: 2);"
refused "$operand _Generic is an enum" 'enum e { A };' 'y[0] = _Generic(A, int: 1, default: 2);'
refused "$operand __typeof__ is an enum" 'enum e { A };' 'enum e v = A; __typeof__(v) w = v; y[0] = w;'
printf '#define SIZE sizeof(1 < 2)\n' >size.h
refused "$operand sizeof" '#include "size.h"' 'y[0] = SIZE;'
for sum in 'v - 1' '1 - v' '-v' '~v' 'v * y[1]' '(y[1] + v)' 'v / -1' 'v % 3' 'p->v - 1' 's.v - 1' 'all[1] - 1' 'f(1) - 1' 'w - 1' '(enum e)v - 1' '(other)1 - v' 'v < y[1]' 'y[1] >= v'; do
    name=${sum##*[-+~*.> (]}
    refused "'" 'enum e { A, B }; typedef enum { C } other; struct s { enum e v; }; HD_DEVICE enum e f(int x) { return x ? A : B; }' \
        "enum e v = A, all[2] = {A, B}; other w = C; struct s s = {B}, *p = &s; (void)v; (void)all; (void)w; (void)s; (void)p; (void)f; y[0] = $sum;"
    grep -q 'has the type of an enum, which is unsigned in C' err || fail "$sum ($name): $(cat err)"
done
refused "2:an enumerator that does not fit an int" 'enum e { A = 0x80000000u, B = 1 };' 'y[0] = B - 2 < 0;'
refused "2:an enumerator that does not fit an int" 'enum e { A = 1ll << 40, B = 1 };' 'y[0] = sizeof(B);'
refused "'N' belongs to the structure in C++" 'enum { N = 1 };' 'struct s { enum { N = 2 } e; }; y[0] = N;'
refused "'x' is the structure in C++" 'HD_CONSTANT char x[99] = {1};' 'struct x { int a; }; y[0] = sizeof(x);'
refused '2:an empty structure' 'struct s { int a; struct { } e; int b; };' 'y[0] = sizeof(struct s);'
refused '2:an empty structure' 'struct s { };' 'y[0] = sizeof(struct s);'
refused '2:gcc calculates with a bit field of 40 bits' 'struct s { uint64_t b : 40; };' 'struct s s = {1}; y[0] = (int64_t)(s.b << 39);'
long='a long double has 16 bytes for the CPU and 8 for a GPU'
refused "$long" '' 'long double x = 0.1; y[0] = (int64_t)(x * 1e18);'
refused "$long" '' 'y[0] = (int64_t)(0.1L * 1e18);'
refused "$long" '' 'y[0] = (int64_t)__builtin_sqrtl(2);'
refused "2:$long" 'struct s { int a; long double v; int b; };' 'y[0] = sizeof(struct s);'
refused "2:$long" 'HD_DEVICE double twice(double long const x) { return (double)(x + x); }' 'y[0] = (int64_t)twice(2);'
refused "$long" '#include <float.h>' 'y[0] = LDBL_MANT_DIG;'
refused_by_compiler 'kernel l: z: the type is long double' 'HD_KERNEL(l, HD_INOUT(long double, z)) { z[0] = 1; }' 'y[0] = 1;'
refused_by_compiler 'kernel l: z: the type is long double' 'HD_KERNEL(l, HD_OUT(float, w), HD_VALUE(long double, z)) { w[0] = (float)z; }' 'y[0] = 1;'
for type in int_fast16_t uint_fast32_t max_align_t; do
    refused "'$type' has another size" '' "y[0] = sizeof($type);"
done
refused "'INT_FAST32_MAX' has another size" '' 'y[0] = INT_FAST32_MAX > INT32_MAX;'
refused "'__BIGGEST_ALIGNMENT__' is another number" '' 'y[0] = __BIGGEST_ALIGNMENT__;'
refused "2:'aligned' without a number" 'struct s { char c; int x __attribute__((aligned)); };' 'y[0] = sizeof(struct s);'
refused "'__PRETTY_FUNCTION__' is another text" '' 'y[0] = __PRETTY_FUNCTION__[0];'
refused "in a kernel '__func__' is another text" '' 'y[0] = sizeof(__func__);'
refused "a ' behind the number 1 belongs to it in C++" '#define M(x, ...) __VA_ARGS__' "int x[2] = {M(1'2,3'4, 5)}; y[0] = x[0];"
refused_by_compiler trigraph '' 'y[0] = sizeof("??=");'
refused_by_compiler non-void 'HD_DEVICE int f(int x) { if (x) return 1; }' 'f(0); y[0] = 7;'
refused_by_compiler refused.c:3 '' 'int i = 0; i = i++ + 1; y[0] = i;'
unnamed='an object without a name lives as long as its block in C'
refused "$unnamed" '' 'int *p = (int[2]){1, 2}; y[0] = p[1];'
refused "$unnamed" 'struct s { int a; };' 'struct s *p = &(struct s){1}; y[0] = p->a;'
refused 'nvcc takes the first number alone' '' 'switch (sizeof(y)) { case 0 ... 9: y[0] = 1; break; default: y[0] = 2; }'
refused 'a static variable of a kernel' '' 'static int calls = 3; calls++; y[0] = calls;'

# Options that change only one of the two languages.
for option in -funsigned-char -fshort-enums -fpack-struct -fsingle-precision-constant -m32 -mms-bitfields -std=c89 -std=gnu90; do
    expect 2 "$option is for the CPU's part alone" "$heddle" cc $option --no-gpu same.c
done
[ "$failures" -eq 0 ]
