#!/usr/bin/env bash
# test_hardening.sh - all built and installed files have their protections, and the check reports a
# missing one. Continuous integration checks the optimised build in the same way.
#
# Promise: All built and installed files have their protections, and the check reports a missing
# one.
set -u
source=$1
build=$2
check=$source/tools/check-hardening
grep -q 'HEDDLE_HARDEN:BOOL=ON' "$build/CMakeCache.txt" || exit 77
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
debug=--debug
grep -q 'CMAKE_BUILD_TYPE:STRING=Release' "$build/CMakeCache.txt" && debug=
failed=0

bench=$([ ! -e "$build/heddle-bench" ] || echo heddle-bench)
files() { # BIN LIBEXEC LIB
    # shellcheck disable=SC2086
    "$check" $debug "$3/libheddle.so" "$3/libheddle.a" "$1/heddle" "$2/heddle-worker" "$2/heddle-probe" ${bench:+"$2/$bench"} || failed=1
}
files "$build" "$build" "$build"
cmake --install "$build" --prefix "$work/prefix" >/dev/null || exit 1
files "$work/prefix/bin" "$work/prefix/libexec"/heddle-* "$(dirname "$(find "$work/prefix" -name libheddle.a)")"

# expect TEXT FLAG...: the check refuses a library made with these flags, and prints TEXT
expect() {
    local text=$1 output
    shift
    if ! "${CC:-cc}" -fPIC -shared -o "$work/bad.so" "$work/bad.c" "$@" 2>/dev/null; then
        echo "skipped: this compiler has no $*"
    elif output=$("$check" $debug "$work/bad.so") || ! grep -qF -- "$text" <<<"$output"; then
        echo "FAILED: what is made with $* was not refused with \"$text\", but: $output"
        failed=1
    fi
}
cat >"$work/bad.c" <<'C'
int fill(char *out);
_Thread_local int own;
int f(void);
int f(void)
{
    char text[100];
    return fill(text) + text[1] + own;
}
C
good=(-fstack-protector-strong -fcf-protection=full -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,nodelete -ftls-model=initial-exec)
if "${CC:-cc}" -fPIC -shared -o "$work/good.so" "$work/bad.c" "${good[@]}" 2>/dev/null; then
    "$check" --debug "$work/good.so" || failed=1
fi
expect 'is bound lazily' "${good[@]}" -Wl,-z,lazy
expect 'has no RELRO' "${good[@]}" -Wl,-z,norelro
expect 'can be executed' "${good[@]}" -Wl,-z,execstack
expect 'does not check its stack' "${good[@]}" -fno-stack-protector
expect 'can be unloaded' -fstack-protector-strong
expect 'thread-local storage that is not static' "${good[@]}" -ftls-model=global-dynamic
"$check" --debug "$work/none.so" >/dev/null && failed=1
exit $failed
