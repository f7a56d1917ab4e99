#!/usr/bin/env bash
# test_side_by_side.sh - two versions in one prefix: programs of each version use their own workers,
# whichever version was installed last.
#
# Promise: Another version that is installed into the same prefix breaks no program of this one, in any placement.
# Tier: full.
#
# The other version is this tree with another number, which this test builds. Libraries of this
# version refuse its workers.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
unset HEDDLE_WORKER HEDDLE_PROBE
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# ---- the other version ----
mkdir tree
for part in CMakeLists.txt LICENSE README.md heddle.map bench cli cmake docs examples include python src; do
    cp -r "$source/$part" tree/ || exit 1
done
sed -i 's/^#define HD_VERSION_MAJOR .*/#define HD_VERSION_MAJOR 99/' tree/include/heddle/version.h
sed -i 's/^set(heddle_abi .*/set(heddle_abi 99)/' tree/CMakeLists.txt
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")
build_other() {
    cmake -S tree -B other -DCMAKE_BUILD_TYPE=None -DHEDDLE_HARDEN=OFF -DHEDDLE_TESTS=OFF -DCMAKE_INSTALL_LIBDIR="$libdir" &&
        cmake --build other -j "$(nproc)"
}
build_other >log 2>&1 || {
    tail -20 log
    fail "the other version cannot be built"
    exit 1
}

# ---- a program, and what it prints ----
cat >program.c <<'C'
#include <heddle.h>
#include <stdio.h>
int main(void)
{
    hd_runtime *runtime;
    hd_peer_info info = {.size = sizeof info};
    if (hd_open(NULL, &runtime) || hd_peer_check(runtime, 0, 1, &info)) {
        printf("%s\n", hd_message());
        return 1;
    }
    printf("%s: %s\n", hd_version(), hd_peer_verdict_text(info.verdict));
    return hd_close(runtime) != HD_OK;
}
C

# install BUILD: installs it into the common prefix
install() {
    cmake --install "$1" --prefix "$work/prefix" >/dev/null || fail "$1 cannot be installed"
}
# compile NAME: makes a program with the shared library that is installed now, and one with the
# static library
compile() {
    local flags
    flags=$(PKG_CONFIG_PATH=$work/prefix/$libdir/pkgconfig pkg-config --cflags --libs heddle)
    # shellcheck disable=SC2086
    "${CC:-cc}" -o "$1-shared" program.c $flags -Wl,-rpath,"$work/prefix/$libdir" || fail "$1 does not compile"
    # shellcheck disable=SC2086
    "${CC:-cc}" -o "$1-static" program.c ${flags//-lheddle/-l:libheddle.a} -pthread -ldl || fail "$1 does not compile"
}
# works NAME VERSION WHEN
works() {
    local kind placement
    for kind in shared static; do
        for placement in thread inline process; do
            HEDDLE_PLACEMENT=$placement "./$1-$kind" >out 2>&1 || fail "$3: $1 ($kind, $placement): $(cat out)"
            grep -qx "$2: .*usable.*" out || grep -qx "$2: .*slow.*" out || fail "$3: $1 ($kind, $placement) prints: $(cat out)"
        done
    done
}

version=$("$build/heddle" --version | cut -d" " -f2)
other_version=$(other/heddle --version | cut -d" " -f2)
install "$build"
compile this
works this "$version" "one version"
install other
compile other
works this "$version" "the other version came"
works other "$other_version" "the other version came"
install "$build"
works this "$version" "this version came again"
works other "$other_version" "this version came again"
prefix/bin/heddle p2p --verdicts | grep -qwE 'usable|slow' || fail "the tool does not find its programs"
for folder in "heddle-$version" "heddle-$other_version"; do
    [ -x "prefix/libexec/$folder/heddle-worker" ] || fail "there is no $folder, but: $(ls prefix/libexec)"
done
exit $failed
