#!/usr/bin/env bash
# test_trace.sh - `heddle trace`: its output, exit statuses, chains of waits, and rules.
#
# Promise: The output has at most 40 lines unless --all is given. A broken rule fails with its value, a wrong one is a usage error.
set -u
# shellcheck source=tests/tools/support.sh
. "$1/tests/tools/support.sh" "$2" trace
maker=$2/tests/test_trace_maker

"$maker" planted for-device >"$work/trace" || exit 1
"$maker" random 3 8 4000 >"$work/large" || exit 1

# prints TEXT ARGUMENT...
prints() {
    local text=$1
    shift
    "$tool" trace "$@" >"$work/out" 2>"$work/err" || fail "trace $*: $(cat "$work/err")"
    grep -qF -- "$text" "$work/out" || fail "trace $* does not print \"$text\": $(cat "$work/out")"
}

prints '1. idle-for-device: device 1' "$work/trace"
prints '"id": "idle-for-device"' "$work/trace" --json
prints 'findings, largest possible gain first:' "$work/trace" --json "$work/json"
grep -q '"compute_ns"' "$work/json" || fail "--json OUT has no figures"
prints 'note: ' "$work/large"
[ "$(wc -l <"$work/out")" -le 40 ] || fail "$(wc -l <"$work/out") lines"
prints 'memory, by label' "$work/large" --all
[ "$(wc -l <"$work/out")" -gt 40 ] || fail "--all prints no more"
prints "it reads bytes 0 to 0 of the buffer 'weights'" "$work/trace" --why 1.1:1
prints 'waited for 0.1:25 axpy' "$work/trace" --why 1.1:1

grep -A 12 '"id": "idle-for-device"' "$work/json" | tr -d ' \n' | grep -q '"first":0,"devices":\[1\]' || fail "a finding has no devices in JSON"

head -c 5000 "$work/trace" >"$work/cut"
prints 'ends within a record' "$work/cut"

printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0' 'op 0.1:1 launch at=0 waits=2 span=5-8 done=9' 'end at=20' |
    "$maker" script >"$work/waits" || exit 1
prints 'note: 2 waits are missing, and 1 operations' "$work/waits"
prints 'unknown 62.5 %' "$work/waits"
prints 'with 2 more waits that the trace does not have' "$work/waits" --why 0.1:1
prints '"waits": 2' "$work/waits" --json

printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0' 'end at=20' | "$maker" script >"$work/empty" || exit 1
prints 'no work on 1 device, 0 operations' "$work/empty"

# a comparison of clocks with an error of 400 us
printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0 within=400000' 'op 0.1:1 launch at=0 issue=1-2 done=1001' \
    'span 0.1:1 from=0 at=1001 span=2-1000 clock=1' 'end at=1010' | "$maker" script >"$work/coarse" || exit 1
prints 'note: times of device 0 are up to 400 us off those of the host and of other devices; 1 short stretch between the two does not count as measured' "$work/coarse"
prints '"spans_coarse": 1' "$work/coarse" --json

# records in another order: an event further back, a device's return before its loss, a later label;
# and spans that end by the clock
printf '%s\n' 'trace devices=2' 'lane 0.1' 'lane 1.1' 'name label 7 weights' 'name label 8 halo' 'alloc 1 at=0 bytes=100 label=7' 'relabel 1 at=1 bytes=100 label=8' \
    'op 0.1:1 launch at=0 span=2-30 clock=3 done=31' 'op 1.1:3 launch at=10 wait=0.1:1 label=7 bytes=9 span=8000-9000 clock=3 done=9001' \
    'op 0.1:2 launch at=20 span=30-7990 clock=3 done=7991' 'behind 1.1:2 at=25 other=0.1:2' 'restart 1 at=40-50' 'loss 1 at=35 gone' 'end at=9100' |
    "$maker" script >"$work/behind" || exit 1
prints 'of the buffer '"'weights'"'; the next event in that lane comes only after this operation' "$work/behind" --why 1.1:3
prints 'waited for 0.1:2' "$work/behind" --why 1.1:3
prints 'waited for 0.1:2 launch, because its lane has no earlier event' "$work/behind"
prints '"spans_by_clock": 3' "$work/behind" --json
prints '3 stretches end when the engine saw the end' "$work/behind" --all
prints 'was lost 1 time, and was away for 15 us' "$work/behind" --all
prints 'halo: at most 100 bytes, 100 bytes when all had most, 0 allocations, and 1 that got the label later' "$work/behind"

# work that never ran is the first finding in any case
printf '%s\n' 'trace devices=2' 'lane 0.1' 'lane 1.1' 'name kernel 1 axpy' 'op 0.1:1 launch at=0 issue=1 span=2-2000 clock=3 done=2001 kernel=1' \
    'op 0.1:2 launch at=1 issue=2 refused=1 kernel=1' 'op 0.1:3 launch at=1 issue=3 refused=1 kernel=1' \
    'op 1.1:1 launch at=0 issue=1 span=2-9000 clock=3 done=9001 kernel=1' 'end at=9100' | "$maker" script >"$work/failed" || exit 1
prints '1. failed-operations: 2 operations of device 0 never ran, from 0.1:2 axpy on' "$work/failed"
prints '4 launches, 2 of which never ran' "$work/failed"
grep -q 'imbalance\|operations have no times\|up to 0 ns' "$work/out" && fail "failed operations: $(cat "$work/out")"
prints '"failed_operations": 2' "$work/failed" --json
printf '%s\n' 'failed == 2' 'finding.failed-operations == 1' >"$work/rules"
prints '2 rules kept' "$work/failed" --check "$work/rules"

# rules
printf '%s\n' '# kept' 'idle.device.0 < 5 %' 'compute.0 > 60%' 'findings <= 3' 'dropped == 0' 'gap.max < 30 ms' 'window > 1 ms' \
    'finding.idle-for-device == 1' 'critical.host < 5 %' 'losses == 0' >"$work/rules"
printf '%s\n' 'queue.most.1 >= 1' 'queue.mean < 60' 'submit-to-issue.p50 < 2 us' 'issue-to-begin.p99.0 < 60 ms' >>"$work/rules"
prints '13 rules kept' "$work/trace" --check "$work/rules"
printf '%s\n' 'idle.device < 5 %' 'findings == 0' 'transfer.rate(0->1) > 10 GB/s' 'gap.max.1 < 2 us' >"$work/rules"
"$tool" trace "$work/trace" --check "$work/rules" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || fail "broken rules: the status is not 1"
for text in 'line 1: idle.device < 5 %: device 1 has 33.' 'line 2: findings == 0: it is ' 'line 3: transfer.rate(0->1) > 10 GB/s: no such' \
    'line 4: gap.max.1 < 2 us: device 1 has 2'; do
    grep -qF "$text" "$work/out" || fail "no \"$text\": $(cat "$work/out")"
done
printf '%s\n' 'submit-to-issue.p99 < 1 ns' 'queue.most < 1' >"$work/rules"
"$tool" trace "$work/trace" --check "$work/rules" >"$work/out" 2>"$work/err"
for text in 'line 1: submit-to-issue.p99 < 1 ns: device 0 has 1000 ns' 'line 2: queue.most < 1: device 1 has 50'; do
    grep -qF "$text" "$work/out" || fail "no \"$text\": $(cat "$work/out")"
done
printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0' 'op 0.1:1 launch at=0 span=5-8 done=9' 'end at=20' |
    "$maker" script >"$work/bare" || exit 1
printf '%s\n' 'submit-to-issue.p99 < 1 ms' >"$work/rules"
"$tool" trace "$work/bare" --check "$work/rules" >"$work/out" 2>"$work/err" && fail "a figure that the trace does not have keeps a rule"
grep -qF 'lacks this figure of device 0' "$work/out" || fail "a figure that is missing: $(cat "$work/out")"
prints 'queue of device 1: ' "$work/trace" --all
prints '"queue_most": 50' "$work/trace" --json
prints '"submit_to_issue_p50_ns": null' "$work/bare" --json
for rule in 'queue.mean < 5 us' 'submit-to-issue.p50 < 5 %' 'idle <' 'idle < 5 apples' 'nonsense < 5' 'idle < 5 GB/s' 'idle 5' 'transfer.rate(0-1) > 1 GB/s' 'findings.1 < 2' 'idle < 1.2.3 %'; do
    printf '\n%s\n' "$rule" >"$work/rules"
    refused 2 'line 2 is no rule' "$work/trace" --check "$work/rules"
done

for rule in 'finding.nonsense == 0' 'finding. == 0' 'idle.nonsense < 5 %' 'critical.nonsense < 5 %' 'transfer.nonsense(0->1) > 1 GB/s' 'gap.nonsense < 1 ms'; do
    printf '\n%s\n' "$rule" >"$work/rules"
    refused 2 'line 2 is no rule' "$work/trace" --check "$work/rules"
done
printf '%s\n' 'finding.nonsense == 0' >"$work/rules"
refused 2 'no finding has that name' "$work/trace" --check "$work/rules"
printf '%s\n' 'idle < 20' >"$work/rules"
refused 2 'has another unit' "$work/trace" --check "$work/rules"
printf '%s\n' 'memory.peak < 1 B' >"$work/rules"
refused 2 'units are %' "$work/trace" --check "$work/rules"
# a trace without work, and a file without rules
printf '%s\n' 'trace devices=2' 'lane 0.1' 'lane 1.1' 'end at=100' | "$maker" script >"$work/empty" || exit 1
printf '%s\n' 'idle < 20 %' 'compute > 80 %' 'gap.max < 1 us' 'queue.most < 9' 'memory.peak < 1 GiB' 'submit-to-issue.p99 < 1 s' >"$work/rules"
"$tool" trace "$work/empty" --check "$work/rules" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || fail "a trace without work keeps rules: $(cat "$work/out")"
[ "$(grep -c 'no device has operations' "$work/out")" -eq 6 ] || fail "rules of a trace without work: $(cat "$work/out")"
printf '%s\n' 'critical.way < 5 %' >"$work/rules"
"$tool" trace "$work/empty" --check "$work/rules" >"$work/out" 2>"$work/err" && fail "a trace without work has a critical path"
printf '%s\n' 'operations == 0' >"$work/rules"
prints '1 rule kept' "$work/empty" --check "$work/rules"
for rules in '' '# nothing'; do
    printf '%s\n' "$rules" >"$work/rules"
    refused 2 'it has no rule' "$work/trace" --check "$work/rules"
done
# a broken rule, followed by a line that is no rule
printf '%s\n' 'findings == 0' 'nonsense < 5' >"$work/rules"
refused 2 'line 2 is no rule' "$work/trace" --check "$work/rules"
"$tool" trace "$work/trace" --check "$work/rules" >"$work/out" 2>"$work/err"
[ -s "$work/out" ] && fail "a file with a line that is no rule is checked: $(cat "$work/out")"
# a rule may name each finding in the documents
sed -n '/^| finding |/,/^$/s/^| \(`.*`\) |.*/\1/p' "$1/docs/guide/idle-time.md" | tr -d '` ' | tr ',' '\n' | sed 's/.*/finding.& < 99/' >"$work/rules"
[ "$(wc -l <"$work/rules")" -eq 21 ] || fail "docs/guide/idle-time.md has $(wc -l <"$work/rules") findings"
prints '21 rules kept' "$work/trace" --check "$work/rules"

refused 2 'is missing'
for option in --why --check --peaks --export -o; do
    refused 2 "$option wants a value" "$work/trace" "$option"
done
# several files are checked one by one
prints '2 of 2 files' "$work/trace" "$work/bare"
[ "$(grep -c 'of work on' "$work/out")" -eq 2 ] || fail "two files have not two analyses: $(cat "$work/out")"
refused 2 'of several files are for ranks' "$work/trace" "$work/bare" --json
refused 2 'of several files are for ranks' "$work/trace" "$work/bare" --export chrome -o "$work/c"
refused 2 'one at a time' "$work/trace" "$work/bare" --check "$work/rules"
"$tool" trace "$work/bare" "$work/none" >"$work/out" 2>"$work/err" && fail "a second file that is missing is no failure"
grep -qF 'No such file' "$work/err" || fail "a second file that is missing: $(cat "$work/err")"
# a file with two runtimes
printf '%s\n' 'trace devices=1' 'lane 0.1' 'clock 0 at=0 own=0' 'op 0.1:1 launch at=0 span=5-8 done=9' 'end at=20' \
    'trace devices=1 run=2 at=30' 'lane 0.1' 'clock 0 at=30 own=500' 'op 0.1:1 launch at=40 span=515-518 written=49 done=49' 'end at=60' |
    "$maker" script >"$work/two" || exit 1
prints 'of several runtimes one after the other' "$work/two"
prints '"runtimes": 2' "$work/two" --json
prints '"begin_ns": 8000' "$work/two" --json
refused 2 'chrome, hta or pytorch' "$work/trace" --export nonsense -o "$work/x"
refused 2 'needs -o' "$work/trace" --export chrome
refused 2 'is for --export' "$work/trace" -o "$work/x"
refused 2 'at a time' "$work/trace" --why 0.1:1 --check "$work/rules"
refused 1 'No such file' "$work/none"
refused 1 'is no trace' "$1/README.md"
refused 1 'is no trace' /dev/zero # a file without end
refused 1 'is no operation' "$work/trace" --why elsewhere
refused 1 'no operation that ends' "$work/trace" --why 0.1:9999
refused 1 'cannot write' "$work/trace" --export chrome -o "$work/none/x"
printf '{}\n' >"$work/peaks"
refused 1 'heddle p2p --json' "$work/trace" --peaks "$work/peaks"

# peaks of paths, from the output of `heddle p2p --json`
"$maker" planted slow >"$work/slow"
printf '{"links": [{"id": "to_device_ce", "values": [60, 60]}], "figures": []}\n' >"$work/peaks"
prints '% of the measured peak' "$work/slow" --peaks "$work/peaks"

# a trace or its peaks may be a pipe; - is the input
mkfifo "$work/pipe" "$work/pipe.peaks" || exit 1
cat "$work/slow" >"$work/pipe" &
cat "$work/peaks" >"$work/pipe.peaks" &
prints '% of the measured peak' "$work/pipe" --peaks "$work/pipe.peaks"
wait
prints 'of work on' - <"$work/slow"
refused 1 'the input: it is no trace' - <"$work/peaks"

# an output that is an input is refused before anything is written: by its name, by a link, and in HTA's folder
cp "$work/slow" "$work/kept" && ln -s kept "$work/link" && mkdir "$work/hta" && ln "$work/kept" "$work/hta/rank_1.json" || exit 1
for output in "$work/kept" "$work/link"; do
    refused 1 'is the file of the input' "$work/kept" --json "$output"
    refused 1 'is the file of the input' "$work/kept" --export chrome -o "$output"
    refused 1 'is the file of the input' - --json "$output" <"$work/kept"
done
refused 1 'is the file of the input' "$work/kept" --export hta -o "$work/hta"
[ ! -e "$work/hta/rank_0.json" ] || fail "HTA's export begins although it would replace the trace"
refused 1 'is the file of the input' "$work/slow" --peaks "$work/peaks" --json "$work/peaks"
cmp -s "$work/slow" "$work/kept" || fail "a refused output changes the trace"
prints 'of work on' "$work/kept" --json "$work/json" # another existing file is replaced
exit "$failed"
