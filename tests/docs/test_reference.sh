#!/usr/bin/env bash
# test_reference.sh - the comments of the public headers state all that the reference needs, and the
# reference contains every name.
#
# Promise: Every public function states its errors, owners, waits, threads and release, and the
# reference describes every public name.
#
# tools/check-reference refuses trees in which a comment lacks something, in C and in C++. Doxygen
# makes the HTML if it is installed, without a warning, and every link leads somewhere.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
"$source/tools/check-reference" "$source" || exit 1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# lacks TEXT FILE SCRIPT: after sed changed FILE by SCRIPT, the check must refuse the tree with TEXT
copy=$work/tree
lacks() {
    rm -rf "$copy"
    mkdir -p "$copy/tests"
    cp -r "$source/include" "$source/heddle.map" "$copy"
    cp -r "$source/tests/abi" "$copy/tests"
    sed -i "$3" "$copy/$2"
    cmp -s "$source/$2" "$copy/$2" && fail "$3 changes nothing in $2"
    "$source/tools/check-reference" "$copy" >"$work/out" 2>&1 && fail "$2 after $3 passes"
    grep -qF -- "$1" "$work/out" || fail "$2 after $3 was not refused with \"$1\", but: $(cat "$work/out")"
}
lacks 'hd_lane_add_dependency: has no comment' include/heddle/claim.h 's|^HD_API hd_status hd_lane_add_dependency|\n&|'
lacks 'hd_unmap: its comment lacks the part "Errors: ..."' include/heddle/buffer.h 's/^ \* Errors: HANDLE, ACCESS (device memory, which/ * HANDLE, ACCESS (device memory, which/'
lacks 'hd_unmap: its comment does not describe it' include/heddle/buffer.h \
    's|^/\* Ends one hd_map of .*|/*|; /^ \* end the mapping of another/d; /^ \* memory the call changes/d'
lacks 'hd_unmap: Errors: lists no status' include/heddle/buffer.h 's/^ \* Errors: HANDLE, ACCESS (device memory, which .* that is$/ * Errors: none (/'
lacks 'hd_unmap: Errors: NO_HANDLE is no status' include/heddle/buffer.h 's/^ \* Errors: HANDLE, ACCESS (device memory, which/ * Errors: HANDLE, NO_HANDLE (device memory, which/'
lacks 'hd_read_box: Errors: as hd_message, which lists none' include/heddle/copy.h 's/Errors: as hd_read, and/Errors: as hd_message, and/'
lacks 'hd_buffer_size: its comment neither has the part "Errors: ..." nor says that it cannot fail' include/heddle/buffer.h \
    's/requested size in bytes; 0 for a bad handle/requested size in bytes/'
lacks 'hd_lane_wait: its comment does not name the unit of timeout_ns' include/heddle/lane.h 's/is finished, at most timeout_ns nanoseconds$/is finished, at most timeout_ns/'
lacks 'hd_lane_create: its comment does not say who owns what it gives' include/heddle/lane.h 's/The caller owns the lane, and gives it back with hd_lane_destroy[.] //'
lacks 'hd_unmap: neither its comment nor the head of the header says if it blocks' include/heddle/buffer.h 's/^ \* Blocking: / * /'
lacks 'hd_free: neither its comment nor the head of the header says which threads may call it' include/heddle/buffer.h 's/^ \* Threads: any./ */'
lacks 'hd_more: no record of a release lists it' include/heddle/lane.h 's|^HD_END_DECLS|/* More. Cannot fail. */\nHD_API int hd_more(void);\n&|'
lacks 'hd_lane: has no comment' include/heddle/lane.h '/^\/\* A lane: an in-order queue/d'
lacks 'HD_BOX_DIMS: has no comment' include/heddle/copy.h 's|^\(#define HD_BOX_DIMS 7\) .*|\1|'
lacks 'hd_bits_more_u32: no head of a kernel header describes it' include/heddle/kernel_bits.h \
    's/^HD_DEVICE uint32_t hd_bits_count_u32(uint32_t x)/HD_DEVICE uint32_t hd_bits_more_u32(uint32_t x) { return x; }\n&/'
lacks 'hd_block_dim_x: no head of a kernel header describes it' include/heddle/kernel.h '/^ \*     hd_block_dim_x()/d'
# the C++ headers
lacks 'lane_ref::number: has no comment' include/heddle/cpp/lane.hpp '/hd_lane_number: the number of/d'
lacks 'runtime_ref::create_lane: has no comment' include/heddle/cpp/lane.hpp '/hd_lane_create\. /d'
lacks 'elapsed: hd_ticket_elapsed is no function of C' include/heddle/cpp/lane.hpp 's/hd_ticket_get_elapsed: the time/hd_ticket_elapsed: the time/'
lacks 'owned::close: its comment neither begins with a function of C nor lists its Errors' include/heddle/cpp/owned.hpp 's/ \* Errors: those of/ * Fails as/'
lacks 'the head of the header does not say which threads may call it' include/heddle/cpp/peer.hpp '/^ \* Threads: any/d'

# manual pages: one for each function, and no broken page
man=$work/man/man3
"$source/tools/docs/manual" "$man" || fail "tools/docs/manual ends with $?"
sed -nE 's/^HD_API .*[ *](hd_[a-z0-9_]+)\(.*/\1/p' "$source"/include/heddle/*.h >"$work/functions"
[ "$(wc -l <"$work/functions")" -ge 100 ] || fail "found $(wc -l <"$work/functions") functions"
while read -r name; do
    [ -s "$man/$name.3" ] || fail "$name has no manual page"
done <"$work/functions"
for page in "$man"/*.3; do
    to=$(sed -n '1s|^\.so man3/||p' "$page")
    grep -q '^\.SH NAME' "$man/${to:-${page##*/}}" || fail "${page##*/} is no page, and leads to none"
done
for section in NAME SYNOPSIS DESCRIPTION ERRORS THREADS BLOCKING SINCE; do
    grep -q "^\.SH $section" "$man/hd_wait.3" || fail "hd_wait.3 lacks $section"
done
grep -qx 'Heddle 0.1' "$man/hd_wait.3" || fail 'hd_wait came with 0.1'
grep -qx 'Heddle 0.2' "$man/hd_claim_wait.3" || fail 'hd_claim_wait came with 0.2'
grep -q '^\.so man3/heddle_kernel_warp.3' "$man/hd_warp_reduce_add_f32.3" || fail 'hd_warp_reduce_add_f32 does not lead to heddle_kernel_warp'
if installed groff; then
    said=$(cd "$work/man" && groff -man -ww -Tutf8 -z man3/heddle_*.3 man3/hd_open.3 man3/hd_launch.3 man3/hd_error.3 2>&1)
    [ -z "$said" ] || fail "groff: $said"
fi

# the whole reference
if installed doxygen; then
    "$source/tools/make-reference" "$work/reference" >"$work/out" 2>&1 || fail "tools/make-reference: $(cat "$work/out")"
    for page in index names group__lane group__kernel__warp group__mpi group__cpp__lane; do
        [ -s "$work/reference/$page.html" ] || fail "there is no $page.html"
    done
    grep -q '>hd_claim_begin_stream<' "$work/reference/names.html" || fail 'names.html lacks hd_claim_begin_stream'
    grep -q '#cpp_lane_hd_lane_ref_add_dependency">hd::lane_ref::add_dependency<' "$work/reference/names.html" || fail 'names.html lacks hd::lane_ref::add_dependency'
    grep -q 'Errors, as hd_lane_wait' "$work/reference/group__cpp__lane.html" || fail 'hd::lane_ref::wait does not repeat the errors of hd_lane_wait'
    "$source/tools/check-reference" "$source" "$work/reference" >"$work/out" || fail "$(cat "$work/out")"
    sed -i 's/hd_done//g' "$work/reference/group__lane.html"
    "$source/tools/check-reference" "$source" "$work/reference" 2>&1 | grep -q 'hd_done: is not on its page' || fail 'a page without hd_done passes'
    sed -i 's/cpp_lane_hd_ticket_done//g' "$work/reference/group__cpp__lane.html"
    "$source/tools/check-reference" "$source" "$work/reference" 2>&1 | grep -q 'ticket::done: is not on its page' || fail 'a page without hd::ticket::done passes'
fi
exit $failed
