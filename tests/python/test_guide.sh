#!/usr/bin/env bash
# test_guide.sh - the blocks of Python in docs/guide/python.md run as one program, and the examples
# in examples/python run.
#
# Promise: Every example in Python in the guide and in examples/python runs on host devices.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
export HEDDLE_HOST_DEVICES=2
awk '/^```python$/ { inside = 1; blocks++; next } /^```$/ { inside = 0; print "" } inside
    END { if (blocks < 8) print "raise SystemExit(\"too few blocks\")" }' "$source/docs/guide/python.md" >"$work/guide.py"
cat >>"$work/guide.py" <<'END'
import sys
with open("smooth.c", "w") as file:
    file.write("""#include <heddle/kernel.h>
HD_KERNEL(smooth, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(uint64_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] = (x[i] + x[i + 1 < n ? i + 1 : i]) / 2;
    }
}
""")
import subprocess
subprocess.run([sys.executable, "-s", "-m", "heddle", "cc", "--no-gpu", "-I", sys.argv[1], "-o", "smooth.hdk", "smooth.c"], check=True)
smooth("smooth.hdk", y, x)
assert y.numpy().tolist()[:2] == [0.5, 1.5]
END
(cd "$work" && python3 -s guide.py "$source/include") || failed=1
for example in "$source"/examples/python/*.py; do
    python3 -s "$example" || {
        echo "FAILED: $example"
        failed=1
    }
done
exit $failed
