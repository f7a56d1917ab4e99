/* heddle/cpp/claim.hpp - claims on bytes that other code uses. heddle/claim.h is the reference.
 *
 *     hd::claim halo = hd::begin_claim(runtime, "left halo", hd::out(x, 0, 100));
 *     halo.wait();
 *     MPI_Recv(halo.pointer<float>(), 100, MPI_FLOAT, ...);
 *     halo.end();
 *
 *     hd::claim c = hd::begin_claim_on(runtime, 0, stream, hd::inout(x));   // a cudaStream_t
 *     cufftExecC2C(plan, ...);
 *     c.end();
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: if an hd::claim is destroyed before its end(), the claim ends as failed. So if an
 * exception leaves bytes half written, these bytes never count as a result.
 */
#ifndef HEDDLE_CPP_CLAIM_HPP
#define HEDDLE_CPP_CLAIM_HPP

#include <heddle/cpp/copy.hpp>
#include <heddle/cpp/module.hpp>

HD_CPP_BEGIN

/* A claim that another object owns. */
class claim_ref : public detail::reference<hd_claim>
{
  public:
    using reference::reference;
    static hd_status end(hd_claim *handle) noexcept
    {
        return hd_claim_end(handle, HD_ERROR_FAILED);
    }

    /* hd_claim_ready: a few loads. */
    bool ready() const noexcept
    {
        return hd_claim_ready(get());
    }

    /* hd_claim_wait without a limit. */
    result<void> wait() const
    {
        return detail::finish(hd_claim_wait(get(), HD_FOREVER));
    }

    /* hd_claim_wait with a limit. Returns false if the limit passed. */
    result<bool> wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::finish_wait(hd_claim_wait(get(), detail::limit_of(limit)));
    }

    /* hd_claim_get_pointer: a pointer to the first element of a use of pinned or unified memory. */
    template <class T> result<T *> pointer(std::size_t use = 0) const
    {
        void *out = nullptr;
        const hd_status status = hd_claim_get_pointer(get(), use, &out);
        return detail::finish(status, static_cast<T *>(out));
    }

    /* hd_claim_read: copies bytes of use `use`, from `offset` on, to `to`, which is a buffer or a
     * part of one. The claim must begin with begin_claim_with_copies. */
    template <class To> result<hd::ticket> read(std::size_t use, std::size_t offset, const To &to) const
    {
        const auto dst = detail::as_span(to);
        hd::ticket out;
        const hd_status status =
            hd_claim_read(get(), use, offset, dst.buffer().get(), dst.offset_bytes(), dst.size_bytes(), &out);
        return detail::finish(status, out);
    }

    /* hd_claim_write: copies `from`, a buffer or a part of one, to bytes of use `use`, from
     * `offset` on. The claim must begin with begin_claim_with_copies. */
    template <class From> result<hd::ticket> write(std::size_t use, std::size_t offset, const From &from) const
    {
        const auto src = detail::as_span(from);
        hd::ticket out;
        const hd_status status =
            hd_claim_write(get(), use, offset, src.buffer().get(), src.offset_bytes(), src.size_bytes(), &out);
        return detail::finish(status, out);
    }

    /* hd_claim_get_ticket. */
    result<hd::ticket> ticket() const
    {
        hd::ticket out;
        const hd_status status = hd_claim_get_ticket(get(), &out);
        return detail::finish(status, out);
    }
};

/* A claim that ends when this object is destroyed, at the latest. */
class claim : public owned<claim_ref>
{
  public:
    using owned<claim_ref>::owned;

    /* hd_claim_end. After the call, the object is empty, even if the call failed. Only after
     * TIMEOUT, the claim is still open, and belongs to the object. */
    result<void> end(hd_status outcome = HD_OK)
    {
        return ended(hd_claim_end(get(), outcome));
    }
    /* hd_claim_fail; otherwise as end. */
    result<void> fail(hd_status outcome, const char *reason)
    {
        return ended(hd_claim_fail(get(), outcome, reason));
    }
    /* hd_claim_end with success, as end(). */
    result<void> close()
    {
        return end();
    }

  private:
    result<void> ended(hd_status status)
    {
        if (status != HD_ERROR_TIMEOUT) {
            (void)release();
        }
        return detail::finish(status);
    }
};

namespace detail
{

/* The uses of a claim or a call as an array. Without uses, the array contains one unused element,
 * because an array must not be empty. */
template <class... Uses> struct use_list {
    static_assert((std::is_same_v<Uses, hd_arg> && ...),
                  "hd::begin_claim: a use is hd::in(b), hd::out(b) or hd::inout(b) of a buffer or a part of it");
    explicit use_list(const Uses &...uses) noexcept : list{uses..., hd_arg()}
    {
    }
    static constexpr std::size_t size = sizeof...(Uses);
    hd_arg list[sizeof...(Uses) + 1];
};

inline hd_claim_options claim_options(const char *label) noexcept
{
    auto options = sized<hd_claim_options>();
    options.label = label;
    return options;
}

/* Calls a function object and returns its outcome: the status that it returns, HD_OK if it returns
 * nothing, or FAILED if it throws. */
template <class F, class Argument> hd_status outcome_of(F &function, Argument argument) noexcept
{
    const auto call = [&]() -> hd_status {
        if constexpr (std::is_void_v<decltype(function(argument))>) {
            function(argument);
            return HD_OK;
        } else {
            static_assert(std::is_same_v<decltype(function(argument)), hd_status>,
                          "a function that Heddle calls returns nothing, or an hd_status");
            return function(argument);
        }
    };
#ifdef __cpp_exceptions
    try {
        return call();
    } catch (...) {
        return HD_ERROR_FAILED;
    }
#else
    return call();
#endif
}

template <class F> void *context_of(F &function) noexcept
{
    static_assert(
        std::is_object_v<F>,
        "a plain function goes to hd_launch_host or hd_lane_run_native; here it is an object, such as a lambda");
    return const_cast<void *>(static_cast<const void *>(std::addressof(function)));
}

} // namespace detail

/* hd_claim_begin. */
template <class... Uses> HD_CPP_INLINE result<claim> begin_claim(runtime_ref of_runtime, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    hd_claim *out = nullptr;
    const hd_status status = hd_claim_begin(of_runtime.get(), all.list, all.size, &out);
    return detail::finish(status, claim(out));
}

/* hd_claim_begin_with, with a label for messages and reports. */
template <class... Uses>
HD_CPP_INLINE result<claim> begin_claim(runtime_ref of_runtime, const char *label, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    const hd_claim_options options = detail::claim_options(label);
    hd_claim *out = nullptr;
    const hd_status status = hd_claim_begin_with(of_runtime.get(), all.list, all.size, &options, &out);
    return detail::finish(status, claim(out));
}

/* hd_claim_begin_with, for a claim whose device memory the program copies with claim::read and
 * claim::write. `label` may be null. */
template <class... Uses>
HD_CPP_INLINE result<claim> begin_claim_with_copies(runtime_ref of_runtime, const char *label, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    hd_claim_options options = detail::claim_options(label);
    options.copies = true;
    hd_claim *out = nullptr;
    const hd_status status = hd_claim_begin_with(of_runtime.get(), all.list, all.size, &options, &out);
    return detail::finish(status, claim(out));
}

/* hd_claim_begin_stream: `stream` is a CUstream or cudaStream_t. */
template <class... Uses>
HD_CPP_INLINE result<claim> begin_claim_on(runtime_ref of_runtime, int device, void *stream, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    hd_claim *out = nullptr;
    const hd_status status = hd_claim_begin_stream(of_runtime.get(), device, stream, all.list, all.size, nullptr, &out);
    return detail::finish(status, claim(out));
}

template <class... Uses>
HD_CPP_INLINE result<claim> begin_claim_on(runtime_ref of_runtime, int device, void *stream, const char *label,
                                           const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    const hd_claim_options options = detail::claim_options(label);
    hd_claim *out = nullptr;
    const hd_status status =
        hd_claim_begin_stream(of_runtime.get(), device, stream, all.list, all.size, &options, &out);
    return detail::finish(status, claim(out));
}

/* ---- functions of the program ----
 *
 * A function is an object with operator(). The program must keep the object until the ticket is
 * done. The outcome of the function is the hd_status that it returns, HD_OK if it returns nothing,
 * or FAILED if it throws. */

/* hd_launch_host: function(void *const *pointers). */
template <class F, class... Uses>
HD_CPP_INLINE result<ticket> launch_host(runtime_ref of_runtime, F &function, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    const auto call = [](void *const *pointers, void *context) -> hd_status {
        return detail::outcome_of(*static_cast<F *>(context), pointers);
    };
    ticket out;
    const hd_status status =
        hd_launch_host(of_runtime.get(), call, detail::context_of(function), all.list, all.size, &out);
    return detail::finish(status, out);
}

#ifndef HD_NO_DEPRECATED
template <class F, class... Uses>
[[deprecated("its name is launch_host now")]] result<ticket> host_call(runtime_ref of_runtime, F &function,
                                                                       const Uses &...uses)
{
    return launch_host(of_runtime, function, uses...);
}
#endif

/* hd_lane_run_native: function(void *stream) puts work into the lane's CUstream. */
template <class F, class... Uses> result<ticket> run_native(lane_ref in_lane, F &function, const Uses &...uses)
{
    const detail::use_list<Uses...> all(uses...);
    const auto call = [](void *stream, void *context) -> hd_status {
        return detail::outcome_of(*static_cast<F *>(context), stream);
    };
    ticket out;
    const hd_status status =
        hd_lane_run_native(in_lane.get(), call, detail::context_of(function), all.list, all.size, &out);
    return detail::finish(status, out);
}

#ifndef HD_NO_DEPRECATED
template <class F, class... Uses>
[[deprecated("its name is run_native now")]] result<ticket> lane_call(lane_ref in_lane, F &function,
                                                                      const Uses &...uses)
{
    return run_native(in_lane, function, uses...);
}
#endif

HD_CPP_END
#endif
