#!/usr/bin/env bash
# test_compare_results.sh - tools/compare-results names exactly the figures in which a new build is
# slower, whether lower or higher is better.
#
# Promise: The comparison of results names every figure that got slower, and no other.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
export PYTHONDONTWRITEBYTECODE=1
tool=$source/tools/compare-results
results=$source/bench/results
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# result FILE [FIGURE VALUE]...: writes a file like that of a benchmark
result() {
    local file=$1
    shift
    python3 - "$work/$file" "$@" <<'TEXT'
import json, sys

value = {"submit": 46, "pace": 1000, "goal_share": 0.99, "goal_time": 40, "lost": 0, "copy": 50, "driver": 20}
value.update({"extreme": 900, "round": 7, "pair": 8})
for name, number in zip(sys.argv[2::2], sys.argv[3::2]):
    value[name] = float(number)
json.dump({
    "benchmark": "made_up", "took_s": 5, "machine": {"clock_ns": 3},
    "rows": [
        {"id": "one", "api": "heddle", "submit": {"calls": 9, "median_ns": value["submit"], "max_ns": value["extreme"]},
         "kernels_per_s": {"median": value["pace"], "min": 1}, "rounds": [{"us_per_kernel": value["round"]}]},
        {"id": "two", "api": "driver", "submit": {"median_ns": value["driver"]}},
        {"id": "three", "heddle_gb_per_s": {"median": value["copy"]}, "driver_gb_per_s": {"median": value["driver"]}},
    ],
    "figures": [
        {"id": "heddle_direct_4B", "unit": "us", "values": [[None, value["pair"]], [8, None]]},
        {"id": "driver_direct_4B", "unit": "us", "values": [[None, value["driver"]], [8, None]]},
    ],
    "goals": [
        {"id": "share", "relation": ">=", "limit": 0.98, "value": value["goal_share"], "unit": ""},
        {"id": "time", "relation": "<=", "limit": 50, "value": value["goal_time"], "unit": "ns"},
        {"id": "lost", "relation": "<=", "limit": 0, "value": value["lost"], "unit": ""},
        {"id": "left_out", "relation": "<=", "limit": 2, "value": None, "unit": ""},
    ],
}, open(sys.argv[1], "w"))
TEXT
}

# finds NUMBER TEXT: the tool must find this many slower figures, one of them with TEXT
finds() {
    (cd "$work" && "$tool" --old old*.json --new new*.json) >"$work/out" 2>&1
    local status=$?
    [ $status -eq $(($1 > 0)) ] || fail "status $status: $(cat "$work/out")"
    [ "$(grep -c '^slower by ' "$work/out")" -eq "$1" ] || fail "not $1 slower figures: $(cat "$work/out")"
    grep -qF -- "of 8 figures $1 are slower" "$work/out" || fail "no summary of $1: $(cat "$work/out")"
    grep -qF -- "$2" "$work/out" || fail "does not say \"$2\": $(cat "$work/out")"
}

result old-1.json
result new-1.json
finds 0 '0 faster'
result new-1.json submit 48 pace 960 goal_share 0.95 copy 48 pair 8.3 # all differ by less than 5 %
finds 0 '0 faster'
result new-1.json submit 49
finds 1 'rows one submit median_ns: 46 -> 49'
result new-1.json pace 940
finds 1 'rows one kernels_per_s: 1000 -> 940 (more is better)'
result new-1.json goal_share 0.9 goal_time 43 copy 40 pair 9
finds 4 'goal share: 0.99 -> 0.9 (more is better)'
grep -qF 'goal time: 40 -> 43' "$work/out" || fail "a goal of which less is better: $(cat "$work/out")"
grep -qF 'heddle_direct_4B 0>1 (us): 8 -> 9' "$work/out" || fail "a figure of a pair: $(cat "$work/out")"
result new-1.json lost 2
finds 1 'goal lost: 0 -> 2'
result new-1.json submit 40 pace 1100
finds 0 '2 faster'
result new-1.json driver 90 extreme 99999 round 70 # figures of other libraries, extremes, single rounds
finds 0 '0 faster'

# the best turn of each build counts, so a disturbed turn does not make a build slower
result old-2.json
result new-1.json submit 460
result new-2.json submit 46
finds 0 '0 faster'
result new-2.json submit 60
finds 1 'rows one submit median_ns: 46, 46 -> 460, 60'

for benchmark in lanes faults alloc copy p2p tensor; do # real files contain figures
    file=$results/$(cd "$results" && ls -- *"2xH200-"*"$benchmark.json" | tail -n 1)
    "$tool" --old "$file" --new "$file" >"$work/out" 2>&1 || fail "$file: $(cat "$work/out")"
    grep -qE ' of [0-9]{2,} figures 0 are slower' "$work/out" || fail "$file: $(cat "$work/out")"
done

# refuses WORDS...
refuses() {
    "$tool" "$@" >"$work/out" 2>&1
    [ $? -eq 2 ] && [ "$(wc -l <"$work/out")" -eq 1 ] || fail "$*: not refused with one line: $(cat "$work/out")"
}
refuses
refuses --old "$work/old-1.json"
refuses --old "$work/old-1.json" --new "$work/nowhere.json"
refuses --old "$work/old-1.json" --new "$file" # a file of another benchmark
refuses --no-such-option
exit $failed
