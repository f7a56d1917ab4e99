#!/usr/bin/env bash
# test_doctor_libcuda.sh - `heddle doctor` with a libcuda that fails, returns nonsense, crashes or
# ends the program: the tool names the libcuda, and keeps the facts of NVML.
#
# Promise: `heddle doctor` names a libcuda that lies, fails, crashes or ends the process, and goes
# on with all other facts.
set -u
. "$1/tests/tools/support.sh" "$2" doctor
. "$1/tests/tools/played_libcuda.sh"
export HEDDLE_CACHE=$work/cache
unset CUDA_VISIBLE_DEVICES HEDDLE_PEERS PLAYED_CUDA
play "$work" 2>"$work/err" || {
    fail "the played libraries do not compile: $(cat "$work/err")"
    exit $failed
}

# ask HOW TEXT...: with such a libcuda, the output must contain each text and the facts of NVML, and
# stderr must be empty
ask() {
    local how=$1
    shift
    PLAYED_CUDA=$how "$tool" doctor --snapshot "$work/$how.json" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got -le 2 ] || fail "$how: status $got"
    for text in "$@" 'warning [mig] MIG is on' 'gpu.1.mig = yes'; do
        grep -qF -- "$text" "$work/out" || fail "$how: no \"$text\" in: $(cat "$work/out" "$work/err")"
    done
    grep -qF 'libcuda prints' "$work/out" && fail "$how: what libcuda prints is in the output"
    [ ! -s "$work/err" ] || fail "$how: $(cat "$work/err")"
    ! installed python3 || python3 -m json.tool "$work/$how.json" >"$work/parsed" 2>&1 || fail "$how: $(cat "$work/parsed")"
    "$tool" doctor --from "$work/$how.json" >"$work/again" 2>&1
    cmp -s "$work/out" "$work/again" || fail "$how: the snapshot is judged otherwise: $(diff "$work/out" "$work/again")"
}
has_not() {
    grep -qF -- "$1" "$work/out" && fail "$2: \"$1\" in: $(cat "$work/out")"
}

ask right '[untested]' 'pair.N.N.cuda = yes (2 times)'
has_not '[driver-' right
ask fails '[driver-init]' 'driver.init = 999'
ask stub '[driver-init]' 'driver.init = 34'
ask few 'the driver (version 0.0) has no cuInit'
ask count 'cuDeviceGetCount fails with code 999'
ask less '[driver-count]' 'driver.devices = -5'
ask many '[driver-count]' 'driver.devices = 2000000000'
grep -qE '"pair\.([0-9]+)\.\1\.' "$work/many.json" && fail "many: a device is a pair with itself: $(cat "$work/many.json")"
ask half 'CUDA'
for how in leave crash close chatter load; do
    ask $how '[driver-silent]' 'driver.end = '
    has_not '[driver-count]' $how
done
exit $failed
