/* heddle.h - the whole public API of Heddle: one program, every GPU, at full speed.
 *
 * Include this one header. The parts, one concept each:
 *
 *   - heddle/version.h   the version and the export macro
 *   - heddle/status.h    what calls return, and the last failure in words and in fields
 *   - heddle/runtime.h   options, hd_open, hd_close, facts about devices
 *   - heddle/lane.h      lanes (in-order queues of work) and tickets (positions in them)
 *   - heddle/buffer.h    tracked memory: allocation, free, host access
 *   - heddle/memory.h    limits, reclaim, statistics and safety of memory
 *   - heddle/unified.h   buffers that the CPU and the GPU both use
 *   - heddle/copy.h      moving and filling bytes
 *   - heddle/peer.h      which device can use which other device's memory
 *   - heddle/module.h    modules, kernels and launches
 *   - heddle/import.h    memory that Heddle did not make, as buffers
 *   - heddle/claim.h     bytes that something outside of Heddle uses: claims, streams, functions of the program
 *   - heddle/tensor.h    shapes and strides over buffers, layouts, matrix products
 *   - heddle/dlpack.h    tensors given to other libraries, and taken from them
 *   - heddle/trace.h     traces: what was submitted, what it waited for, when it ran
 *   - heddle/kernel_file.h  making and describing kernel files
 *   - heddle/driver.h    the driver's own entry points, for programs that need them beside Heddle
 *
 * Kernel source includes heddle/kernel.h instead.
 *
 * Language: C99 or C++11, with the attributes of GNU C. Kernel source is C11. C++17 has heddle.hpp, too.
 *
 * Structures that begin with `size` may get more fields with later releases. The program sets size to sizeof the structure, clears what it does
 * not use, and works with older and newer libraries (docs/abi.md).
 *
 * Threads: every function may be called from any thread at any time unless its comment restricts that.
 * Fork: see heddle/runtime.h.
 */
#ifndef HEDDLE_H
#define HEDDLE_H

#include <heddle/version.h>
#include <heddle/status.h>
#include <heddle/runtime.h>
#include <heddle/lane.h>
#include <heddle/buffer.h>
#include <heddle/memory.h>
#include <heddle/unified.h>
#include <heddle/copy.h>
#include <heddle/peer.h>
#include <heddle/module.h>
#include <heddle/import.h>
#include <heddle/claim.h>
#include <heddle/tensor.h>
#include <heddle/dlpack.h>
#include <heddle/trace.h>
#include <heddle/kernel_file.h>
#include <heddle/driver.h>

#endif
