#!/usr/bin/env bash
# test_report.sh - `heddle report` without a browser: it recognises each file by its content, and
# refuses other files. The page's policy forbids a network, no name ends an element, and the page is
# written whole or not at all.
#
# Promise: `heddle report` writes a page of any trace or result, and refuses other files with a message.
set -u
. "$1/tests/tools/support.sh" "$2" report
source=$1
"${CC:-cc}" -std=c11 -O1 -I "$source/src" -o "$work/make_trace" "$source/tests/report/make_trace.c" || exit 1

# page NAME KINDS FILE...: writes a page; its files must be of these kinds
page() {
    local name=$1 kinds=$2
    shift 2
    "$tool" report -o "$work/$name.html" "$@" >"$work/out" 2>"$work/err" || fail "$name: $(cat "$work/err")"
    [ -s "$work/out" ] || [ -s "$work/err" ] && fail "$name: prints $(cat "$work/out" "$work/err")"
    local got
    got=$(sed -n 's/^ *"kind": "\(.*\)",$/\1/p' "$work/$name.html" | head -n $# | tr '\n' ' ')
    [ "$got" = "$kinds " ] || fail "$name: the files are '$got', not '$kinds'"
    grep -qF "default-src 'none'" "$work/$name.html" || fail "$name: the page has no policy"
    grep -qiE '(src|href)="(https?:)?//' "$work/$name.html" && fail "$name: the page refers to a network"
    grep -qE '@(DATA|SCRIPT|STYLE)@$' "$work/$name.html" && fail "$name: a part of the page is missing"
    [ "$(grep -o '<script' "$work/$name.html" | wc -l)" -eq "$(grep -o '</script>' "$work/$name.html" | wc -l)" ] || fail "$name: elements do not end"
}

# ---- kinds of files
for shape in usual lost empty idle one wide odd cut crowd cupti overlap; do
    "$work/make_trace" "$shape" "$work/$shape.trace" 30 || fail "$shape: not made"
    page "$shape" trace "$work/$shape.trace"
done
HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 "$tool" info --json >"$work/info.json"
"$tool" doctor --from "$source/tests/doctor/machines/a4000-ten-driver-525.json" --json >"$work/doctor.json"
results=$source/bench/results
page all "trace p2p bench bench bench info doctor" "$work/usual.trace" "$results/2026-11-28-2xH200-figures-p2p.json" "$results/2026-11-28-2xH200-figures-copy.json" \
    "$results/2026-11-21-1xH200-cupy.jsonl" "$results/2026-11-24-1xH200-math-libclc.json" "$work/info.json" "$work/doctor.json"

# ---- a snapshot of the doctor is judged: apart from the page's number, its page is that of the
# doctor's own JSON
mkdir "$work/json" "$work/snapshot"
for machine in vm-private-mirror h100-eight-healthy; do
    "$tool" doctor --from "$source/tests/doctor/machines/$machine.json" --json >"$work/json/machine.json"
    "$tool" doctor --from "$source/tests/doctor/machines/$machine.json" --snapshot "$work/snapshot/machine.json" >/dev/null
    for form in json snapshot; do
        page "$form" doctor "$work/$form/machine.json"
        sed -E 's/(nonce[-=]"?)[0-9a-f]{32}/\1/g' "$work/$form.html" >"$work/$form.page"
    done
    grep -qF '"findings": [' "$work/json.page" || fail "$machine: no findings in the page"
    cmp -s "$work/json.page" "$work/snapshot.page" || fail "$machine: a snapshot has another page: $(diff "$work/json.page" "$work/snapshot.page" | head -n 20)"
done
"$tool" trace "$work/usual.trace" >/dev/null 2>&1 || fail "heddle trace does not read the file of make_trace"

# ---- no name ends an element, or counts as a part of the page
grep -qF '</script><b>' "$work/odd.html" && fail "odd: a name ends an element"
grep -qF '\u003c/script>\u003cb>' "$work/odd.html" || fail "odd: the device's name is missing"
grep -qF '\u2028 line \u2029' "$work/odd.html" || fail "odd: the separators are not escaped"
grep -qF '@SCRIPT@ @NUMBER@' "$work/odd.html" || fail "odd: a name was taken for a part of the page"

# ---- a page is written whole or not at all; the default name
(cd "$work" && "$tool" report one.trace) || fail "without -o: status $?"
[ -s "$work/report.html" ] || fail "without -o: no report.html"
"$tool" report -o - "$work/one.trace" >"$work/on-output.html" || fail "-o -: status $?"
[ "$(wc -c <"$work/on-output.html")" -eq "$(wc -c <"$work/one.html")" ] || fail "-o -: it is not the page"
echo before >"$work/kept.html"
refused 1 'no-file: cannot be read' -o "$work/kept.html" "$work/no-file"
[ "$(cat "$work/kept.html")" = before ] || fail "a page that could not be made replaces a file"

# ---- a file is opened once, so a trace or its peaks may be a pipe; - is the input
results_of() { sed -n '/id="file0/,/<\/script>/p' "$1" | grep -v '^ *"name"'; }
mkfifo "$work/pipe" "$work/pipe.json" || exit 1
cat "$work/usual.trace" >"$work/pipe" &
cat "$results/2026-11-28-2xH200-figures-p2p.json" >"$work/pipe.json" &
page piped "trace p2p" "$work/pipe" "$work/pipe.json"
wait
page unpiped "trace p2p" "$work/usual.trace" "$results/2026-11-28-2xH200-figures-p2p.json"
[ -n "$(results_of "$work/piped.html" | head -c 1)" ] || fail "piped: the page has no trace"
[ "$(results_of "$work/piped.html" | sed 's/nonce="[0-9a-f]*"//' | cksum)" = "$(results_of "$work/unpiped.html" | sed 's/nonce="[0-9a-f]*"//' | cksum)" ] ||
    fail "piped: the trace is another one than from a file"
page input trace - <"$work/usual.trace"
grep -qF '"name": "the input"' "$work/input.html" || fail "-: the page does not name the input"

# ---- an output that is an input is refused before anything is written
cp "$work/usual.trace" "$work/same.trace" && ln -s same.trace "$work/link.trace" || exit 1
for output in same link; do
    refused 1 'is the file of the input' "$work/one.trace" "$work/same.trace" -o "$work/$output.trace"
    refused 1 'is the file of the input' - -o "$work/$output.trace" <"$work/same.trace"
done
cmp -s "$work/usual.trace" "$work/same.trace" || fail "a refused output changes the trace"

# ---- files that are refused
echo '{"some": "thing"}' >"$work/other.json"
printf '{"a": 1}\n{"a": \n' >"$work/half.jsonl"
: >"$work/nothing"
head -c 100 /dev/zero >"$work/zeros"
head -c 63 "$work/one.trace" >"$work/short.trace"
for file in other.json half.jsonl nothing zeros short.trace; do
    refused 1 "$file: is no trace and no JSON that a report shows" -o "$work/x.html" "$work/$file"
done
echo '{"heddle_snapshot": 2, "facts": {}}' >"$work/later.json"
refused 1 'later.json: is no snapshot that this tool reads (line 1: a snapshot of form 2' -o "$work/x.html" "$work/later.json"
refused 1 '/dev/zero: is no trace and no JSON' -o "$work/x.html" /dev/zero
refused 1 'cannot be read' -o "$work/x.html" "$work"
refused 1 "cannot write '$work/no/x.html'" -o "$work/no/x.html" "$work/one.trace"
[ -e "$work/x.html" ] && fail "a refused file leaves a page"
refused 2 'a FILE is missing'
refused 2 'too many files' a b c d e f g h i
refused 2 "unknown option '--fast'" --fast "$work/one.trace"
exit $failed
