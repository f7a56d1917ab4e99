/* heddle/cpp/owned.hpp - handles of the library, as objects that own the handle and objects that do
 * not.
 *
 * For each kind of handle there are two types, such as hd::lane_ref and hd::lane. A lane_ref
 * contains a handle without owning it: copy it freely; its destructor releases nothing. A lane owns
 * its handle, and its destructor releases the handle. A lane can be moved, but not copied. Each
 * lane is also a lane_ref, so a function that only uses a lane takes an hd::lane_ref by value.
 *
 * Threads: any thread that may use the handle. As with any object of C++, only one thread at a time
 * may use an object.
 * Locks: none.
 * Always: if the program moved from an object, or released it, the object is empty. The destructor
 * of an empty object does nothing.
 */
#ifndef HEDDLE_CPP_OWNED_HPP
#define HEDDLE_CPP_OWNED_HPP

#include <heddle/cpp/result.hpp>

HD_CPP_BEGIN

namespace detail
{

/* The base of types that are no kernel arguments, although their bytes could be copied. */
struct no_argument {
};

/* An object that contains a handle without owning it. */
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

/* An object that owns a handle of the kind of Ref. The destructor releases the handle, but reports
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

    /* Releases the handle now. After the call, the object is empty, even if the call failed.
     * Errors: those of the C call that releases this kind of handle. */
    result<void> close()
    {
        return detail::finish(Ref::end(release()));
    }
};

HD_CPP_END
#endif
