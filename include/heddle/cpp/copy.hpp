/* heddle/cpp/copy.hpp - moving and filling elements. heddle/copy.h is the reference for blocking,
 * order and errors.
 *
 * For elements of a buffer, a call takes an hd::span, or a buffer for all of its elements. For the
 * program's memory, a call takes a pointer, or any contiguous range that std::data and std::size
 * accept.
 *
 * Threads: any.
 * Locks: none.
 * Always: source and destination must have the same type and number of elements. If the numbers
 * differ, the call fails with ARGUMENT and submits nothing.
 */
#ifndef HEDDLE_CPP_COPY_HPP
#define HEDDLE_CPP_COPY_HPP

#include <heddle/cpp/buffer.hpp>

HD_CPP_BEGIN

namespace detail
{

template <class T> span<T> as_span(const span<T> &s) noexcept
{
    return s;
}

template <class T> span<T> as_span(buffer_ref<T> b) noexcept
{
    return b.span();
}

/* The type of the elements of a span or a buffer. */
template <class T> T element_of(const span<T> &);
template <class T> T element_of(const buffer_ref<T> &);
template <class Side> using element_t = decltype(element_of(std::declval<const Side &>()));

/* True if `Memory` is memory of the program: contiguous elements of type T. */
template <class Memory, class T, class = void> inline constexpr bool is_memory_of = false;
template <class Memory, class T>
inline constexpr bool is_memory_of<
    Memory, T,
    std::void_t<decltype(std::data(std::declval<Memory &>())), decltype(std::size(std::declval<Memory &>()))>> =
    std::is_same_v<std::remove_const_t<std::remove_pointer_t<decltype(std::data(std::declval<Memory &>()))>>, T>;

/* True if the span contains a buffer. Without a buffer, the C call reports the error, and the
 * numbers of elements do not matter. */
template <class T> bool is_there(const span<T> &s) noexcept
{
    return hd_buffer_device(s.buffer().get()) != -2;
}

/* Checks the two sides of a call that moves elements. */
inline error different_sizes(const char *call, std::size_t to, std::size_t from) noexcept
{
    return error(HD_ERROR_ARGUMENT, "%s: %zu elements to a place of %zu; give both sides the same number", call, from,
                 to);
}

} // namespace detail

/* hd_copy of all elements; source and destination must have the same number of elements. */
template <class To, class From, class = detail::element_t<To>, class = detail::element_t<From>>
result<ticket> copy(const To &to, const From &from)
{
    static_assert(std::is_same_v<detail::element_t<To>, detail::element_t<From>>,
                  "hd::copy: the elements are of different types");
    const auto dst = detail::as_span(to);
    const auto src = detail::as_span(from);
    if (dst.size() != src.size() && detail::is_there(dst) && detail::is_there(src)) {
        return detail::refuse<ticket>(detail::different_sizes("hd::copy", dst.size(), src.size()));
    }
    ticket out;
    const hd_status status =
        hd_copy(dst.buffer().get(), dst.offset_bytes(), src.buffer().get(), src.offset_bytes(), src.size_bytes(), &out);
    return detail::finish(status, out);
}

/* hd_write of as many elements as `to` contains. */
template <class To> result<void> write(const To &to, const detail::element_t<To> *from)
{
    const auto dst = detail::as_span(to);
    return detail::finish(hd_write(dst.buffer().get(), dst.offset_bytes(), from, dst.size_bytes()));
}

/* hd_write from a container, which must contain as many elements as `to`. */
template <class To, class Memory, class = std::enable_if_t<detail::is_memory_of<const Memory, detail::element_t<To>>>>
result<void> write(const To &to, const Memory &from)
{
    const auto dst = detail::as_span(to);
    if (dst.size() != std::size(from) && detail::is_there(dst)) {
        return detail::refuse<void>(detail::different_sizes("hd::write", dst.size(), std::size(from)));
    }
    return write(dst, std::data(from));
}

/* hd_read of as many elements as `from` contains. */
template <class From> result<void> read(const From &from, detail::element_t<From> *to)
{
    const auto src = detail::as_span(from);
    return detail::finish(hd_read(src.buffer().get(), src.offset_bytes(), to, src.size_bytes()));
}

/* hd_read to a container, which must contain as many elements as `from`. */
template <class From, class Memory, class = std::enable_if_t<detail::is_memory_of<Memory, detail::element_t<From>>>>
result<void> read(const From &from, Memory &to)
{
    const auto src = detail::as_span(from);
    if (src.size() != std::size(to) && detail::is_there(src)) {
        return detail::refuse<void>(detail::different_sizes("hd::read", std::size(to), src.size()));
    }
    return read(src, std::data(to));
}

/* hd_read to a new vector. */
template <class From> result<std::vector<detail::element_t<From>>> read(const From &from)
{
    const auto src = detail::as_span(from);
    std::vector<detail::element_t<From>> out(src.size());
    const hd_status status = hd_read(src.buffer().get(), src.offset_bytes(), out.data(), src.size_bytes());
    return detail::finish(status, std::move(out));
}

namespace detail
{

/* Fills by doubling: writes some elements, then copies the filled part behind itself until all
 * elements are filled. The last copy reads the results of the earlier copies, so it is done after
 * them. */
template <class T> hd_status fill_by_copies(const span<T> &to, const T &value, ticket *out)
{
    hd_buffer *const buffer = to.buffer().get();
    const std::size_t begin = to.offset_bytes(), least = sizeof(T) < 1024 ? 4096 / sizeof(T) : 4;
    std::size_t parts[64] = {to.size()};
    int n = 0;
    while (parts[n] > least) {
        parts[n + 1] = parts[n] - parts[n] / 2;
        n++;
    }
    std::vector<T> first(parts[n], value);
    hd_status status = hd_write(buffer, begin, first.data(), bytes_of<T>(parts[n]));
    /* A single write returns no ticket. The write is done when its bytes are read back. */
    if (n == 0 && status == HD_OK) {
        status = hd_read(buffer, begin, first.data(), bytes_of<T>(parts[0]));
    }
    for (; n > 0 && status == HD_OK; n--) {
        const std::size_t filled = bytes_of<T>(parts[n]), more = bytes_of<T>(parts[n - 1]) - filled;
        status = hd_copy(buffer, begin + filled, buffer, begin, more, out);
    }
    return status;
}

} // namespace detail

/* Fills with an element of any type. If the same 4 bytes repeat, and place and size are multiples
 * of 4 bytes, the call is an hd_fill. Otherwise the call writes some elements as hd_write does, and
 * copies them as hd_copy does. In this case, the call may wait for earlier uses of these
 * elements. */
template <class To> result<ticket> fill(const To &to, const detail::element_t<To> &value)
{
    using element = detail::element_t<To>;
    const auto dst = detail::as_span(to);
    unsigned char bytes[sizeof(element) < 4 ? 4 : sizeof(element)] = {};
    bool repeats = sizeof bytes % sizeof(element) == 0 && sizeof bytes % 4 == 0;
    for (std::size_t i = 0; i < sizeof bytes && repeats; i++) {
        bytes[i] = reinterpret_cast<const unsigned char *>(std::addressof(value))[i % sizeof(element)];
        repeats = i < 4 || bytes[i] == bytes[i - 4];
    }
    ticket out;
    hd_status status = HD_OK;
    if ((repeats && (dst.offset_bytes() | dst.size_bytes()) % 4 == 0) || dst.empty() || !detail::is_there(dst)) {
        std::uint32_t pattern = 0;
        std::memcpy(&pattern, bytes, sizeof pattern);
        /* The rounded size is the whole size, unless there is no buffer. */
        const std::size_t bytes_filled = dst.size_bytes() & ~std::size_t(3);
        status = hd_fill(dst.buffer().get(), dst.offset_bytes() & ~std::size_t(3), pattern, bytes_filled, &out);
    } else {
        status = detail::fill_by_copies<element>(dst, value, &out);
    }
    return detail::finish(status, out);
}

/* ---- boxes ---- */

/* The shape of a box (hd_box) in elements: a row of elements next to each other, repeated in up to
 * HD_BOX_DIMS dimensions:
 *     hd::box(64).repeat(32, 1024, 64)    32 rows of 64 elements, 1024 apart on the destination's
 *                                         side and 64 on the source's side */
class box
{
  public:
    constexpr explicit box(std::size_t row) noexcept : row_(row)
    {
    }

    /* Adds a dimension. A call with a box of more than HD_BOX_DIMS dimensions fails with
     * ARGUMENT. */
    constexpr box repeat(std::size_t count, std::size_t dst_stride, std::size_t src_stride) const noexcept
    {
        box b = *this;
        if (b.dims_ < HD_BOX_DIMS) {
            b.count_[b.dims_] = count;
            b.dst_stride_[b.dims_] = dst_stride;
            b.src_stride_[b.dims_] = src_stride;
        }
        b.dims_++;
        return b;
    }

    /* Returns the structure of C, for elements of type T. */
    template <class T> hd_box of() const noexcept
    {
        auto b = detail::sized<hd_box>();
        b.row = detail::bytes_of<T>(row_);
        b.dims = dims_;
        for (int i = 0; i < dims_ && i < HD_BOX_DIMS; i++) {
            b.count[i] = count_[i];
            b.dst_stride[i] = detail::bytes_of<T>(dst_stride_[i]);
            b.src_stride[i] = detail::bytes_of<T>(src_stride_[i]);
        }
        return b;
    }

  private:
    std::size_t row_;
    int dims_ = 0;
    std::size_t count_[HD_BOX_DIMS] = {}, dst_stride_[HD_BOX_DIMS] = {}, src_stride_[HD_BOX_DIMS] = {};
};

/* hd_copy_box. The box begins at element `to_first` of the destination, and at element `from_first`
 * of the source. */
template <class T>
result<ticket> copy_box(const buffer_ref<T> &to, std::size_t to_first, const buffer_ref<T> &from,
                        std::size_t from_first, const box &b)
{
    const hd_box bytes = b.of<T>();
    ticket out;
    const hd_status status =
        hd_copy_box(to.get(), detail::bytes_of<T>(to_first), from.get(), detail::bytes_of<T>(from_first), &bytes, &out);
    return detail::finish(status, out);
}

/* hd_write_box. The box begins at element `to_first` of the buffer. */
template <class T> result<void> write_box(const buffer_ref<T> &to, std::size_t to_first, const T *from, const box &b)
{
    const hd_box bytes = b.of<T>();
    return detail::finish(hd_write_box(to.get(), detail::bytes_of<T>(to_first), from, &bytes));
}

/* hd_read_box. The box begins at element `from_first` of the buffer. */
template <class T> result<void> read_box(const buffer_ref<T> &from, std::size_t from_first, T *to, const box &b)
{
    const hd_box bytes = b.of<T>();
    return detail::finish(hd_read_box(from.get(), detail::bytes_of<T>(from_first), to, &bytes));
}

HD_CPP_END
#endif
