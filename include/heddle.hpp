/* heddle.hpp - the whole public API of Heddle for C++17 and later, in headers alone.
 *
 *     #include <heddle.hpp>
 *
 *     hd::runtime runtime = hd::open();
 *     hd::lane_ref lane = runtime.default_lane(0);
 *     hd::buffer<float> x = hd::alloc<float>(lane, n), y = hd::alloc<float>(lane, n);
 *     hd::kernel axpy = runtime.builtin_module().kernel("hd_axpy_f32");
 *     hd::launch(lane, axpy, hd::blocks(n, 256), 256, hd::inout(y), hd::in(x), 2.0f,
 *                std::uint64_t(n));
 *
 * These headers wrap the C headers, which are the reference. The comment of each C++ call names the
 * C call that it makes, and states the differences between the two. Errors, waits and order are
 * those of the C call.
 *
 *   - heddle/cpp/result.hpp   failures: thrown as hd::error, or returned as hd::expected with
 *                             HEDDLE_NO_EXCEPTIONS
 *   - heddle/cpp/owned.hpp    handles that release themselves (hd::lane), and handles that do not
 *                             (hd::lane_ref)
 *   - heddle/cpp/runtime.hpp  hd::open, devices, options
 *   - heddle/cpp/lane.hpp     lanes and tickets
 *   - heddle/cpp/buffer.hpp   buffers of elements, spans of them, mapped memory
 *   - heddle/cpp/copy.hpp     moving and filling elements, boxes
 *   - heddle/cpp/module.hpp   modules, kernels and launches
 *   - heddle/cpp/import.hpp   buffers over memory that Heddle did not allocate, and memory for
 *                             other processes
 *   - heddle/cpp/claim.hpp    claims, the program's own streams, functions in lanes and on the host
 *   - heddle/cpp/memory.hpp   limits, reclaim, statistics and safety of memory
 *   - heddle/cpp/peer.hpp     which device can use the memory of which other device
 *   - heddle/cpp/tensor.hpp   shapes and strides, layouts, matrix products
 *   - heddle/cpp/dlpack.hpp   exchange of tensors with other libraries
 *   - heddle/cpp/mpi.hpp      operands of MPI; only if the program includes this header itself
 *   - heddle/cpp/tools.hpp    kernel files, the driver's own entry points
 *
 * Threads: as in C, any thread may call any function at any time, unless the comment of the
 * function restricts that.
 * Locks: none.
 * Always: all code of the C++ API is in these headers; the library contains only the C API.
 */
#ifndef HEDDLE_HPP
#define HEDDLE_HPP

#include <heddle/cpp/result.hpp>
#include <heddle/cpp/owned.hpp>
#include <heddle/cpp/runtime.hpp>
#include <heddle/cpp/lane.hpp>
#include <heddle/cpp/buffer.hpp>
#include <heddle/cpp/copy.hpp>
#include <heddle/cpp/module.hpp>
#include <heddle/cpp/claim.hpp>
#include <heddle/cpp/import.hpp>
#include <heddle/cpp/memory.hpp>
#include <heddle/cpp/peer.hpp>
#include <heddle/cpp/tensor.hpp>
#include <heddle/cpp/dlpack.hpp>
#include <heddle/cpp/tools.hpp>

#endif
