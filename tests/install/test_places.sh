#!/usr/bin/env bash
# test_places.sh - the library and the tool find their own programs and files in their installation:
# in any prefix, after a move of the installation, and from programs with the static library. They
# never look in a place that somebody else can choose.
#
# Promise: Library and tool find their programs in the installation, also after a move, and nowhere untrusted.
set -eu
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
unset HEDDLE_WORKER HEDDLE_PROBE HEDDLE_INCLUDE_DIR
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
failed=0
programs=libexec/heddle-$("$build/heddle" --version | cut -d" " -f2)

fail() {
    echo "FAILED: $*"
    failed=1
}

# This program prints the worker program and the test program that it finds. With two arguments, it
# also uses the test program and a library for products.
cat >places.c <<'C'
#include <heddle.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    hd_runtime *runtime;
    hd_options options = {sizeof options, argc > 1 ? argv[1] : "placement=process"};
    if (hd_open(&options, &runtime) != HD_OK) {
        printf("%s\n", hd_message());
        return 1;
    }
    hd_option_info option = {.size = sizeof option};
    for (int i = 0; hd_option_get_info(runtime, i, &option) == HD_OK; i++) {
        if (strcmp(option.name, "worker") == 0 || strcmp(option.name, "probe") == 0) {
            printf("%s %s\n", option.name, option.value);
        }
    }
    hd_peer_info info = {.size = sizeof info};
    if (argc > 2 && hd_peer_check(runtime, 0, 1, &info) == HD_OK) {
        hd_lane *lane;
        hd_matmul_info library = {.size = sizeof library};
        if (hd_lane_get_default(runtime, 0, &lane) || hd_matmul_get_info(lane, &library)) {
            return 1;
        }
        printf("%s %s\n", hd_peer_verdict_text(info.verdict), info.reason);
    }
    hd_close(runtime);
    return 0;
}
C
# The programs of an intruder.
cat >evil.c <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void act(void)
{
    FILE *file = fopen(getenv("EVIL_OUT"), "a");
    if (file) {
        fputs("something that it should not have\n", file);
        fclose(file);
    }
}
int main(void)
{
    return 1;
}
C
export EVIL_OUT=$work/evil.out
"${CC:-cc}" -o evil evil.c
"${CC:-cc}" -shared -fPIC -o evil.so evil.c

# expect_places WHAT LIBEXEC COMMAND...: the command finds both programs in LIBEXEC, and the test of
# a pair works
expect_places() {
    local what=$1 libexec=$2
    shift 2
    "$@" >out 2>&1 || fail "$what: status $?: $(cat out)"
    printf 'worker %s/heddle-worker\nprobe %s/heddle-probe\n' "$libexec" "$libexec" | cmp -s - out ||
        fail "$what does not use the programs in $libexec: $(cat out)"
    [ ! -e "$EVIL_OUT" ] || fail "$what ran $(cat "$EVIL_OUT")"
    rm -f "$EVIL_OUT"
}

# expect_none WHAT COMMAND...: the command finds no program, reports that, and runs none
expect_none() {
    local what=$1
    shift
    "$@" >out 2>&1 && fail "$what found a program: $(cat out)"
    grep -q 'needs the program heddle-worker (option worker), which is not in /' out || fail "$what does not say it: $(cat out)"
    [ ! -e "$EVIL_OUT" ] || fail "$what ran $(cat "$EVIL_OUT")"
    rm -f "$EVIL_OUT"
}

compile() {
    eval "${CC:-cc} -std=c11 -Wall -Wextra -Werror $*"
}

# ---- an installation in some prefix, and moved ----
cmake --install "$build" --prefix "$work/first" >/dev/null
pc=$(dirname "$(find "$work/first" -name heddle.pc)")
libraries=$(dirname "$pc")
libraries=${libraries#"$work/first/"}
with_library() { # PREFIX OUTPUT KIND
    local flags
    flags=$(PKG_CONFIG_PATH=$1/$libraries/pkgconfig pkg-config --cflags --libs heddle)
    case $3 in
    shared) compile places.c -o "$2" "$flags" ;;
    static) compile places.c -o "$2" "${flags//-lheddle/-l:libheddle.a}" -pthread -ldl ;;
    plain) compile places.c -o "$2" "-I$1/include $1/$libraries/libheddle.a" -pthread -ldl ;;
    esac
}
mkdir programs
for kind in shared static plain; do
    with_library "$work/first" "programs/$kind" $kind
    expect_places "a program ($kind)" "$work/first/$programs" "programs/$kind"
done
mv first second
for kind in shared static; do
    with_library "$work/second" "programs/$kind" $kind
    expect_places "a program ($kind), the installation was moved before it was linked" "$work/second/$programs" "programs/$kind"
done
expect_none "a program that was linked before the installation was moved" programs/plain
mkdir -p second/bin/more && cp programs/plain second/bin/
expect_places "a program in the installation's bin" "$work/second/$programs" second/bin/plain
second/bin/heddle info | grep -q " $work/second/$programs/heddle-probe " || fail "heddle info does not find its programs"
second/bin/heddle p2p --verdicts | grep -qwE 'usable|slow' || fail "heddle p2p does not find its programs"
printf '#include <heddle/kernel.h>\nHD_KERNEL(none, HD_OUT(int, y))\n{\n    y[0] = 1;\n}\n' >none.c
second/bin/heddle cc --no-gpu --verbose none.c 2>&1 | grep -q -- "-I$work/second/" || fail "heddle cc does not find its headers"
DESTDIR=$work/dest cmake --install "$build" --prefix /opt/heddle >/dev/null
[ "$(strings "dest/opt/heddle/$libraries/libheddle.a" | grep -cx "/opt/heddle/$programs")" = 1 ] ||
    fail "the static library of a staged installation does not name /opt/heddle/$programs"
grep -q "$work" "dest/opt/heddle/$libraries/pkgconfig/heddle.pc" && fail "heddle.pc of a staged installation names the stage"
# no installed file looks in the source or build tree
for file in bin/heddle "$programs/heddle-worker" "$programs/heddle-probe" "$libraries/libheddle.so"; do
    objcopy --dump-section ".rodata=rodata" "second/$file" /dev/null
    # the tool contains this path, to know when it runs there
    [ "$file" = bin/heddle ] || ! strings rodata | grep -Fx "$build" || fail "$file names the build tree"
done

# ---- nowhere else ----
# Not in the current folder, even if that contains an entry with the tool's name; not beside the
# name by which the program was called; not above the program.
mkdir -p here/heddle here/more && cp evil here/heddle-worker && cp evil here/heddle-probe
cp evil here/heddle/heddle-worker && cp evil here/heddle/heddle-probe
cp evil second/heddle-worker && cp evil second/heddle-probe
cd here
expect_places "a program in an odd folder" "$work/second/$programs" ../programs/shared
PATH=$work/second/bin:$PATH heddle info 2>&1 | grep -q " $work/second/$programs/heddle-probe " || fail "the tool, in a folder with an entry heddle"
PATH=$work/second/bin:$PATH HEDDLE_PLACEMENT=process heddle info >/dev/null || fail "the tool has no worker in a folder with an entry heddle"
: >x
expect_places "a program that says it is another one" "$work/second/$programs" bash -c 'exec -a "$0" ../second/bin/plain' "$work/here/x"
expect_none "a program that says it is another one, and has no programs" bash -c 'exec -a "$0" ../programs/plain' "$work/here/x"
cd ..
mv programs here/programs # the files in here/ are above the programs now
expect_none "a program below a folder with such programs" here/programs/plain
rm second/heddle-worker second/heddle-probe
[ ! -e "$EVIL_OUT" ] || fail "ran $(cat "$EVIL_OUT")"

# Not a file that others can write, and no folder.
chmod o+w "second/$programs/heddle-worker"
expect_none "a program whose worker anybody can write" here/programs/static
here/programs/static | grep -q "$work/second/$programs/heddle-worker was not taken: others can write it" || fail "it is not said why"
chmod o-w "second/$programs/heddle-worker"
mkdir here/programs/heddle-worker
expect_places "a program beside a folder of that name" "$work/second/$programs" here/programs/static
rmdir here/programs/heddle-worker
if [ "$(id -u)" = 0 ]; then
    cp evil here/programs/heddle-worker && chown 65534 here/programs/heddle-worker
    expect_places "a program beside a worker of somebody else's" "$work/second/$programs" here/programs/static
    rm here/programs/heddle-worker
    ln -s "$work/evil" here/programs/heddle-worker && chown -h 65534 here/programs/heddle-worker
    expect_places "a program beside somebody else's link" "$work/second/$programs" here/programs/static
    rm here/programs/heddle-worker
fi

# ---- more rights than the caller has ----
# A set-user-id program of root takes nothing from the caller's environment.
if [ "$(id -u)" = 0 ] && installed setpriv; then
    cat >secure.c <<'C'
#include <sys/auxv.h>
int main(void)
{
    return getauxval(AT_SECURE) ? 0 : 77;
}
C
    compile secure.c -o secure && chmod 4755 secure
    cp here/programs/static set-uid && chmod 4755 set-uid
    mkdir caller && chown 65534 caller && cp evil evil.so caller/
    as_somebody() {
        setpriv --reuid=65534 --regid=65534 --clear-groups env -i EVIL_OUT="$work/caller/out" HEDDLE_DRIVER=host \
            HEDDLE_HOST_DEVICES=2 HEDDLE_WORKER="$work/caller/evil" HEDDLE_PROBE="$work/caller/evil" HEDDLE_STATS="$work/caller/stats" \
            HEDDLE_CACHE="$work/caller/cache" XDG_CACHE_HOME="$work/caller/xdg" HOME="$work/caller" \
            HEDDLE_BLAS="$work/caller/evil.so" "$@"
    }
    if as_somebody ./secure; then
        as_somebody ./set-uid "driver=host placement=process host_devices=2 cache=none" all >out 2>&1 || fail "the set-uid program: $(cat out)"
        grep -qx "worker $work/second/$programs/heddle-worker" out || fail "the set-uid program uses another worker: $(cat out)"
        as_somebody ./set-uid "driver=host host_devices=2" all >out 2>&1 || fail "the set-uid program: $(cat out)"
        for file in out stats cache xdg .cache; do
            [ ! -e "caller/$file" ] || fail "a set-uid program did what its caller's environment says: $file"
        done
    else
        echo "no set-uid programs here"
    fi
fi
exit $failed
