#!/usr/bin/env bash
# test_export.sh - the files that `heddle trace --export` writes for other tools, checked by their contents and read by those tools.
#
# Promise: Chrome's file contains every stretch, gap, arrow, range, pause and memory figure. HTA's
# figures agree with `heddle trace`. PyTorch reads the snapshot.
#
# If HTA or PyTorch's reader is not installed (tools/install-deps --ci), the test checks only the
# contents of the files.
set -u
source=$1
tool=$2/heddle
maker=$2/tests/test_trace_maker
failed=0
. "$source/tests/support/installed.sh"
needs python3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
packages=$("$source/tools/install-deps" --where)

# compare FORMAT ARGUMENT...
compare() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$packages/hta:$packages python3 "$source/tests/trace/exports.py" "$@" >"$work/said" 2>&1 || {
        echo "FAILED: $*"
        cat "$work/said"
        failed=1
    }
    grep "^without: " "$work/said"
}

for name in clean copies turns memory; do
    "$maker" planted $name >"$work/$name.trace" || exit 1
    "$tool" trace "$work/$name.trace" --json "$work/$name.json" >/dev/null || exit 1
done
for name in clean copies turns; do
    "$tool" trace "$work/$name.trace" --export hta -o "$work/$name.hta" 2>/dev/null || failed=1
    compare hta "$work/$name.json" "$work/$name.hta"
    "$tool" trace "$work/$name.trace" --export chrome -o "$work/$name.chrome.json" || failed=1
    compare chrome "$work/$name.json" "$work/$name.chrome.json"
done
"$tool" trace "$work/memory.trace" --export pytorch -o "$work/memory.pickle" || failed=1
compare pytorch "$work/memory.json" "$work/memory.pickle" "$packages/torch_viz/_memory_viz.py"

# ranges, intervals, pauses, memory, and activities of CUPTI
printf '%s\n' 'trace devices=2 detail=cupti' 'lane 0.1' 'clock 0 at=0 own=0' 'name kernel 1 axpy' 'name activity 1 axpy' 'name activity 2 other' \
    'name range 1 outer' 'name range 2 inner "1"' 'name range 3 open' 'push 1 at=1' 'push 2 at=2' 'pop at=5' 'pop at=10' 'push 3 at=15 thread=6' \
    'interval 2 at=3-40 from=6' 'interval 1 at=2-20 from=5 thread=6' 'pause code at=3-4 detail=1' 'pause map at=11-13 thread=6' 'pause wait at=12-20 lane=0.1 position=1' \
    'memory 0 at=4 use=10 held=20 limit=30' 'memory 1 at=6 use=7 held=9' 'op 0.1:1 launch at=20 done=30' 'op 0.1:2 launch at=20 done=30' \
    'span 0.1:2 from=0 span=21-29' 'activity kernel at=22-24 name=1' 'activity kernel at=25-29 name=1' 'activity kernel at=30-35 name=2 stream=9' \
    'end at=50' | "$maker" script >"$work/rows.trace"
"$tool" trace "$work/rows.trace" --json "$work/rows.json" >/dev/null || failed=1
"$tool" trace "$work/rows.trace" --export chrome -o "$work/rows.chrome.json" || failed=1
compare rows "$work/rows.json" "$work/rows.chrome.json"
"$tool" trace "$work/rows.trace" --export hta -o "$work/rows.hta" 2>/dev/null && [ -s "$work/rows.hta/rank_0.json" ] || {
    echo "FAILED: operations with CUPTI's times are not exported for HTA"
    failed=1
}

# operations without their own times: one event for Perfetto, and nothing for HTA
printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0' 'name kernel 1 axpy' 'op 0.1:1 launch at=0 done=9' 'op 0.1:2 launch at=1 done=9' \
    'span 0.1:2 from=0 span=2-8' 'end at=20' | "$maker" script >"$work/edges.trace"
"$tool" trace "$work/edges.trace" --export chrome -o "$work/edges.json" || failed=1
grep -q '"2 operations: axpy"' "$work/edges.json" || {
    echo "FAILED: a stretch of two launches is no event of its own"
    failed=1
}
if "$tool" trace "$work/edges.trace" --export hta -o "$work/edges.hta" 2>"$work/err" || ! grep -q 'trace_detail\|TRACE_DETAIL' "$work/err"; then
    echo "FAILED: HTA's export of stretches is not refused: $(cat "$work/err")"
    failed=1
fi
exit $failed
