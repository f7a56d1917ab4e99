#!/usr/bin/env bash
# test_left_out.sh - tools/left-out on made-up logs of ctest, and the scripts of this tree that look for optional programs.
#
# Promise: If an optional part is not installed, one line names the part and the tests that leave
# out checks.
set -u
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

mkdir -p "$work/build/tests" "$work/build/Testing/Temporary"
log=$work/build/Testing/Temporary/LastTest.log
: >"$work/build/tests/left_out"

# is TEXT: the whole output must be TEXT
is() {
    "$source/tools/left-out" "$work/build" >"$work/out" 2>&1 || fail "ends with $?: $(cat "$work/out")"
    [ "$(cat "$work/out")" = "$1" ] || fail "not '$1' but: $(cat "$work/out")"
}

# entry NUMBER TEST OUTPUT: writes an entry like ctest
entry() {
    printf '%s/9 Testing: %s\n%s/9 Test: %s\nCommand: "%s"\nOutput:\n-----\n%b\n<end of output>\n-----\n' "$1" "$2" "$1" "$2" "$2" "$3"
}
is '' # no tests ran so far
{
    entry 1 base/log 'says without: nothing\nall is well'
    entry 2 docs/all 'tested'
} >"$log"
is ''
{
    entry 1 tools/p2p 'without: python3\nwithout: python3'
    entry 2 kernel/cc 'one\nwithout: clang: found no clang; that compiles\ntwo\nwithout: nvcc'
    entry 3 tools/a 'without: python3'
    entry 4 tools/b 'without: python3'
    entry 5 tools/c 'without: python3'
} >"$log"
echo 'without: cuda.h: a comparison' >"$work/build/tests/left_out"
end=". Debian's packages come with tools/install-deps --ci."
is "left out, since it is not installed: clang (kernel/cc); cuda.h (the build); nvcc (kernel/cc); python3 (tools/p2p, tools/a, tools/b and 1 more)$end"
{
    entry 1 tools/p2p 'without: python3' && echo 'Test Passed.'
    entry 2 kernel/cc 'all' && echo 'Test Passed.'
    entry 3 kernel/dd 'all' && echo 'Test Failed.'
    entry 4 kernel/ee 'all' && echo 'Test Passed.'
} >"$log"
[ "$("$source/tools/left-out" --whole "$work/build" | tr '\n' ' ')" = 'kernel/cc kernel/ee ' ] || fail "whole are $("$source/tools/left-out" --whole "$work/build")"
rm -r "$work/build/tests"
"$source/tools/left-out" "$work/build" >"$work/out" 2>&1
[ $? -eq 2 ] || fail "a folder that is no build passes"

# make test ends with this line, even if a test failed
for target in test test-all; do
    make -C "$source" -n $target 2>/dev/null | grep -q '^ctest .*; status=\$?; tools/left-out build/debug; exit \$status$' || fail "make $target does not end with it"
done

# a script that looks for a program reports when the program is missing
for script in "$source"/tests/*/*.sh; do
    if grep -v '^ *#' "$script" | grep -qE 'command -v' && ! grep -qE 'support/installed\.sh|(kernel/cc_|tools/)support\.sh' "$script" &&
        [ "${script##*/}" != installed.sh ] && [ "${script##*/}" != "${0##*/}" ]; then
        fail "$script looks for programs without tests/support/installed.sh: $(grep -n 'command -v' "$script")"
    fi
    ! grep -qE '^[^#]*command -v [a-z0-9]+ >/dev/null' "$script" || fail "$script: use installed or needs of tests/support/installed.sh"
done
exit $failed
