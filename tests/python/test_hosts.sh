#!/usr/bin/env bash
# test_hosts.sh - memory for the allocators of CuPy, Numba, cuda.core and RMM: random histories of
# the functions of C that these packages call. Also, the table of these packages in the guide is the
# one that tools/make-hosts-table makes of the results of a GPU.
#
# Promise: Memory that other packages take from Heddle belongs to one owner, and late work of Heddle never changes it.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
needs_numpy
failed=0
for placement in thread inline; do
    HEDDLE_PLACEMENT=$placement runs check_hosts || failed=1
done

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$source/tools/make-hosts-table" --check || failed=1
mkdir -p "$work/tools" "$work/tests/gpu" "$work/docs/guide" "$work/bench/results"
cp "$source/tools/make-hosts-table" "$work/tools/" && cp "$source/tests/gpu/python_hosts.py" "$work/tests/gpu/" || exit 1
cp "$source/docs/guide/python.md" "$work/docs/guide/"
cat >"$work/bench/results/2100-01-01-hosts.json" <<'END'
{"gpu": "a GPU", "date": "2100-01-01", "versions": {"cupy-cuda13x": "99.1"},
 "checks": {"cupy_takes": "ok", "cupy_gives": "FAILED: early", "cupy_cost": "ok; 1 us", "jax_takes": "left out: jax"}}
END
! "$work/tools/make-hosts-table" --check >/dev/null || { echo "FAILED: an old table is not found" && failed=1; }
"$work/tools/make-hosts-table" || failed=1
# shellcheck disable=SC2016 # Markdown
grep -qF '| cupy | 99.1 | `cupy.from_dlpack` | a GPU, 2100-01-01 |' "$work/docs/guide/python.md" || {
    echo "FAILED: the table lacks a check that passed, or contains others"
    failed=1
}

# the checks of Numba, and no others, prefer the packages of --numba-packages
PYTHONPATH=$source/tests/gpu:/other python3 -s -c '
import python_hosts as p
numba = p.environment_of("numba_kernels", "/folder/../packages")["PYTHONPATH"]
assert numba.split(":")[0] == "/packages" and numba.endswith("/other"), numba
for name, folder in (("rmm", "/packages"), ("numba_kernels", None)):
    assert "/packages" not in p.environment_of(name, folder)["PYTHONPATH"], name
' || failed=1
for words in "--numba-packages" "--numba-packages $work/missing numpy_takes" "no_check"; do
    # shellcheck disable=SC2086
    python3 -s "$source/tests/gpu/python_hosts.py" $words >"$work/out"
    [ $? -eq 2 ] || { echo "FAILED: python_hosts.py $words" && failed=1; }
done
exit $failed
