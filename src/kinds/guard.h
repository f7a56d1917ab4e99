/* guard.h - option memory_debug: guard bytes around device buffers, fill patterns for fresh and freed content, and the findings about them.
 * See findings.h for the findings, and heddle/memory.h for what the program sees.
 *
 * Threads: any.
 * Locks: the order lock of the device. A caller holds no lock of the library.
 * Blocking: when a buffer's memory is given back, for the work on it.
 * Always: hd_runtime.findings is NULL where the option is off.
 */
#ifndef HDI_KINDS_GUARD_H
#define HDI_KINDS_GUARD_H

#include "buffer/kind.h"

#define HDI_GUARD_BYTES 256
#define HDI_GUARD_WORD 0xfdfdfdfdu
#define HDI_FRESH_WORD 0x7ff7fff7u /* a NaN as a float of 16, 32 or 64 bits, and as a bfloat16 */
#define HDI_FREED_WORD 0xddddddddu

extern const hdi_buffer_ops hdi_guard_ops;

#endif
