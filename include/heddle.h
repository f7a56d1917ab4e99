/* heddle.h - the whole public API of Heddle, a library by which one process drives all GPUs of a
 * machine.
 *
 * Include this header alone. It includes these parts, one for each concept:
 *
 *   - heddle/version.h   the version and the export macro
 *   - heddle/status.h    status codes, and the last failure as text and as fields
 *   - heddle/runtime.h   options, hd_open, hd_close, properties of devices
 *   - heddle/lane.h      lanes (in-order queues of work) and tickets (positions in them)
 *   - heddle/buffer.h    tracked memory: allocation, free, host access
 *   - heddle/memory.h    limits, reclaim, statistics and safety of memory
 *   - heddle/unified.h   buffers that the CPU and the GPU both use
 *   - heddle/copy.h      moving and filling bytes
 *   - heddle/peer.h      which device can use the memory of which other device
 *   - heddle/module.h    modules, kernels and launches
 *   - heddle/import.h    buffers over memory that Heddle did not allocate
 *   - heddle/claim.h     claims on bytes that other code uses, work in the program's own streams,
 *                        host functions
 *   - heddle/tensor.h    shapes and strides over buffers, layouts, matrix products
 *   - heddle/dlpack.h    exchange of tensors with other libraries
 *   - heddle/trace.h     traces: each operation, its waits and its times
 *   - heddle/kernel_file.h  making and describing kernel files
 *   - heddle/deprecated.h  former names, for one release
 *   - heddle/driver.h    the driver's own entry points, for programs that also call the driver
 *                        themselves
 *
 * Kernel source includes heddle/kernel.h instead.
 *
 * Language: C99 or C++11, with the attributes of GNU C. Kernel source is C11. C++17 programs can
 * use heddle.hpp.
 *
 * Structures that begin with `size` may gain fields in later releases. A program sets `size` to the
 * sizeof of the structure, and sets the fields that it does not use to 0. The program then works
 * with older and newer libraries (docs/abi.md).
 *
 * Threads: any thread may call any function at any time, unless the comment of the function
 * restricts that.
 * Blocking: each header lists its calls that wait. All other calls return at once: they wait at
 * most for a lock that another thread holds during a call on the same runtime.
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
#ifndef HD_NO_DEPRECATED
#include <heddle/deprecated.h>
#endif

#endif
