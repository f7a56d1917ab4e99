/* unpack.h - unpacks the parts that nvcc compressed in a fatbin: blocks of LZ4, and zstd.
 *
 * This code unpacks LZ4 itself. For zstd it opens libzstd.so.1 once at run time, and the library
 * stays open.
 * Threads: any. Locks: those of pthread_once. Blocking: the first use of zstd opens the library.
 * Always: on success a function writes exactly `room` bytes, and it never writes more.
 */
#ifndef HDI_KERNEL_UNPACK_H
#define HDI_KERNEL_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

/* Unpacks a block of LZ4. False: the block is damaged, or contains a number of bytes other than
 * `room`. */
bool hdi_unpack_lz4(const void *packed, size_t bytes, void *out, size_t room);

/* Unpacks a block of zstd. False: the block is damaged, contains another number of bytes, or
 * libzstd.so.1 is not installed (hdi_unpack_has_zstd). */
bool hdi_unpack_zstd(const void *packed, size_t bytes, void *out, size_t room);
bool hdi_unpack_has_zstd(void);

#endif
