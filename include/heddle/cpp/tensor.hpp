/* heddle/cpp/tensor.hpp - shapes and strides over buffers, layouts, matrix products.
 * heddle/tensor.h is the reference.
 *
 *     hd::tensor<float> a = hd::alloc_tensor<float>(lane, {1000, 700});
 *     hd::tensor_view<float> turned = a.transpose();
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: a view is a plain value over elements of a buffer that another object owns. The
 * destructor of a view frees no buffer. Strides and places count elements.
 */
#ifndef HEDDLE_CPP_TENSOR_HPP
#define HEDDLE_CPP_TENSOR_HPP

#include <complex>
#include <initializer_list>
#include <heddle/cpp/copy.hpp>

HD_CPP_BEGIN

/* An element of 16 bits, of type HD_TYPE_F16, which C++17 lacks. The object contains only the bits
 * of the element. */
struct f16 {
    std::uint16_t bits;
};
/* The same for HD_TYPE_BF16. */
struct bf16 {
    std::uint16_t bits;
};

namespace detail
{

template <class T> constexpr hd_type type_of() noexcept
{
    if constexpr (std::is_same_v<T, f16>) {
        return HD_TYPE_F16;
    } else if constexpr (std::is_same_v<T, bf16>) {
        return HD_TYPE_BF16;
    } else if constexpr (std::is_same_v<T, float>) {
        return HD_TYPE_F32;
    } else if constexpr (std::is_same_v<T, double>) {
        return HD_TYPE_F64;
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
        return HD_TYPE_C64;
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
        return HD_TYPE_C128;
    } else {
        static_assert(
            std::is_integral_v<T> && sizeof(T) <= 8,
            "hd::tensor: an element is an integer, float, double, std::complex of these, hd::f16 or hd::bf16");
        constexpr hd_type with_sign[] = {HD_TYPE_I8, HD_TYPE_I16, HD_TYPE_I32, HD_TYPE_I64};
        constexpr hd_type without[] = {HD_TYPE_U8, HD_TYPE_U16, HD_TYPE_U32, HD_TYPE_U64};
        constexpr int place = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return std::is_signed_v<T> ? with_sign[place] : without[place];
    }
}

} // namespace detail

/* Extents of a shape, slowest first: {rows, columns}. */
using extents = std::initializer_list<std::uint64_t>;

/* A view: elements of type T in a buffer that another object owns. */
template <class T> class tensor_view : public detail::no_argument
{
  public:
    using element_type = T;

    tensor_view() noexcept = default;
    /* A tensor of C with elements of type T. */
    explicit tensor_view(const hd_tensor &t) noexcept : tensor_(t)
    {
    }

    /* The structure of C. */
    const hd_tensor &get() const noexcept
    {
        return tensor_;
    }
    /* The buffer with the elements. */
    buffer_ref<T> buffer() const noexcept
    {
        return buffer_ref<T>(tensor_.buffer);
    }
    /* The number of dimensions. */
    int dims() const noexcept
    {
        return tensor_.dims;
    }
    /* The number of elements in a dimension. */
    std::uint64_t extent(int dim) const noexcept
    {
        return tensor_.shape[dim];
    }
    /* The distance between neighbours in a dimension, in elements. */
    std::int64_t stride(int dim) const noexcept
    {
        return tensor_.stride[dim] / static_cast<std::int64_t>(sizeof(T));
    }
    /* hd_tensor_elements: the number of all elements. */
    std::uint64_t size() const noexcept
    {
        return hd_tensor_elements(&tensor_);
    }
    /* hd_tensor_is_contiguous. */
    bool is_contiguous() const noexcept
    {
        return hd_tensor_is_contiguous(&tensor_);
    }

    /* ---- other views of the same elements ---- */

    /* hd_tensor_slice. */
    result<tensor_view> slice(int dim, std::uint64_t first, std::uint64_t count, std::int64_t step = 1) const
    {
        hd_tensor out{};
        const hd_status status = hd_tensor_slice(&tensor_, dim, first, count, step, &out);
        return detail::finish(status, tensor_view(out));
    }
    /* hd_tensor_permute. Errors: also ARGUMENT (order.size() is not dims()). */
    result<tensor_view> permute(std::initializer_list<int> order) const
    {
        if (order.size() != static_cast<std::size_t>(tensor_.dims)) {
            return detail::refuse<tensor_view>(error(HD_ERROR_ARGUMENT,
                                                     "permute: an order of %zu for %d dimensions; name each once",
                                                     order.size(), tensor_.dims));
        }
        hd_tensor out{};
        const hd_status status = hd_tensor_permute(&tensor_, order.begin(), &out);
        return detail::finish(status, tensor_view(out));
    }
    /* hd_tensor_transpose: swaps two dimensions; without arguments, the two dimensions of a
     * matrix. */
    result<tensor_view> transpose(int a = 0, int b = 1) const
    {
        hd_tensor out{};
        const hd_status status = hd_tensor_transpose(&tensor_, a, b, &out);
        return detail::finish(status, tensor_view(out));
    }
    /* hd_tensor_broadcast. */
    result<tensor_view> broadcast(extents shape) const
    {
        hd_tensor out{};
        const hd_status status = hd_tensor_broadcast(&tensor_, static_cast<int>(shape.size()), shape.begin(), &out);
        return detail::finish(status, tensor_view(out));
    }
    /* hd_tensor_reshape. */
    result<tensor_view> reshape(extents shape) const
    {
        hd_tensor out{};
        const hd_status status = hd_tensor_reshape(&tensor_, static_cast<int>(shape.size()), shape.begin(), &out);
        return detail::finish(status, tensor_view(out));
    }

  protected:
    hd_tensor tensor_{};
};

/* A tensor that owns its buffer. */
template <class T> class tensor : public tensor_view<T>
{
  public:
    tensor() noexcept = default;
    /* Takes over the buffer of `t`. */
    explicit tensor(const hd_tensor &t) noexcept : tensor_view<T>(t), owner_(t.buffer)
    {
    }
    tensor(tensor &&other) noexcept
        : tensor_view<T>(std::exchange(other.tensor_, hd_tensor{})), owner_(std::move(other.owner_))
    {
    }
    tensor &operator=(tensor &&other) noexcept
    {
        if (this != &other) {
            this->tensor_ = std::exchange(other.tensor_, hd_tensor{});
            owner_ = std::move(other.owner_);
        }
        return *this;
    }
    ~tensor() = default;

    /* Gives the tensor to the caller, which frees its buffer. */
    [[nodiscard]] hd_tensor release() noexcept
    {
        (void)owner_.release();
        return std::exchange(this->tensor_, hd_tensor{});
    }

  private:
    hd::buffer<T> owner_;
};

/* hd_tensor_alloc. */
template <class T> HD_CPP_INLINE result<tensor<T>> alloc_tensor(lane_ref in_lane, extents shape)
{
    hd_tensor out{};
    const hd_status status =
        hd_tensor_alloc(in_lane.get(), detail::type_of<T>(), static_cast<int>(shape.size()), shape.begin(), &out);
    return detail::finish(status, tensor<T>(out));
}

/* hd_tensor_make: row-major over a buffer, from element `first` on. */
template <class T> result<tensor_view<T>> make_tensor(const buffer_ref<T> &b, extents shape, std::size_t first = 0)
{
    hd_tensor out{};
    const hd_status status = hd_tensor_make(b.get(), detail::bytes_of<T>(first), detail::type_of<T>(),
                                            static_cast<int>(shape.size()), shape.begin(), &out);
    return detail::finish(status, tensor_view<T>(out));
}

/* hd_tensor_make_strided. `strides` are in elements, one for each extent (else ARGUMENT). */
template <class T>
result<tensor_view<T>> make_tensor_strided(const buffer_ref<T> &b, extents shape,
                                           std::initializer_list<std::int64_t> strides, std::size_t first = 0)
{
    std::int64_t bytes[HD_TENSOR_DIMS] = {};
    bool fits = shape.size() == strides.size() && shape.size() <= HD_TENSOR_DIMS;
    for (std::size_t i = 0; fits && i < shape.size(); i++) {
        fits = !__builtin_mul_overflow(strides.begin()[i], static_cast<std::int64_t>(sizeof(T)), &bytes[i]);
    }
    if (!fits) {
        return detail::refuse<tensor_view<T>>(
            error(HD_ERROR_ARGUMENT,
                  "make_tensor_strided: %zu extents with %zu strides; give one stride for each extent, "
                  "%d at most, that fits into 64 bits as bytes",
                  shape.size(), strides.size(), HD_TENSOR_DIMS));
    }
    hd_tensor out{};
    const hd_status status = hd_tensor_make_strided(b.get(), detail::bytes_of<T>(first), detail::type_of<T>(),
                                                    static_cast<int>(shape.size()), shape.begin(), bytes, &out);
    return detail::finish(status, tensor_view<T>(out));
}

/* ---- moving elements ---- */

/* hd_tensor_copy. */
template <class T> result<ticket> copy(const tensor_view<T> &to, const tensor_view<T> &from)
{
    ticket out;
    const hd_status status = hd_tensor_copy(&to.get(), &from.get(), &out);
    return detail::finish(status, out);
}

/* hd_tensor_write of row-major elements at a pointer or in a container. If container and tensor
 * differ in their number of elements, the call fails with ARGUMENT. */
template <class T> result<void> write(const tensor_view<T> &to, const T *from)
{
    return detail::finish(hd_tensor_write(&to.get(), from));
}
template <class T, class Memory, class = std::enable_if_t<detail::is_memory_of<const Memory, T>>>
result<void> write(const tensor_view<T> &to, const Memory &from)
{
    if (to.size() != std::size(from) && hd_buffer_device(to.get().buffer) != -2) {
        return detail::refuse<void>(detail::different_sizes("hd::write", to.size(), std::size(from)));
    }
    return write(to, std::data(from));
}
/* hd_tensor_read, to row-major elements at a pointer or in a container. If container and tensor
 * differ in their number of elements, the call fails with ARGUMENT. */
template <class T> result<void> read(const tensor_view<T> &from, T *to)
{
    return detail::finish(hd_tensor_read(&from.get(), to));
}
template <class T, class Memory, class = std::enable_if_t<detail::is_memory_of<Memory, T>>>
result<void> read(const tensor_view<T> &from, Memory &to)
{
    if (from.size() != std::size(to) && hd_buffer_device(from.get().buffer) != -2) {
        return detail::refuse<void>(detail::different_sizes("hd::read", std::size(to), from.size()));
    }
    return read(from, std::data(to));
}

/* hd_tensor_read to a new vector. */
template <class T> result<std::vector<T>> read(const tensor_view<T> &from)
{
    std::vector<T> out(from.size());
    const hd_status status = hd_tensor_read(&from.get(), out.data());
    return detail::finish(status, std::move(out));
}

/* hd_tensor_matmul: c = alpha a b + beta c. */
template <class T>
result<ticket> matmul(lane_ref in_lane, const tensor_view<T> &c, const tensor_view<T> &a, const tensor_view<T> &b,
                      double alpha = 1, double beta = 0)
{
    ticket out;
    const hd_status status = hd_tensor_matmul(in_lane.get(), &c.get(), &a.get(), &b.get(), alpha, beta, &out);
    return detail::finish(status, out);
}

/* hd_matmul_get_info. */
inline result<hd_matmul_info> matmul_info(lane_ref in_lane)
{
    auto out = detail::sized<hd_matmul_info>();
    const hd_status status = hd_matmul_get_info(in_lane.get(), &out);
    return detail::finish(status, out);
}

HD_CPP_END
#endif
