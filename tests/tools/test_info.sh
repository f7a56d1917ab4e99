#!/usr/bin/env bash
# test_info.sh - `heddle info` prints every option in columns, with the source of its value.
#
# Promise: `heddle info` shows every option with its value and the source of that value.
set -u
. "$1/tests/tools/support.sh" "$2" info

export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=1 HEDDLE_HOST_MEMORY=1G HEDDLE_LANE_SLOTS=128
"$tool" info >"$work/out" 2>"$work/err" || fail "info fails: $(cat "$work/err")"
[ -s "$work/err" ] && fail "info complains: $(cat "$work/err")"
sed -n '/^options /,$p' "$work/out" | sed 1d >"$work/all"
grep -E '^  [a-z]' "$work/all" >"$work/options"
options=$(sed -n 's/^    X([a-z].*/x/p' "$1/src/base/options.h" | wc -l)
[ "$(wc -l <"$work/options")" -eq "$options" ] || fail "info does not show $options options: $(cat "$work/options")"
[ "$(awk '/^  [a-z]/ { if (bare) exit; bare = 1; n++ } /^      [^ ]/ { bare = 0 } END { print n }' "$work/all")" -eq "$options" ] ||
    fail "an option has no description: $(cat "$work/all")"
sed -i -E '/^  [a-z_]+ +[*=]? *\//d' "$work/options" # a path shifts the columns of its line
[ "$(awk '{ print index($0, "HEDDLE_") }' "$work/options" | sort -u | wc -l)" -eq 1 ] ||
    fail "the environment's names are not in one column: $(cat "$work/options")"
sed -E '/^  [a-z_]+ +[*=]? *\//d' "$work/out" | awk 'length > 110 { print; bad = 1 } END { exit bad }' >"$work/long" ||
    fail "lines are too long: $(cat "$work/long")"
grep -qE '^  lane_slots +\* 128 ' "$work/options" || fail "lane_slots is not marked as set"
grep -qE '^  host_memory += 1G ' "$work/options" || fail "host_memory is not marked as set to its default"
grep -qE '^  placement +thread ' "$work/options" || fail "placement is marked"

"$tool" info --json >"$work/json" || fail "info --json fails"
for pair in lane_slots:environment host_memory:environment placement:default; do
    grep -A 6 "\"name\": \"${pair%:*}\"" "$work/json" | grep -q "\"source\": \"${pair#*:}\"" || fail "JSON: source of ${pair%:*}"
done

# the tool reports a variable that is no option once, and the rest stays the same
HEDDLE_MEMORY_LIMT=1G "$tool" info >"$work/again" 2>"$work/err" || fail "info fails beside a wrong variable"
[ "$(wc -l <"$work/err")" -eq 1 ] && grep -q 'HEDDLE_MEMORY_LIMT (did you mean HEDDLE_MEMORY_LIMIT?)' "$work/err" ||
    fail "info does not tell of HEDDLE_MEMORY_LIMT: $(cat "$work/err")"
HEDDLE_MEMORY_LIMT=1G HEDDLE_PLACEMENT=process "$tool" info 2>"$work/err" >/dev/null || fail "info fails with workers"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "worker processes tell it again: $(cat "$work/err")"
refused 2 "unknown option '--nonsense'" --nonsense
refused 2 "unexpected '12'" 12
refused 2 "'x' is no process id" --memory x
refused 2 "unexpected '2'" --memory 1 2
refused 2 "'12' may be a process id or a file" --memory --json 12
refused 2 "unknown option '--memry' (did you mean '--memory'?)" --memry

# a failure comes behind the whole text, even if both go to the same file
HEDDLE_PLACEMENT=nowhere "$tool" info >"$work/both" 2>&1
[ $? -eq 1 ] || fail "info with a wrong option succeeds"
case $(tail -n 1 "$work/both") in
"heddle info: hd_open: option HEDDLE_PLACEMENT=nowhere"*) ;;
*) fail "the failure is not the last line: $(tail -n 3 "$work/both")" ;;
esac

# JSON into a file, beside the text
"$tool" info --json "$work/file.json" >"$work/again" 2>"$work/err" || fail "info --json FILE: $(cat "$work/err")"
grep -q '^options ' "$work/again" || fail "with JSON in a file there is no text"
grep -q '"name": "lane_slots"' "$work/file.json" || fail "no JSON in the file: $(head -n 5 "$work/file.json")"
"$tool" info --memory --json "$work/memory.json" >"$work/again" 2>"$work/err" || fail "info --memory --json FILE: $(cat "$work/err")"
[ "$(head -c 1 "$work/memory.json")" = '{' ] || fail "no JSON of the memory: $(head -n 5 "$work/memory.json")"
"$tool" info --json "$work/none/x.json" >"$work/again" 2>"$work/err"
[ $? -eq 1 ] && grep -q 'cannot be written' "$work/err" || fail "a file that cannot be written: $(cat "$work/err")"
command=()
refused 2 "heddle: unknown option '--nonsense'" --nonsense
refused 2 "heddle: unknown command 'inf' (did you mean 'info'?)" inf
refused 2 "heddle: unknown command 'docter' (did you mean 'doctor'?)" help docter
refused 2 "heddle: unknown command 'xyzzy'" xyzzy
grep -q 'did you mean' "$work/err" && fail "a word that is none has a hint: $(cat "$work/err")"
refused 2 'heddle: a command is missing'
[ "$("$tool" -V)" = "$("$tool" --version)" ] || fail "-V is not --version"
"$tool" -h | cmp -s - <("$tool" help) || fail "-h is not help"
exit $failed
