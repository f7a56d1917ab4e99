#!/usr/bin/env bash
# test_figures.sh - the figures in README and docs/benchmarks.md name their commit and log, and are
# valid while no hot path costs more. tools/count-instructions finds violations in made-up trees,
# and none in this tree.
#
# Promise: Published figures name their commit, and a hot path that costs more makes them invalid.
set -u
source=$1
. "$source/tests/support/installed.sh"
tool=$source/tools/count-instructions
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

tree=$work/tree
# Makes a tree with two blocks of figures from one commit each. The counts have not changed since
# these commits.
make_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/tests/guard" "$tree/bench/results"
    cat >"$tree/README.md" <<'TEXT'
# Heddle

| a table | that holds no figures |
|---|---|

## Measured

Whole tables: [bench/results/](bench/results/).

Measured at `aaaaaa1` ([first](bench/results/first.txt)), `bbbbbb2` ([second](bench/results/second.txt)).

| launches | here | there |
|---|---|---|
| all | 5 ns | 6 ns |

Measured at `bbbbbb2` ([second](bench/results/second.txt)).

| memory | here |
|---|---|
| all | 5 ns |

## Licence
TEXT
    printf '== machine\ncommit aaaaaa1\n' >"$tree/bench/results/first.txt"
    printf '== machine\ncommit bbbbbb2\n' >"$tree/bench/results/second.txt"
    printf '# compiler gcc 12.2.0\nlaunch 200.0\ndone 20.0\n' >"$tree/tests/guard/instructions.txt"
    printf '# compiler gcc 12.2.0\nrow aaaaaa1 bbbbbb2\nlaunch 199.0 204.0\ndone 20.0 20.0\n' >"$tree/tests/guard/measured.txt"
}

# says STATUS TEXT
says() {
    "$tool" --figures "$tree" >"$work/out" 2>&1
    local status=$?
    [ $status -eq "$1" ] || fail "status $status, not $1: $(cat "$work/out")"
    [ -z "$2" ] || grep -qF -- "$2" "$work/out" || fail "does not say \"$2\": $(cat "$work/out")"
}

make_tree
says 0 ''
sed -i 's/^launch .*/launch 207.0/' "$tree/tests/guard/instructions.txt" # 4 % more than at the first commit, and 1.5 % more than at the second
says 1 "the figures of aaaaaa1"
grep -q 'bbbbbb2' "$work/out" && fail "figures that hold are complained about: $(cat "$work/out")"
make_tree
sed -i 's/^launch .*/launch 150.0/' "$tree/tests/guard/instructions.txt" # cheaper now: the figures promise less than this build achieves
says 0 ''
make_tree
sed -i 's/^launch .*/launch 211.0/' "$tree/tests/guard/instructions.txt" # 3.4 % more than at the second commit; the figures for memory do not depend on this row
sed -i 's/^Measured at `bbbbbb2` (\(.*\))\.$/Measured at `bbbbbb2` (\1); not counted in instructions./; s/, `bbbbbb2` (\[second\].*/./' "$tree/README.md"
says 1 "the figures of aaaaaa1"
grep -q 'bbbbbb2' "$work/out" && fail "figures that are not counted are complained about: $(cat "$work/out")"
make_tree
echo 'copy 100.0' >>"$tree/tests/guard/instructions.txt"
says 1 'copy: 100.0 in tests/guard/instructions.txt, not in'
echo 'copy - -' >>"$tree/tests/guard/measured.txt" # a path that did not exist when the figures were measured
says 0 ''
make_tree
sed -i 's/^row .*/row aaaaaa1 ccccccc/' "$tree/tests/guard/measured.txt"
says 1 'has no counts'
make_tree
sed -i 's/^Measured at `bbbbbb2`.*/Measured once./' "$tree/README.md"
says 1 'does not name the commit'
make_tree
echo 'commit ddddddd' >"$tree/bench/results/second.txt"
says 1 'bench/results/second.txt does not'
make_tree
rm "$tree/tests/guard/measured.txt"
says 77 'not recorded yet'
make_tree
mkdir "$tree/docs"
printf '## Memory\n\n| all | 5 ns |\n\n## Runs\n\n| one | two |\n' >"$tree/docs/benchmarks.md"
says 1 'does not name the commit'
printf '## Memory\n\nMeasured at `bbbbbb2` ([second](../bench/results/second.txt)).\n\n| all | 5 ns |\n\n## Runs\n\n| one | two |\n' \
    >"$tree/docs/benchmarks.md"
says 0 ''
sed -i 's/bbbbbb2/aaaaaa1/' "$tree/docs/benchmarks.md"
says 1 'bench/results/second.txt does not'
make_tree
sed -i '/^## Measured/d' "$tree/README.md"
says 2 'no figures'

[ $failed -eq 0 ] || exit 1
if installed python3; then
    "$source/tools/make-benchmarks" --check "$source" || exit 1
    # finds an added character in each of the files, and writes the files again
    mkdir -p "$work/copy/bench" "$work/copy/tests/kernel"
    cp -r "$source/docs" "$source/README.md" "$work/copy"
    ln -s "$source/bench/results" "$work/copy/bench"
    ln -s "$source/tests/kernel/math" "$work/copy/tests/kernel"
    for file in docs/benchmarks.md docs/pictures/figures.svg README.md; do
        sed -i 's/^Measured at `/&0/; s/ viewBox=/ &/' "$work/copy/$file"
        "$source/tools/make-benchmarks" --check "$work/copy" >"$work/out" 2>&1
        [ $? -eq 1 ] && grep -qxF -- "--- $file" "$work/out" || fail "$file differs, and passes: $(cat "$work/out")"
        "$source/tools/make-benchmarks" "$work/copy" && cmp "$source/$file" "$work/copy/$file" || fail "$file is not written again"
    done
    # runs with transfers beside waiting work get a separate table
    cp -r "$source/bench/results" "$work/results" && rm "$work/copy/bench/results" && mv "$work/results" "$work/copy/bench/results"
    python3 - "$work/copy/bench/results" <<'END'
import glob, json, sys
side = {"alone_ratio": {"median": 1.25}}
rows = [{"id": name, "other": side, "own": side} for name in ("read", "write", "copy", "fill")]
for path in glob.glob(sys.argv[1] + "/*-figures-submit-thread.json"):
    for placement in ("thread", "process", "inline"):
        with open(path) as file:
            data = json.load(file)
        with open(path.replace("thread.json", placement + ".json"), "w") as file:
            json.dump({**data, "transfers": rows}, file)
END
    "$source/tools/make-benchmarks" "$work/copy" || fail "make-benchmarks fails with transfers beside waiting work"
    grep -q '^| `hd_read`, 4 KiB, beside its own copies | 1.250 | 1.250 | 1.250 | submit |$' "$work/copy/docs/benchmarks.md" ||
        fail "the figures of transfers beside waiting work are missing"
    [ $failed -eq 0 ] || exit 1
fi
"$tool" --figures "$source"
