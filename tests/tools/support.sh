# support.sh - the beginning of the tool's tests, and functions that they share. A test with the
# source and the build as arguments begins with `. "$1/tests/tools/support.sh" "$2" WORD...`. The
# words are the tested command, such as bench copy.
#
# Sets tool, command (the words), work (a folder that is removed at the end of the test), and
# failed, which becomes 1 after a failed check. Skips the test if the program is not built.
. "${BASH_SOURCE%/*}/../support/installed.sh"
tool=$1/heddle
command=("${@:2}")
program=$tool
[ "$2" != bench ] || program=$tool-bench
[ -x "$program" ] || {
    echo "skipped: $program is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# refused STATUS TEXT ARGUMENT...: the command must end with STATUS, print TEXT on stderr, and print
# no results
refused() {
    local status=$1 text=$2
    shift 2
    "$tool" "${command[@]}" "$@" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got -eq "$status" ] || fail "${command[*]} $*: status $got, not $status: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "${command[*]} $*: does not say \"$text\": $(cat "$work/err")"
    [ -s "$work/out" ] && fail "${command[*]} $*: prints results: $(head -n 3 "$work/out")"
    return 0
}

# shows RECORD TABLE [TEXT]...: the table must contain every row and goal of the record, with
# figures and notes, in lines of at most 120 columns, and the texts
shows() {
    local record=$1 table=$2 text
    shift 2
    for text in "$@"; do
        grep -qF -- "$text" "$table" || fail "the table lacks \"$text\""
    done
    installed python3 || return 0
    python3 - "$record" "$table" <<'END' || fail "the table $table is not that of $record"
import json, re, sys

record = json.load(open(sys.argv[1]))
table = open(sys.argv[2]).read()
words = " ".join(table.split())
missing = []


def needs(text):
    if " ".join(str(text).split()) not in words:
        missing.append(text)


def name_of(row):
    return next((row[key] for key in ("text", "name", "id", "kind", "kernel") if row.get(key)), None)


def rows_of(value):
    named = isinstance(value, list) and value and isinstance(value[0], dict) and name_of(value[0])
    return value if named and "round" not in value[0] else []


for key, value in record.items():
    if key not in ("command", "machine", "runtime", "options", "goals"):
        for row in rows_of(value):
            needs(name_of(row))
            for note in ("left_out", "note", "told"):
                needs(row.get(note, ""))
            for inner in (each for member in row.values() for each in rows_of(member)):
                needs(name_of(inner))
for goal in record.get("goals", []):
    if goal["value"] is not None:
        needs(goal["text"])
for text in (record.get("note", ""), record.get("shown", ""), "Took %.0f s." % record["took_s"]):
    needs(text)
for key, value in record["run"].items() if "run" in record else ():
    if isinstance(value, int):
        needs(value) if "bytes" not in key and not key.endswith(("_ns", "_ms")) else None
wide = [line for line in table.splitlines() if len(line) > 120]
if missing or wide:
    print("missing: %s; wide: %s" % (missing, wide))
sys.exit(bool(missing or wide))
END
}
