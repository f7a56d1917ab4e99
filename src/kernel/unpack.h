/* unpack.h - unpacks the parts that nvcc compressed in a fatbin: blocks of LZ4, and zstd.
 *
 * LZ4 is read here. For zstd libzstd.so.1 is opened at run time, once, and stays open.
 * Threads: any. Locks: those of pthread_once. Blocking: the first use of zstd opens the library.
 * Always: exactly `room` bytes are written on success, and never more.
 */
#ifndef HDI_KERNEL_UNPACK_H
#define HDI_KERNEL_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

/* False: the block is damaged, or holds another number of bytes than `room`. */
bool hdi_unpack_lz4(const void *packed, size_t bytes, void *out, size_t room);

/* False: the block is damaged, holds another number of bytes, or libzstd.so.1 is not installed
 * (hdi_unpack_has_zstd). */
bool hdi_unpack_zstd(const void *packed, size_t bytes, void *out, size_t room);
bool hdi_unpack_has_zstd(void);

#endif
