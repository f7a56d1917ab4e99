/* heddle/cpp/owned.hpp - handles of the library, owned and not owned.
 *
 * For each kind of handle there are two types, such as hd::lane_ref and hd::lane. A lane_ref is
 * only a handle: copy it freely, its destructor releases nothing. A lane owns its handle, and its
 * destructor releases the handle. A lane can be moved, but not copied. A lane is also a lane_ref: a
 * function that only uses a lane takes an hd::lane_ref by value.
 *
 * Threads: those of the handle. As with any object of C++, only one thread at a time may use an
 * object.
 * Locks: none.
 * Always: an object that the program moved from, or released, is empty. Its destructor does
 * nothing.
 */
#ifndef HEDDLE_CPP_OWNED_HPP
#define HEDDLE_CPP_OWNED_HPP

#include <heddle/cpp/result.hpp>

HD_CPP_BEGIN

namespace detail
{

/* A type that is no kernel argument by itself, although its bytes could be copied. */
struct no_argument {
};

/* A handle that is not owned. */
template <class Handle> class reference : public no_argument
{
  public:
    using handle_type = Handle;

    constexpr reference() noexcept = default;
    constexpr explicit reference(Handle *handle) noexcept : handle_(handle)
    {
    }

    /* The handle, for calls of C. */
    constexpr Handle *get() const noexcept
    {
        return handle_;
    }
    constexpr explicit operator bool() const noexcept
    {
        return handle_ != nullptr;
    }

  protected:
    Handle *handle_ = nullptr;
};

} // namespace detail

/* A handle of the kind of Ref, which the destructor of this object releases. The destructor reports
 * no failure. To get the failure, call close(). */
template <class Ref> class owned : public Ref
{
  public:
    using handle_type = typename Ref::handle_type;

    owned() noexcept = default;
    /* Takes over the handle, and releases it at the end. */
    explicit owned(handle_type *handle) noexcept : Ref(handle)
    {
    }
    owned(owned &&other) noexcept : Ref(other.release())
    {
    }
    owned &operator=(owned &&other) noexcept
    {
        if (this != &other) {
            reset(other.release());
        }
        return *this;
    }
    ~owned()
    {
        reset();
    }

    /* Gives the handle to the caller, who must release it. */
    [[nodiscard]] handle_type *release() noexcept
    {
        return std::exchange(this->handle_, nullptr);
    }

    /* Releases the handle, and takes over another one. */
    void reset(handle_type *handle = nullptr) noexcept
    {
        if (handle_type *const old = std::exchange(this->handle_, handle)) {
            (void)Ref::end(old);
        }
    }

    /* Releases the handle now. Afterwards the object is empty, also after an error. Errors: those
     * of the C call that releases this kind of handle. */
    result<void> close()
    {
        return detail::finish(Ref::end(release()));
    }
};

HD_CPP_END
#endif
