/* sized.h - structures that grow from release to release, and begin with `size`, which the program
 * sets (docs/abi.md).
 *
 * Threads: any. Locks: none. Always: no byte behind the program's `size` is read or written. If
 * only the program or only the library knows a field, the field is 0 for the other one.
 */
#ifndef HDI_BASE_SIZED_H
#define HDI_BASE_SIZED_H

#include <stddef.h>
#include <string.h>
#include <heddle/buffer.h>
#include <heddle/claim.h>
#include <heddle/import.h>
#include <heddle/copy.h>
#include <heddle/dlpack.h>
#include <heddle/kernel_file.h>
#include <heddle/memory.h>
#include <heddle/module.h>
#include <heddle/peer.h>
#include <heddle/runtime.h>
#include <heddle/status.h>
#include <heddle/tensor.h>
#include <heddle/trace.h>

/* X(structure, the last field of its first release). New fields always come behind that field, so
 * this table does not change with them. */
#define HDI_SIZED_MAP(X)                                                                                               \
    X(hd_error, message)                                                                                               \
    X(hd_options, settings)                                                                                            \
    X(hd_device_info, restarts)                                                                                        \
    X(hd_device_loss, message)                                                                                         \
    X(hd_runtime_info, device_count)                                                                                   \
    X(hd_option_info, is_default)                                                                                      \
    X(hd_device_stats, bytes_live)                                                                                     \
    X(hd_alloc_options, label)                                                                                         \
    X(hd_memory_stats, overruns)                                                                                       \
    X(hd_peer_info, reason)                                                                                            \
    X(hd_box, src_stride)                                                                                              \
    X(hd_kernel_file_parts, description_bytes)                                                                         \
    X(hd_reclaim, limit_bytes)                                                                                         \
    X(hd_memory_block, lost)                                                                                           \
    X(hd_finding, message)                                                                                             \
    X(hd_matmul_info, reason)                                                                                          \
    X(hd_parameter_info, name)                                                                                         \
    X(hd_compile_options, n_kernels)                                                                                   \
    X(hd_claim_options, label)                                                                                         \
    X(hd_import_options, context)                                                                                      \
    X(hd_export, fabric)                                                                                               \
    X(hd_dlpack_options, label)                                                                                        \
    X(hd_trace_options, file_limit)                                                                                    \
    X(hd_trace_info, bytes)                                                                                            \
    X(hd_trace_rank, within_ns)                                                                                        \
    X(hd_trace_message, ended_ns)

/* The least `size` of each structure: no program was ever compiled with a smaller one. */
enum {
#define HDI_SIZED_LEAST(structure, last)                                                                               \
    HDI_LEAST_##structure = offsetof(structure, last) + sizeof(((structure *)0)->last),
    HDI_SIZED_MAP(HDI_SIZED_LEAST)
#undef HDI_SIZED_LEAST
};

/* If `size` is larger, the program did not set it: it is garbage from the program's memory. */
#define HDI_SIZED_MOST 16384

/* A structure for a callback's argument. Zeros follow it, for a program that knows more fields than
 * the library. */
#define HDI_SIZED_TOLD(structure)                                                                                      \
    struct {                                                                                                           \
        structure known;                                                                                               \
        char spare[256];                                                                                               \
    }

/* Use the macros below. `known` is the size of the structure in this library. */
hd_status hdi_sized_refuse(const char *structure, size_t size, size_t least);
const void *hdi_sized_convert(const char *structure, const void *given, void *room, size_t known, size_t least);
void hdi_sized_give(void *out, const void *from, size_t known);

static inline const void *hdi_sized_take(const char *structure, const void *given, void *room, size_t known,
                                         size_t least)
{
    if (__builtin_expect(*(const size_t *)given == known, 1)) {
        return given;
    }
    return hdi_sized_convert(structure, given, room, known, least);
}

/* An input in the library's format: `given`, or `room` if the program is older. NULL: the input is
 * refused (ARGUMENT), because the size was not set, or because a newer program requests a feature
 * that this library lacks. */
#define HDI_SIZED_IN(structure, given, room)                                                                           \
    ((const structure *)hdi_sized_take(#structure, given, room, sizeof(structure), HDI_LEAST_##structure))

/* HD_OK if an output's size can be right; otherwise ARGUMENT. Check it before anything else. */
#define HDI_SIZED_CHECK(structure, out)                                                                                \
    ((out)->size >= HDI_LEAST_##structure && (out)->size <= HDI_SIZED_MOST                                             \
         ? HD_OK                                                                                                       \
         : hdi_sized_refuse(#structure, (out)->size, HDI_LEAST_##structure))

/* Fills an output except for its size: the common fields, and zeros behind them. */
#define HDI_SIZED_OUT(structure, out, from) hdi_sized_give(out, (const structure *){from}, sizeof(structure))

#endif
