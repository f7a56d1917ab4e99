#!/usr/bin/env bash
# test_doctor.sh - `heddle doctor`: findings, exit statuses, writing and judging snapshots, an NVML
# that the test builds, command lines.
#
# Promise: `heddle doctor` finds a planted cause with its evidence, judges a snapshot like the
# machine that wrote it, and ends with 0, 1 or 2.
set -u
. "$1/tests/tools/support.sh" "$2" doctor
machines=$1/tests/doctor/machines
export HEDDLE_CACHE=$work/cache HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2
unset CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING NCCL_P2P_DISABLE HEDDLE_PEERS

# run STATUS ARGUMENT...: the tool must end with this status
run() {
    local status=$1
    shift
    "$tool" doctor "$@" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got -eq "$status" ] || fail "$*: status $got, not $status: $(cat "$work/out" "$work/err")"
}
has() {
    grep -qF -- "$1" "$work/out" || fail "$2: no \"$1\" in: $(cat "$work/out")"
}
has_not() {
    grep -qF -- "$1" "$work/out" && fail "$2: \"$1\" in: $(cat "$work/out")"
}

# ---- statuses, from snapshots
run 0 --from "$machines/h100-eight-healthy.json"
has '8 devices: nothing wrong' healthy
for area in driver devices clocks peers links NUMA limits environment; do
    grep -qE "^$area +nothing wrong\$" "$work/out" || fail "healthy: $area is not there: $(cat "$work/out")"
done
run 0 --from "$machines/exclusive-k40.json"
has 'note [compute-exclusive]' note
run 1 --from "$machines/power-limit-lowered.json"
has 'warning [power-limit]' warning
has 'gpu.0.power_limit_mw = 350000' evidence
run 2 --from "$machines/nouveau.json"
has 'error [nouveau]' error
has 'all 3 devices' 'a finding of all devices'
has 'gpu.N.kernel_driver = nouveau (3 times)' evidence
run 2 --json --from - <"$machines/vm-private-mirror.json"
for text in '"status": 2' '"id": "pair-corrupt"' '"pair.0.1.verdict": "corrupt"' '"fix_needs_root": false'; do
    has "$text" json
done

# ---- this machine: the doctor knows the verdicts of heddle p2p for host devices, and judges a
# snapshot in the same way
run 0
export HEDDLE_HOST_CORRUPT='0>1'
status=0
if [ -x "$2/heddle-probe" ]; then
    status=2
    "$tool" p2p --verdicts >"$work/p2p" 2>&1
    [ $? -eq 3 ] || fail "p2p does not find the corrupt pair: $(cat "$work/p2p")"
else
    echo "skipped: $2/heddle-probe is not built, so no pair is verified"
fi
run $status --snapshot "$work/snapshot.json"
if [ $status -eq 2 ]; then
    has 'error [pair-corrupt]' 'corrupt pair'
    has 'pair 0 -> 1' 'corrupt pair'
fi
cp "$work/out" "$work/first"
run $status --from "$work/snapshot.json"
cmp -s "$work/first" "$work/out" || fail "a snapshot is judged otherwise: $(diff "$work/first" "$work/out")"
run $status --snapshot -
if [ $status -eq 2 ]; then # the message must give the reason
    HEDDLE_HOST_CORRUPT='0>1:crash' "$tool" p2p --verdicts >"$work/p2p" 2>&1
    HEDDLE_HOST_CORRUPT='0>1:crash' run 2
    has 'pair.0.1.reason = ' 'a test that crashed'
    has_not 'the owner saw' 'a test that crashed'
    run 2 --snapshot -
fi
unset HEDDLE_HOST_CORRUPT
has '"heddle_snapshot": 1' 'snapshot to the output'
has_not 'pair-corrupt' 'snapshot to the output'
for secret in "$(uname -n)" "${USER:-no-such-user}" "$HOME" "$work"; do
    [ "$secret" = root ] && continue # "root" is no secret, and a part of other words
    [ ${#secret} -gt 3 ] && grep -qF -- "$secret" "$work/snapshot.json" && fail "the snapshot has $secret"
done
grep -qE '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-' "$work/snapshot.json" && fail "the snapshot has a UUID"
CUDA_VISIBLE_DEVICES='' CUDA_DEVICE_MAX_CONNECTIONS=1 CUDA_LAUNCH_BLOCKING=1 CUDA_MODULE_LOADING=LAZY HEDDLE_PEERS=trust run 2
for id in devices-hidden max-connections launch-blocking lazy-loading peers-trusted; do
    has "[$id]" environment
done
CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c NCCL_P2P_LEVEL=/home/alice/token CUDA_MODULE_LOADING=hf_TOKEN run 0 --snapshot -
for secret in 8932f937 alice TOKEN; do
    has_not "$secret" 'a snapshot with variables that identify'
done
HEDDLE_PLACEMENT=nonsense run 2
has 'error [option-wrong]' 'a wrong option'

HEDDLE_PLACEMENT=nonsense "$tool" info >"$work/out" 2>&1
has 'HEDDLE_PLACEMENT=nonsense' 'heddle info, to which a wrong option refers'
has 'inline' 'what it may be'
HEDDLE_PEERZ=off run 1
has 'HEDDLE_PEERZ (did you mean HEDDLE_PEERS?)' 'a variable that is no option'

# ---- the expected number of devices, and JSON into a file
run 0 --expect 2
run 2 --expect 3
has 'error [devices-fewer]' 'fewer devices'
has 'expected.devices = 3' 'fewer devices'
run 0 --from "$machines/h100-eight-healthy.json" --expect 8
run 2 --from "$machines/h100-eight-healthy.json" --expect 9 --snapshot "$work/expected.json"
run 0 --from "$work/expected.json" # the expected number is no fact of the machine
for n in 0 65 x; do
    refused 2 '--expect wants a number' --expect $n
done
run 2 --from "$machines/nouveau.json" --json "$work/file.json"
has 'error [nouveau]' 'the text beside JSON in a file'
cp "$work/file.json" "$work/kept"
run 2 --from "$machines/nouveau.json" --json
cmp -s "$work/kept" "$work/out" || fail "JSON in a file is another one"
run 2 --from "$machines/nouveau.json" --json - --snapshot "$work/expected.json"
cmp -s "$work/kept" "$work/out" || fail "--json - is not --json"
refused 1 'is the file of the input' --from "$work/expected.json" --json "$work/expected.json"
"$tool" doctor --from "$machines/wsl.json" --json "$work/none/j.json" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && grep -qF 'cannot be written' "$work/err" || fail "JSON that cannot be written: $(cat "$work/err")"

# ---- without NVIDIA's library: the output gives the reason, without a folder that may name a
# person, and the devices on which programs would run
mkdir -p "$work/alice" && echo 'no library' >"$work/alice/libcuda.so.1" || exit 1
HEDDLE_DRIVER=nvidia LD_LIBRARY_PATH=$work/alice "$tool" doctor --snapshot "$work/alice.json" >"$work/out" 2>"$work/err"
grep -qF '"driver.reason": "libcuda.so.1 cannot be loaded (libcuda.so.1: ' "$work/alice.json" || fail "no reason: $(cat "$work/alice.json")"
grep -qF alice/ "$work/alice.json" && fail "a folder is in the snapshot"
has_not '[host-devices]' 'with driver=nvidia'
env -u HEDDLE_DRIVER LD_LIBRARY_PATH="$work/alice" "$tool" doctor >"$work/out" 2>"$work/err"
has 'note [host-devices]' 'with driver=auto'

# ---- an NVML with planted values, which the tool opens like NVIDIA's
cat >"$work/nvml.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { char old[16]; unsigned n[5]; char bus[32]; } pci;
static int nonsense;
int nvmlInit_v2(void)
{
    const char *how = getenv("PLAYED_NVML");
    if (how && strcmp(how, "crash") == 0)
        abort();
    if (how && strcmp(how, "mismatch") == 0)
        return 18;
    if (how && strcmp(how, "leave") == 0)
        exit(0);
    if (how && strcmp(how, "close") == 0)
        for (int i = 0; i < 64; i++)
            close(i);
    nonsense = how && strcmp(how, "nonsense") == 0;
    puts("NVML prints");
    return 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = nonsense ? 4000000000u : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(size_t)(i + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci *p) 
{
    nonsense ? (void)memset(p, 0xfe, sizeof *p) : (void)sprintf(p->bus, "00000000:%02zX:00.0", (size_t)d + 0xa0);
    return 0;
}
int nvmlDeviceGetName(void *d, char *name, unsigned n)
{
    (void)d;
    nonsense ? (void)memset(name, 27, n) : (void)snprintf(name, n, "Played GPU"); /* without an end */
    return 0;
}
int nvmlDeviceGetComputeMode(void *d, int *mode) { (void)d; *mode = nonsense ? -77 : 0; return 0; }
int nvmlDeviceGetPersistenceMode(void *d, int *mode) { (void)d; *mode = 1; return nonsense ? 12345 : 0; }
int nvmlSystemGetNVMLVersion(char *text, unsigned n) { memset(text, '7', nonsense ? n : 0); return nonsense ? 0 : 13; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) { *now = *next = d == (void *)2; return 0; }
int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *state) { (void)a, (void)b, (void)what; *state = 4; return 0; }
END
if ${CC:-cc} -shared -fPIC -o "$work/libnvidia-ml.so.1" "$work/nvml.c" 2>"$work/err"; then
    export HEDDLE_DRIVER=nvidia LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    run 1
    has 'warning [mig] MIG is on' 'played NVML'
    has 'gpu.1.mig = yes' 'played NVML'
    has '1 (0000:a2:00.0)' 'played NVML'
    has '[refused-registry]' 'played NVML'
    has_not 'NVML prints' 'played NVML'
    has '/sys does not list this device' 'a device that NVML alone lists'
    has_not 'not in the snapshot; the system provides it' 'a device that NVML alone lists'
    PLAYED_NVML=mismatch run 2
    has '[version-skew]' 'an NVML of another version'
    PLAYED_NVML=crash run 2
    has '[nvml-silent]' 'an NVML that crashes'
    has 'nvml.end = crashed with signal 6' 'an NVML that crashes'
    for how in leave close; do
        PLAYED_NVML=$how run 2
        has '[nvml-silent]' "an NVML that does $how"
    done
    PLAYED_NVML=nonsense run 0 --json # more devices than any machine contains, all with the same bus id
    has '"gpu.0.compute_mode": "NVML' 'an NVML that returns nonsense'
    has '"gpu.0.persistence": "NVML' 'an NVML that returns nonsense'
    python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/out" 2>/dev/null || ! installed python3 ||
        fail "the JSON of nonsense is none: $(cat "$work/out")"
    echo 'no library' >"$work/libnvidia-ml.so.1"
    run $([ -r /sys/bus/pci/devices ] && echo 0 || echo 1) --json # a bus that cannot be read is a warning
    has '"nvml.state": "libnvidia-ml.so.1 cannot be opened"' 'no NVML'
else
    fail "the played NVML does not compile: $(cat "$work/err")"
fi

# ---- the tool sees its children end, even if the caller ignores SIGCHLD
HEDDLE_DRIVER=host run 0 --json
cp "$work/out" "$work/first"
(
    trap '' CHLD
    HEDDLE_DRIVER=host exec "$tool" doctor --json
) >"$work/out" 2>"$work/err"
cmp -s "$work/first" "$work/out" || fail "with SIGCHLD ignored: $(diff "$work/first" "$work/out" | head -n 20)"

# ---- files and command lines
echo '{"heddle_snapshot": 1, "facts": {"gpus": 2}, "missing": {}}' >"$work/few.json"
run 0 --from "$work/few.json"
has 'devices      not checked' 'few facts'
has 'nothing wrong in what was checked' 'few facts'
echo '{"heddle_snapshot": 1, "facts": {"gpus": 0}, "missing": {"system.bus": "/sys cannot be read"}}' >"$work/none.json"
run 1 --from "$work/none.json"
has 'no device was found: /sys cannot be read' 'no bus'
has 'warning [bus-hidden]' 'no bus'
has 'devices      not checked' 'no bus'
echo '{"heddle_snapshot": 1, "facts": {"gpus": 0, "module.nvidia": "yes"}}' >"$work/none.json"
run 2 --from "$work/none.json"
has 'error [no-devices]' 'devices that have fallen off'
echo '{"heddle_snapshot": 1, "facts": {"gpus": 0, "module.nvidia": "no"}}' >"$work/none.json"
run 0 --from "$work/none.json"
has 'no device was found: the bus has none' 'a machine without devices'
has 'peers        nothing to check' 'a machine without devices'
run 0 --from "$work/none.json" --json
has '"peers": "nothing to check"' 'a machine without devices'
echo '{"heddle_snapshot": 1, "facts": {"gpus": 0, "module.nvidia": "yes", "driver.init": "999 (unknown)"}}' >"$work/none.json"
run 2 --from "$work/none.json"
has 'error [driver-init]' 'a driver that does not start, and no device'
has 'driver.init = 999 (unknown)' 'a driver that does not start, and no device'
rm "$work/none.json"
head -c 17000000 /dev/zero >"$work/large.json"
refused 1 'larger than 16 MiB' --from "$work/large.json"
refused 1 'cannot be read' --from "$work/none.json"
echo '{"heddle_snapshot": 1,' >"$work/half.json"
refused 1 'line 2' --from "$work/half.json"
cp "$machines/wsl.json" "$work/same.json" && ln -s same.json "$work/link.json" || exit 1
refused 1 'is the file of the input' --from "$work/same.json" --snapshot "$work/link.json"
refused 1 'is the file of the input' --from - --snapshot "$work/same.json" <"$work/same.json"
cmp -s "$machines/wsl.json" "$work/same.json" || fail "a refused snapshot changes the file that it would replace"
refused 1 'is no snapshot' --from "$1/CMakePresets.json"
refused 2 '--from wants' --from
refused 2 '--snapshot wants' --snapshot
refused 2 'unexpected' something
refused 2 'unknown option' --no-such-option
refused 2 'cannot both' --json --snapshot -
"$tool" doctor --from "$machines/wsl.json" --snapshot "$work/none/s.json" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && grep -qF 'cannot be written' "$work/err" || fail "a snapshot that cannot be written: $(cat "$work/err")"
"$tool" doctor --from "$machines/nouveau.json" --snapshot "$work/copy.json" >/dev/null 2>&1
run 2 --from "$work/copy.json"
"$tool" doctor --help | grep -qF -- '--snapshot FILE' || fail "--help does not name --snapshot"
"$tool" help doctor | grep -qF 'Exit status' || fail "help doctor does not explain the status"
if [ -w /dev/full ]; then
    "$tool" doctor --from "$machines/wsl.json" >/dev/full 2>"$work/err"
    [ $? -eq 1 ] || fail "a full disk is not noticed"
fi
exit $failed
