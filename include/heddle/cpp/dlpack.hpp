/* heddle/cpp/dlpack.hpp - exchange of tensors with other libraries, by DLPack. heddle/dlpack.h is
 * the reference.
 *
 *     // The consumer owns `out`, and calls its deleter.
 *     DLManagedTensorVersioned *out = hd::to_dlpack(a, stream);
 *     // The end of `b` calls the producer's deleter.
 *     hd::tensor<float> b = hd::from_dlpack<float>(runtime, managed, stream);
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: if from_dlpack fails, the tensor still belongs to the caller.
 */
#ifndef HEDDLE_CPP_DLPACK_HPP
#define HEDDLE_CPP_DLPACK_HPP

#include <heddle/cpp/tensor.hpp>

HD_CPP_BEGIN

namespace detail
{

inline hd_dlpack_options dlpack_options(unsigned flags, const char *label) noexcept
{
    auto options = sized<hd_dlpack_options>();
    options.flags = flags;
    options.label = label;
    return options;
}

/* A byte whose type DLPack calls bool. */
template <class T> constexpr unsigned dlpack_flags(unsigned flags) noexcept
{
    return std::is_same_v<T, bool> ? flags | HD_DLPACK_BOOL : flags;
}

template <class T> hd_dlpack_options dlpack_import_options(unsigned flags, const char *label) noexcept
{
    auto options = dlpack_options(flags, label);
    options.type = type_of<T>();
    return options;
}

} // namespace detail

/* hd_dlpack_export. `flags`: HD_DLPACK_READ_ONLY, or 0. */
template <class T>
HD_CPP_INLINE result<DLManagedTensorVersioned *> to_dlpack(const tensor_view<T> &t, std::int64_t stream,
                                                           unsigned flags = 0, const char *label = nullptr)
{
    const hd_dlpack_options options = detail::dlpack_options(detail::dlpack_flags<T>(flags), label);
    DLManagedTensorVersioned *out = nullptr;
    const hd_status status = hd_dlpack_export(&t.get(), stream, &options, &out);
    return detail::finish(status, out);
}

/* hd_dlpack_export_unversioned. */
template <class T>
HD_CPP_INLINE result<DLManagedTensor *> to_dlpack_unversioned(const tensor_view<T> &t, std::int64_t stream,
                                                              const char *label = nullptr)
{
    const hd_dlpack_options options = detail::dlpack_options(detail::dlpack_flags<T>(0), label);
    DLManagedTensor *out = nullptr;
    const hd_status status = hd_dlpack_export_unversioned(&t.get(), stream, &options, &out);
    return detail::finish(status, out);
}

/* hd_dlpack_import. Errors: also ARGUMENT (the elements are of another type). */
template <class T>
HD_CPP_INLINE result<tensor<T>> from_dlpack(runtime_ref of_runtime, DLManagedTensorVersioned *managed,
                                            std::int64_t stream, unsigned flags = 0, const char *label = nullptr)
{
    const hd_dlpack_options options = detail::dlpack_import_options<T>(flags, label);
    hd_tensor out{};
    const hd_status status = hd_dlpack_import(of_runtime.get(), managed, stream, &options, &out);
    return detail::finish(status, tensor<T>(out));
}

/* hd_dlpack_import_unversioned. */
template <class T>
HD_CPP_INLINE result<tensor<T>> from_dlpack(runtime_ref of_runtime, DLManagedTensor *managed, std::int64_t stream,
                                            unsigned flags = 0, const char *label = nullptr)
{
    const hd_dlpack_options options = detail::dlpack_import_options<T>(flags, label);
    hd_tensor out{};
    const hd_status status = hd_dlpack_import_unversioned(of_runtime.get(), managed, stream, &options, &out);
    return detail::finish(status, tensor<T>(out));
}

HD_CPP_END
#endif
