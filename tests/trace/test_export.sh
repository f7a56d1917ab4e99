#!/usr/bin/env bash
# test_export.sh - the files that `heddle trace --export` writes for other tools, checked by their contents and read by those tools.
#
# Promise: Chrome's file has every stretch, gap and arrow. HTA's figures are those of `heddle trace`. PyTorch reads the snapshot.
#
# Where HTA or PyTorch's reader is not installed (tools/install-deps --ci), the files are checked by their contents alone.
set -u
source=$1
tool=$2/heddle
maker=$2/tests/test_trace_maker
failed=0
command -v python3 >/dev/null || exit 77
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
    grep -h "not installed" "$work/said"
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

# operations without times of their own: one event for Perfetto, and nothing for HTA
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
