/* heddle/cpp/import.hpp - buffers over memory that Heddle did not allocate, and memory for other
 * processes. heddle/import.h is the reference.
 *
 *     hd::buffer<float> theirs = hd::import_device(runtime, 0, pointer, n, "theirs");
 *     hd::buffer<float> mine = hd::import_host(runtime, vector.data(), vector.size());
 *
 *     hd::buffer<float> one = hd::alloc_piece<float>(lane, n);
 *     hd_export e = hd::export_piece(one);
 *
 * Threads: any. heddle/import.h lists the threads that run `released`.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: the memory must outlive its last use, which may come after the destructor of the buffer.
 * Heddle calls `released` after the last use.
 */
#ifndef HEDDLE_CPP_IMPORT_HPP
#define HEDDLE_CPP_IMPORT_HPP

#include <heddle/cpp/buffer.hpp>

HD_CPP_BEGIN

namespace detail
{

inline hd_import_options import_options(const char *label, hd_released_function released, void *context) noexcept
{
    auto options = sized<hd_import_options>();
    options.label = label;
    options.released = released;
    options.context = context;
    return options;
}

} // namespace detail

/* hd_import: `count` elements at `address`, in device memory that Heddle did not allocate. */
template <class T>
HD_CPP_INLINE result<buffer<T>> import_device(runtime_ref of_runtime, int device, T *address, std::size_t count,
                                              const char *label = nullptr, hd_released_function released = nullptr,
                                              void *context = nullptr)
{
    const hd_import_options options = detail::import_options(label, released, context);
    hd_buffer *out = nullptr;
    const hd_status status = hd_import(of_runtime.get(), device, reinterpret_cast<std::uintptr_t>(address),
                                       detail::bytes_of<T>(count), &options, &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_import_host: `count` elements of the program's memory, pinned until their last use. */
template <class T>
HD_CPP_INLINE result<buffer<T>> import_host(runtime_ref of_runtime, T *memory, std::size_t count,
                                            const char *label = nullptr, hd_released_function released = nullptr,
                                            void *context = nullptr)
{
    const hd_import_options options = detail::import_options(label, released, context);
    hd_buffer *out = nullptr;
    const hd_status status = hd_import_host(of_runtime.get(), memory, detail::bytes_of<T>(count), &options, &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_alloc_with and HD_ALLOC_DEDICATED: one piece of physical memory. */
template <class T>
HD_CPP_INLINE result<buffer<T>> alloc_piece(lane_ref in_lane, std::size_t count, const char *label = nullptr)
{
    auto options = detail::sized<hd_alloc_options>();
    options.flags = HD_ALLOC_DEDICATED;
    options.label = label;
    hd_buffer *out = nullptr;
    const hd_status status = hd_alloc_with(in_lane.get(), detail::bytes_of<T>(count), &options, &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_buffer_export: a reference to the buffer's memory for other processes. The program must close
 * the descriptor in the result. */
template <class T>
result<hd_export> export_piece(const buffer_ref<T> &piece, hd_export_kind kind = HD_EXPORT_DESCRIPTOR)
{
    auto out = detail::sized<hd_export>();
    const hd_status status = hd_buffer_export(piece.get(), kind, &out);
    return detail::finish(status, out);
}

/* hd_import_descriptor: memory that another process exported. The program must still close the
 * descriptor. */
template <class T>
HD_CPP_INLINE result<buffer<T>> import_piece(runtime_ref of_runtime, int device, const hd_export &from,
                                             const char *label = nullptr, hd_released_function released = nullptr,
                                             void *context = nullptr)
{
    const hd_import_options options = detail::import_options(label, released, context);
    hd_buffer *out = nullptr;
    const hd_status status = hd_import_descriptor(of_runtime.get(), device, &from, &options, &out);
    return detail::finish(status, buffer<T>(out));
}

HD_CPP_END
#endif
