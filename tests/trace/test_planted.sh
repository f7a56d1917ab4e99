#!/usr/bin/env bash
# test_planted.sh - the programs of tests/trace/planted on host devices: `heddle trace` names the
# planted cause of each. Arguments behind the two folders select programs; without them, the test
# runs all.
#
# Promise: In a program with one planted cause, this cause is the first finding; its clean twin
# shows no finding, and all sums are exact.
# Tier: full.
set -u
tool=$2/heddle
programs=$2/tests/planted
[ -x "$tool" ] && [ -d "$programs" ] || exit 77
source=$1
. "$source/tests/support/installed.sh"
needs python3
shift 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
while read -r name; do
    unset "$name"
done < <(compgen -v HEDDLE_ | grep -v '^HEDDLE_CACHE$\|^HEDDLE_WORKER$\|^HEDDLE_SOURCE$\|^HEDDLE_BUILD$')
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# check FILE ID DEVICE OTHER BUFFER: the first finding must be this one; with the ID -, no finding
# may exist
check() {
    python3 - "$@" <<'END'
import json, sys

file, id, device, other, buffer = sys.argv[1:]
t = json.load(open(file))
wrong = []
for d in t["devices"]:
    times = d["compute_ns"], d["transfer_ns"], d["idle_ns"]
    if sum(times) != d["window_ns"] or d["window_ns"] != t["end_ns"] - t["begin_ns"]:
        wrong.append(f"device {d['device']}: {times} are not {d['window_ns']}")
    if sum(d["idle_by_cause_ns"].values()) != d["idle_ns"]:
        wrong.append(f"device {d['device']}: its causes do not add up")
    if sum(d["idle_for_device_ns"]) != d["idle_by_cause_ns"]["device"]:
        wrong.append(f"device {d['device']}: what it waited for does not add up")
if t["missing"]["dropped"] or t["missing"]["cut"] or not t["missing"]["stopped"]:
    wrong.append(f"it is not whole: {t['missing']}")
found = t["findings"]
if id == "-":
    wrong += [f"it has {f['id']}: {f['title']}; {f['evidence']}" for f in found]
elif not found:
    wrong.append("it has no finding")
else:
    for key, is_so in ("id", id), ("device", device), ("other", other), ("buffer", buffer):
        if is_so != "any" and str(found[0].get(key)).replace("None", "none") != is_so:
            wrong.append(f"the first finding has {key} {found[0].get(key)}, not {is_so}: {found[0]['title']}; {found[0]['evidence']}")
for line in wrong:
    print(line)
sys.exit(1 if wrong else 0)
END
}

# try NAME TIMES ARGUMENT...: runs the program (TIMES 0), or its twin with naps TIMES as long, and
# then calls check with the arguments. False: a finding is wrong, see $work/wrong
try() {
    local name=$1 times=$2 kind=()
    shift 2
    [ "$times" -eq 0 ] || kind=(clean "$times")
    "$programs/$name" "$work/trace" "${kind[@]}" >"$work/out" 2>&1 || {
        fail "$name ${kind[*]}: $(cat "$work/out")"
        return
    }
    [ -s "$work/out" ] && fail "$name ${kind[*]}: prints $(cat "$work/out")"
    "$tool" trace "$work/trace" --json >"$work/json" 2>"$work/err" || fail "$name ${kind[*]}: $(cat "$work/err")"
    check "$work/json" "$@" >"$work/wrong"
}

# A busy machine may start kernels tens of milliseconds late, which is a real cause. With longer
# naps, this delay no longer matters.
try_twin() {
    try "$1" 3 - any any any || try "$1" 30 - any any any || fail "$1 clean: $(cat "$work/wrong")"
}

# Reads the table in tests/trace/planted/README.md: a program, and the finding, device, other device
# and buffer that it plants.
sed -n 's/^| `\([a-z_]*\)` | `\([a-z-]*\)` | \([a-z0-9]*\) | \([a-z0-9]*\) | \([a-z0-9]*\) |.*/\1 \2 \3 \4 \5/p' \
    "$source/tests/trace/planted/README.md" >"$work/table"
for program in "$source"/tests/trace/planted/*.c; do
    name=$(basename "$program" .c)
    case $name in scene | *_kernels) continue ;; esac
    grep -q "^$name " "$work/table" || fail "$name is not in tests/trace/planted/README.md"
done
while read -r name finding; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086
    try "$name" 0 $finding || fail "$name: $(cat "$work/wrong")"
    try_twin "$name"
done <"$work/table"
[ "$(wc -l <"$work/table")" -ge 12 ] || fail "there are $(wc -l <"$work/table") programs"
exit $failed
