#!/usr/bin/env bash
# test_doctor_hang.sh - `heddle doctor` with a libcuda that never answers: the tool announces the
# wait, ends it, and leaves nothing behind.
#
# Promise: A libcuda that hangs is a finding; the tool announces its wait, and ends the process of
# the libcuda.
# Tier: full.
set -u
. "$1/tests/tools/support.sh" "$2" doctor
. "$1/tests/tools/played_libcuda.sh"
export HEDDLE_CACHE=$work/cache
unset CUDA_VISIBLE_DEVICES HEDDLE_PEERS
play "$work" 2>"$work/err" || {
    fail "the played libraries do not compile: $(cat "$work/err")"
    exit $failed
}
PLAYED_CUDA=hang "$tool" doctor >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || fail "the status is not that of an error: $(cat "$work/out" "$work/err")"
for text in '[driver-silent]' 'driver.end = no answer within' 'warning [mig] MIG is on'; do
    grep -qF -- "$text" "$work/out" || fail "no \"$text\" in: $(cat "$work/out")"
done
grep -qF 'driver does not answer' "$work/err" || fail "the wait is not announced: $(cat "$work/err")"
for maps in /proc/[0-9]*/maps; do
    grep -qF "$work/libcuda.so.1" "$maps" 2>/dev/null && fail "a process is left: $maps"
done
exit $failed
