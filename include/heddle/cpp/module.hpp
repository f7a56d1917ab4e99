/* heddle/cpp/module.hpp - modules, kernels and launches. heddle/module.h is the reference.
 *
 *     hd::module module = runtime.load_module_file("scale.hdk");
 *     hd::kernel scale = module.kernel("scale");
 *     hd::launch(lane, scale, hd::blocks(n, 256), 256, hd::inout(y), 0.5f, n);
 *
 * An argument is hd::in, hd::out or hd::inout of a buffer or of a part of a buffer, hd::address, or
 * a value. If the kernel reaches buffers through pointers in other memory, add hd::arg_implicit for
 * each of them, after all arguments. Values are numbers, enumerations and structures. A value must
 * have the type of the kernel's parameter; otherwise the launch fails. For example, 10 is an int,
 * so for a parameter of 64 bits pass std::uint64_t(10).
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as hd_launch.
 * Always: a launch stores its arguments on the stack and calls hd_launch once, as in C
 * (tests/cpp/test_launch_cost.sh).
 */
#ifndef HEDDLE_CPP_MODULE_HPP
#define HEDDLE_CPP_MODULE_HPP

#include <heddle/cpp/buffer.hpp>

HD_CPP_BEGIN

/* A kernel, which is a function of a module. The kernel belongs to the module, and ends with the
 * module. */
class kernel : public detail::reference<hd_kernel>
{
  public:
    using reference::reference;

    /* hd_kernel_get_parameter: describes the parameter with this number, counted from 0. */
    result<hd_parameter_info> parameter(int index) const
    {
        auto out = detail::sized<hd_parameter_info>();
        const hd_status status = hd_kernel_get_parameter(get(), index, &out);
        return detail::finish(status, out);
    }
};

/* A module that another object owns, or the module of the built-in kernels. */
class module_ref : public detail::reference<hd_module>
{
  public:
    using reference::reference;
    static hd_status end(hd_module *handle) noexcept
    {
        return hd_module_unload(handle);
    }

    /* hd_kernel_get. */
    result<hd::kernel> kernel(const char *name) const
    {
        hd_kernel *out = nullptr;
        const hd_status status = hd_kernel_get(get(), name, &out);
        return detail::finish(status, hd::kernel(out));
    }

    /* hd_module_get_global: a variable of the module on a device, as a buffer of elements of type
     * T. The handle belongs to the module, and ends with the module:
     *     hd::write(module.global<float>(0, "coefficients"), values); */
    template <class T> result<buffer_ref<T>> global(int device, const char *name) const
    {
        hd_buffer *out = nullptr;
        const hd_status status = hd_module_get_global(get(), device, name, &out);
        return detail::finish(status, buffer_ref<T>(out));
    }
};

/* hd_module_load. */
inline result<module> runtime_ref::load_module(const void *image, std::size_t bytes) const
{
    hd_module *out = nullptr;
    const hd_status status = hd_module_load(get(), image, bytes, &out);
    return detail::finish(status, hd::module(out));
}

/* hd_module_load_file. */
inline result<module> runtime_ref::load_module_file(const char *path) const
{
    hd_module *out = nullptr;
    const hd_status status = hd_module_load_file(get(), path, &out);
    return detail::finish(status, hd::module(out));
}

/* hd_module_get_builtin. */
inline result<module_ref> runtime_ref::builtin_module() const
{
    hd_module *out = nullptr;
    const hd_status status = hd_module_get_builtin(get(), &out);
    return detail::finish(status, module_ref(out));
}

/* Extents of a grid in blocks, or of a block in threads. A single number is the extent of the first
 * dimension. */
struct dims : hd_dims {
    constexpr dims(std::uint32_t x_, std::uint32_t y_ = 1, std::uint32_t z_ = 1) noexcept : hd_dims{x_, y_, z_}
    {
    }
    constexpr dims(const hd_dims &d) noexcept : hd_dims(d)
    {
    }
};

/* Returns the number of blocks of `block` threads that provide a thread for each of `n` elements;
 * at least 1. If the number needs more than 32 bits, the result is UINT32_MAX, which hd_launch
 * refuses (LIMIT). */
constexpr std::uint32_t blocks(std::uint64_t n, std::uint32_t block) noexcept
{
    const std::uint64_t most = UINT32_MAX;
    const std::uint64_t needed = n == 0 || block == 0 ? 1 : (n - 1) / block + 1;
    return static_cast<std::uint32_t>(needed < most ? needed : most);
}

/* The size of the dynamic shared memory in bytes. Pass this object to a launch in front of the
 * arguments. */
struct shared_bytes : detail::no_argument {
    constexpr explicit shared_bytes(std::size_t bytes_) noexcept : bytes(bytes_)
    {
    }
    std::size_t bytes;
};

/* ---- buffers as arguments: for reading, for writing, and for both ----
 *
 * Each of these functions takes a buffer, a span, or `count` elements of a buffer from `first` on.
 * As in C, a count of 0 means all elements up to the buffer's end. The kernel gets a pointer to the
 * first of these elements. */

namespace detail
{

/* The C kind of an integer of this size and sign. */
constexpr std::uint32_t kind_of_integer(std::size_t size, bool is_signed) noexcept
{
    const std::uint32_t kind = size == 1 ? HD_ARG_I8 : size == 2 ? HD_ARG_I16 : size == 4 ? HD_ARG_I32 : HD_ARG_I64;
    return size > 8 ? std::uint32_t(HD_ARG_BYTES) : kind + (is_signed ? 0 : 1);
}

/* Describes a buffer's elements, for hd_arg.access. std::byte stands for memory of any type: a
 * launch does not check its elements. */
template <class T> constexpr std::uint32_t element_of() noexcept
{
    using element = std::remove_cv_t<T>;
    std::uint32_t kind = HD_ARG_BYTES;
    if constexpr (std::is_same_v<element, std::byte> || sizeof(element) > 65535) {
        return 0;
    } else if constexpr (std::is_enum_v<element>) {
        kind = kind_of_integer(sizeof(element), std::is_signed_v<std::underlying_type_t<element>>);
    } else if constexpr (std::is_integral_v<element>) {
        kind = kind_of_integer(sizeof(element), std::is_signed_v<element>);
    } else if constexpr (std::is_same_v<element, float> || std::is_same_v<element, double>) {
        kind = sizeof(element) == 4 ? HD_ARG_F32 : HD_ARG_F64;
    }
    return kind << 8 | static_cast<std::uint32_t>(sizeof(element)) << 16;
}

/* Returns `use` with the description of the buffer's elements. */
template <class T> HD_CPP_INLINE hd_arg with_element(hd_arg use) noexcept
{
    use.access |= element_of<T>();
    return use;
}

template <class T>
HD_CPP_INLINE hd_arg arg_of(const buffer_ref<T> &b, hd_access access, std::size_t first, std::size_t count) noexcept
{
    return with_element<T>(hd_arg_buffer(b.get(), access, first * sizeof(T), count * sizeof(T)));
}

} // namespace detail

/* hd_in: the kernel reads these elements. */
template <class T> HD_CPP_INLINE hd_arg in(const buffer_ref<T> &b) noexcept
{
    return detail::with_element<T>(hd_in(b.get()));
}
template <class T> HD_CPP_INLINE hd_arg in(const buffer_ref<T> &b, std::size_t first, std::size_t count = 0) noexcept
{
    return detail::arg_of(b, HD_READ, first, count);
}
template <class T> HD_CPP_INLINE hd_arg in(const span<T> &s) noexcept
{
    return detail::arg_of(s.buffer(), HD_READ, s.first(), s.size());
}

/* hd_out: the kernel writes all of these elements, and does not read them. */
template <class T> HD_CPP_INLINE hd_arg out(const buffer_ref<T> &b) noexcept
{
    return detail::with_element<T>(hd_out(b.get()));
}
template <class T> HD_CPP_INLINE hd_arg out(const buffer_ref<T> &b, std::size_t first, std::size_t count = 0) noexcept
{
    return detail::arg_of(b, HD_WRITE, first, count);
}
template <class T> HD_CPP_INLINE hd_arg out(const span<T> &s) noexcept
{
    return detail::arg_of(s.buffer(), HD_WRITE, s.first(), s.size());
}

/* hd_inout: the kernel reads and writes these elements. */
template <class T> HD_CPP_INLINE hd_arg inout(const buffer_ref<T> &b) noexcept
{
    return detail::with_element<T>(hd_inout(b.get()));
}
template <class T> HD_CPP_INLINE hd_arg inout(const buffer_ref<T> &b, std::size_t first, std::size_t count = 0) noexcept
{
    return detail::arg_of(b, HD_READ_WRITE, first, count);
}
template <class T> HD_CPP_INLINE hd_arg inout(const span<T> &s) noexcept
{
    return detail::arg_of(s.buffer(), HD_READ_WRITE, s.first(), s.size());
}

/* ---- memory without an argument, arguments without memory ---- */

/* hd_arg_implicit. Pass hd::arg_implicit(hd::in(x)) behind all arguments if the kernel reads x, but
 * no parameter names x. */
HD_CPP_INLINE hd_arg arg_implicit(const hd_arg &use) noexcept
{
    return hd_arg_implicit(use);
}

#ifndef HD_NO_DEPRECATED
[[deprecated("its name is arg_implicit now")]] HD_CPP_INLINE hd_arg also(const hd_arg &use) noexcept
{
    return hd_arg_implicit(use);
}
#endif

/* hd_address: an address for a pointer parameter of the kernel. Heddle orders no work by this
 * address. hd::address(0) is a null pointer. */
HD_CPP_INLINE hd_arg address(std::uint64_t a) noexcept
{
    return hd_address(a);
}

/* ---- launches ---- */

namespace detail
{

/* The C kind of an integer, by its size and sign. */
template <class T> HD_CPP_INLINE hd_arg arg_of_integer(T v) noexcept
{
    static_assert(sizeof(T) <= 8, "hd::launch: an integer argument has at most 64 bits");
    if constexpr (std::is_signed_v<T>) {
        if constexpr (sizeof(T) == 1) {
            return hd_i8(static_cast<std::int8_t>(v));
        } else if constexpr (sizeof(T) == 2) {
            return hd_i16(static_cast<std::int16_t>(v));
        } else if constexpr (sizeof(T) == 4) {
            return hd_i32(static_cast<std::int32_t>(v));
        } else {
            return hd_i64(static_cast<std::int64_t>(v));
        }
    } else if constexpr (sizeof(T) == 1) {
        return hd_u8(static_cast<std::uint8_t>(v));
    } else if constexpr (sizeof(T) == 2) {
        return hd_u16(static_cast<std::uint16_t>(v));
    } else if constexpr (sizeof(T) == 4) {
        return hd_u32(static_cast<std::uint32_t>(v));
    } else {
        return hd_u64(static_cast<std::uint64_t>(v));
    }
}

/* Makes one argument. hd_launch reads a structure from the caller's copy. */
template <class T> HD_CPP_INLINE hd_arg arg_of_value(const T &v) noexcept
{
    if constexpr (std::is_same_v<T, hd_arg>) {
        return v;
    } else if constexpr (std::is_enum_v<T>) {
        return arg_of_integer(static_cast<std::underlying_type_t<T>>(v));
    } else if constexpr (std::is_integral_v<T>) {
        return arg_of_integer(v);
    } else if constexpr (std::is_same_v<T, float>) {
        return hd_f32(v);
    } else if constexpr (std::is_same_v<T, double>) {
        return hd_f64(v);
    } else {
        constexpr bool is_handle = std::is_base_of_v<no_argument, T>;
        constexpr bool is_structure = std::is_class_v<T> || std::is_union_v<T>;
        static_assert(!is_handle,
                      "hd::launch: state how the kernel uses a buffer: hd::in(b), hd::out(b) or hd::inout(b)");
        static_assert(!std::is_pointer_v<T>,
                      "hd::launch: a pointer of the program is no argument: devices have other memory; "
                      "give a buffer with hd::in, hd::out or hd::inout");
        static_assert(is_handle || is_structure || std::is_pointer_v<T>,
                      "hd::launch: an argument is a buffer, an integer, a float, a double, or a structure by value");
        static_assert(!is_structure || std::is_trivially_copyable_v<T>,
                      "hd::launch: a structure goes to the kernel as bytes: it must be trivially copyable");
        static_assert(sizeof(T) <= 4096, "hd::launch: the arguments of a kernel have at most 4096 bytes");
        return hd_bytes(&v, sizeof v);
    }
}

template <class... Args>
HD_CPP_INLINE hd_status launch(lane_ref in_lane, kernel k, dims grid, dims block, std::size_t shared, hd_ticket *out,
                               const Args &...args) noexcept
{
    if constexpr (sizeof...(Args) == 0) {
        return hd_launch(in_lane.get(), k.get(), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, nullptr,
                         0, out);
    } else {
        const hd_arg list[] = {arg_of_value(args)...};
        return hd_launch(in_lane.get(), k.get(), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, list,
                         sizeof...(Args), out);
    }
}

} // namespace detail

/* hd_launch, without a ticket. */
template <class... Args>
HD_CPP_INLINE result<void> launch(lane_ref in_lane, kernel k, dims grid, dims block, const Args &...args)
{
    return detail::finish(detail::launch(in_lane, k, grid, block, 0, nullptr, args...));
}

/* hd_launch with dynamic shared memory, without a ticket. */
template <class... Args>
HD_CPP_INLINE result<void> launch(lane_ref in_lane, kernel k, dims grid, dims block, shared_bytes shared,
                                  const Args &...args)
{
    return detail::finish(detail::launch(in_lane, k, grid, block, shared.bytes, nullptr, args...));
}

/* hd_launch. Returns the ticket. */
template <class... Args>
HD_CPP_INLINE result<ticket> launch_ticket(lane_ref in_lane, kernel k, dims grid, dims block, const Args &...args)
{
    ticket out;
    const hd_status status = detail::launch(in_lane, k, grid, block, 0, &out, args...);
    return detail::finish(status, out);
}

template <class... Args>
HD_CPP_INLINE result<ticket> launch_ticket(lane_ref in_lane, kernel k, dims grid, dims block, shared_bytes shared,
                                           const Args &...args)
{
    ticket out;
    const hd_status status = detail::launch(in_lane, k, grid, block, shared.bytes, &out, args...);
    return detail::finish(status, out);
}

HD_CPP_END
#endif
