/* heddle/cpp/buffer.hpp - buffers of elements, and spans, which are parts of such buffers.
 * heddle/buffer.h, heddle/unified.h and heddle/copy.h are the reference.
 *
 *     hd::buffer<float> y = hd::alloc<float>(lane, n);
 *     hd::write(y, host);                               // any contiguous container
 *     hd::copy(x.span(0, 100), y.span(n - 100, 100));   // elements, where C counts bytes
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: sizes, places and distances count elements. The type of an element must be trivially
 * copyable.
 */
#ifndef HEDDLE_CPP_BUFFER_HPP
#define HEDDLE_CPP_BUFFER_HPP

#include <cstring>
#include <iterator>
#include <heddle/cpp/lane.hpp>

HD_CPP_BEGIN

namespace detail
{

/* Returns the bytes of `count` elements. If the number is too large for a size_t, it becomes
 * SIZE_MAX, which every call refuses (RANGE or MEMORY). */
template <class T> std::size_t bytes_of(std::size_t count) noexcept
{
    std::size_t bytes = 0;
    return __builtin_mul_overflow(count, sizeof(T), &bytes) ? SIZE_MAX : bytes;
}

} // namespace detail

template <class T> class mapping;

/* A part of a buffer: `count` elements, which begin at element number `first`. A span is a plain
 * value that owns nothing. */
template <class T> class span : public detail::no_argument
{
  public:
    constexpr span(buffer_ref<T> buffer, std::size_t first, std::size_t count) noexcept
        : buffer_(buffer), first_(first), count_(count)
    {
    }

    /* The buffer of the span. */
    constexpr buffer_ref<T> buffer() const noexcept
    {
        return buffer_;
    }
    /* The number of the first element. */
    constexpr std::size_t first() const noexcept
    {
        return first_;
    }
    /* The number of elements. */
    constexpr std::size_t size() const noexcept
    {
        return count_;
    }
    /* True if the span contains no element. */
    constexpr bool empty() const noexcept
    {
        return count_ == 0;
    }
    /* The distance of the first element from the begin of the buffer, in bytes. */
    std::size_t offset_bytes() const noexcept
    {
        return detail::bytes_of<T>(first_);
    }
    /* The size in bytes. */
    std::size_t size_bytes() const noexcept
    {
        return detail::bytes_of<T>(count_);
    }

  private:
    buffer_ref<T> buffer_;
    std::size_t first_, count_;
};

/* A buffer that another object owns. Its elements are of type T. */
template <class T> class buffer_ref : public detail::reference<hd_buffer>
{
    static_assert(std::is_trivially_copyable_v<T>,
                  "an element of a buffer is moved as bytes: it must be trivially copyable");
    static_assert(!std::is_const_v<T>, "an element of a buffer is not const: write hd::in() where a kernel only reads");

  public:
    using element_type = T;
    using detail::reference<hd_buffer>::reference;
    static hd_status end(hd_buffer *handle) noexcept
    {
        return hd_free(handle);
    }

    /* Returns the number of elements; 0 without a buffer. */
    std::size_t size() const noexcept
    {
        return hd_buffer_size(get()) / sizeof(T);
    }
    /* hd_buffer_size: the size in bytes. */
    std::size_t size_bytes() const noexcept
    {
        return hd_buffer_size(get());
    }
    /* hd_buffer_device: the number of the buffer's device, or HD_DEVICE_HOST. */
    int device() const noexcept
    {
        return hd_buffer_device(get());
    }
    /* hd_buffer_address: the address for kernels. */
    std::uint64_t address() const noexcept
    {
        return hd_buffer_address(get());
    }

    /* A span of all elements, of the elements from `first` to the end, or of `count` elements from
     * `first` on. The calls that use a span check its range (RANGE). */
    hd::span<T> span() const noexcept
    {
        return {*this, 0, size()};
    }
    hd::span<T> span(std::size_t first) const noexcept
    {
        const std::size_t all = size();
        return {*this, first, first < all ? all - first : 0};
    }
    constexpr hd::span<T> span(std::size_t first, std::size_t count) const noexcept
    {
        return {*this, first, count};
    }

    /* hd_buffer_set_label. */
    result<void> set_label(const char *label) const
    {
        return detail::finish(hd_buffer_set_label(get(), label));
    }

    /* hd_buffer_save, for buffers made with HD_ALLOC_KEEP. */
    result<ticket> save() const
    {
        ticket out;
        const hd_status status = hd_buffer_save(get(), &out);
        return detail::finish(status, out);
    }

    /* hd_buffer_wait without a limit: returns when no submitted work conflicts with this access. */
    result<void> wait(hd_access access) const
    {
        return detail::finish(hd_buffer_wait(get(), access, HD_FOREVER));
    }

    /* hd_buffer_wait with a limit. Returns false if the limit passed. */
    result<bool> wait_for(hd_access access, std::chrono::nanoseconds limit) const
    {
        return detail::finish_wait(hd_buffer_wait(get(), access, detail::limit_of(limit)));
    }

    /* hd_map of pinned or unified memory, for reading and writing. */
    result<mapping<T>> map() const
    {
        return mapping<T>::make(*this, HD_READ_WRITE);
    }
    /* hd_map of pinned or unified memory, for reading. */
    result<mapping<const T>> map_for_reading() const
    {
        return mapping<const T>::make(*this, HD_READ);
    }
    /* hd_map of pinned or unified memory, for writing. */
    result<mapping<T>> map_for_writing() const
    {
        return mapping<T>::make(*this, HD_WRITE);
    }

    /* hd_element: reads one element of pinned or unified memory. */
    result<T> load(std::size_t index) const
    {
        T value{};
        const void *at = hd_element(get(), detail::bytes_of<T>(index), sizeof(T), HD_READ);
        if (at == nullptr) {
            return detail::refuse<T>(error::last());
        }
        std::memcpy(&value, at, sizeof(T));
        return value;
    }
    /* hd_element: writes one element of pinned or unified memory. */
    result<void> store(std::size_t index, const T &value) const
    {
        void *at = hd_element(get(), detail::bytes_of<T>(index), sizeof(T), HD_READ_WRITE);
        if (at == nullptr) {
            return detail::refuse<void>(error::last());
        }
        std::memcpy(at, &value, sizeof(T));
        return result<void>();
    }
};

/* The mapped content of pinned or unified memory, as a contiguous range of C++. The destructor ends
 * the mapping. If the program frees the buffer, this also ends the mapping. */
template <class T> class mapping
{
    using element = std::remove_const_t<T>;

  public:
    using value_type = element;

    mapping() noexcept = default;
    mapping(mapping &&other) noexcept
        : buffer_(std::exchange(other.buffer_, {})), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0))
    {
    }
    mapping &operator=(mapping &&other) noexcept
    {
        if (this != &other) {
            unmap();
            buffer_ = std::exchange(other.buffer_, {});
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
        }
        return *this;
    }
    ~mapping()
    {
        unmap();
    }

    /* The first element. */
    T *data() const noexcept
    {
        return data_;
    }
    /* The number of elements. */
    std::size_t size() const noexcept
    {
        return size_;
    }
    /* True if nothing is mapped. */
    bool empty() const noexcept
    {
        return size_ == 0;
    }
    /* The first element, for loops. */
    T *begin() const noexcept
    {
        return data_;
    }
    /* The place behind the last element. */
    T *end() const noexcept
    {
        return data_ + size_;
    }
    T &operator[](std::size_t index) const noexcept
    {
        return data_[index];
    }

    /* hd_unmap now. */
    void unmap() noexcept
    {
        if (data_ != nullptr) {
            (void)hd_unmap(buffer_.get());
        }
        buffer_ = {};
        data_ = nullptr;
        size_ = 0;
    }

  private:
    friend class buffer_ref<element>;
    mapping(buffer_ref<element> buffer, T *data, std::size_t size) noexcept : buffer_(buffer), data_(data), size_(size)
    {
    }
    static result<mapping> make(buffer_ref<element> buffer, hd_access access)
    {
        void *out = nullptr;
        const hd_status status = hd_map(buffer.get(), access, &out);
        return detail::finish(status,
                              status == HD_OK ? mapping(buffer, static_cast<T *>(out), buffer.size()) : mapping());
    }

    buffer_ref<element> buffer_;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* ---- allocation: `count` elements, whose content is undefined ---- */

/* hd_alloc: memory of the lane's device. */
template <class T> HD_CPP_INLINE result<buffer<T>> alloc(lane_ref in_lane, std::size_t count)
{
    hd_buffer *out = nullptr;
    const hd_status status = hd_alloc(in_lane.get(), detail::bytes_of<T>(count), &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_alloc_with: memory with a label for messages and reports. `flags` is HD_ALLOC_KEEP or 0. */
template <class T>
HD_CPP_INLINE result<buffer<T>> alloc(lane_ref in_lane, std::size_t count, const char *label, unsigned flags = 0)
{
    auto options = detail::sized<hd_alloc_options>();
    options.label = label;
    options.flags = flags;
    hd_buffer *out = nullptr;
    const hd_status status = hd_alloc_with(in_lane.get(), detail::bytes_of<T>(count), &options, &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_alloc_host: pinned memory, which every device can use and the program can map. */
template <class T> HD_CPP_INLINE result<buffer<T>> alloc_host(runtime_ref of_runtime, std::size_t count)
{
    hd_buffer *out = nullptr;
    const hd_status status = hd_alloc_host(of_runtime.get(), detail::bytes_of<T>(count), &out);
    return detail::finish(status, buffer<T>(out));
}

/* hd_alloc_unified: memory that both the lane's device and the program can use. */
template <class T> HD_CPP_INLINE result<buffer<T>> alloc_unified(lane_ref in_lane, std::size_t count)
{
    hd_buffer *out = nullptr;
    const hd_status status = hd_alloc_unified(in_lane.get(), detail::bytes_of<T>(count), &out);
    return detail::finish(status, buffer<T>(out));
}

HD_CPP_END
#endif
