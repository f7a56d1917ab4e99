#!/usr/bin/env bash
# test_record.sh - the binary interface agrees with its record, and the check notices when a
# function, a field or a constant is removed, changed or added.
#
# Promise: The public headers agree with the recorded interface, and the check reports every removal, change and
# addition.
set -u
source=$1
build=$2

"$source/tools/check-abi" "$source" "$build" || exit 1

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
failed=0

# expect TEXT FILE SCRIPT: after sed changed FILE by SCRIPT, the check must refuse the tree with
# TEXT
expect() {
    rm -rf "$copy/include" "$copy/tests"
    mkdir -p "$copy/tests"
    cp -r "$source/include" "$source/heddle.map" "$source/CMakeLists.txt" "$copy"
    cp -r "$source/tests/abi" "$copy/tests"
    sed -i "$3" "$copy/$2"
    cmp -s "$source/$2" "$copy/$2" && echo "$3 changes nothing in $2" && failed=1
    if output=$("$source/tools/check-abi" "$copy" 2>&1) || ! grep -q -- "$1" <<<"$output"; then
        echo "$2 after $3 was not refused with \"$1\", but: $output"
        failed=1
    fi
}
expect 'gone or has changed: function.* hd_done(' include/heddle/lane.h '/HD_API bool hd_done/d'
expect 'gone or has changed: function.* hd_fill(' include/heddle/copy.h 's/uint32_t pattern/uint64_t pattern/'
expect 'gone or has changed: callback.*hd_reclaim_callback' include/heddle/memory.h 's/(void \*context, const hd_reclaim/(const hd_reclaim/'
expect 'gone or has changed: field hd_box.dims' include/heddle/copy.h 's/^    size_t row; /&int between; /'
expect 'gone or has changed: field hd_error.lane' include/heddle/status.h '/^    int lane;/d'
expect 'gone or has changed: structure hd_tensor' include/heddle/tensor.h 's/^    int64_t stride\[HD_TENSOR_DIMS\];/& int more;/'
expect 'gone or has changed: constant HD_WRITE ' include/heddle/buffer.h 's/HD_WRITE = 2/HD_WRITE = 4/'
expect 'gone or has changed: constant HD_ERROR_HANDLE ' include/heddle/status.h 's/X(ERROR_HANDLE, -2/X(ERROR_HANDLE, -22/'
expect 'gone or has changed: function HEDDLE_0.2.* hd_free(' heddle.map '/ hd_free;/d'
expect 'new .*: field hd_options.more' include/heddle/runtime.h 's/^    const char \*settings;/&\n    int more;/'
expect 'new .*: function without a release: .* hd_more(' include/heddle/lane.h 's/^HD_END_DECLS/HD_API int hd_more(void);\n&/'
expect 'hd_more is in heddle.map, but no header' heddle.map 's/^ *hd_free;/&\n hd_more;/'
# a release with another number may have another interface, and the number never goes back
expect 'heddle-0.1.txt: this is gone or has changed: function.* hd_device_info(' CMakeLists.txt 's/^set(heddle_abi 2)/set(heddle_abi 1)/'
expect 'heddle-0.3.txt: this is gone or has changed: library libheddle.so.2' CMakeLists.txt 's/^set(heddle_abi 2)/set(heddle_abi 3)/'
expect 'heddle-0.1.txt: is of libheddle.so.1, and the library is libheddle.so.0' CMakeLists.txt 's/^set(heddle_abi 2)/set(heddle_abi 0)/'
# a structure that begins with its size may grow: the check reports only the new field
expect 'new .*: field hd_error.more' include/heddle/status.h 's/^} hd_error;/int more;\n&/'
grep -q 'gone' <<<"$output" && echo "a structure that may grow has changed: $output" && failed=1
exit $failed
