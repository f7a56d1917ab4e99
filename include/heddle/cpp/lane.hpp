/* heddle/cpp/lane.hpp - lanes and tickets. heddle/lane.h is the reference.
 *
 * There are two kinds of waits. A wait() takes no limit, and returns when the work is finished. A
 * wait_for() takes a limit, and returns true if the work is finished, false if the limit passed. If
 * an operation failed, both kinds of waits report the failure as an error.
 *
 * Threads: any.
 * Locks: none.
 * Always: the program does not own a default lane, which ends with its thread, so a default lane is
 * an hd::lane_ref. The program owns a lane that it made, so this lane is an hd::lane.
 */
#ifndef HEDDLE_CPP_LANE_HPP
#define HEDDLE_CPP_LANE_HPP

#include <chrono>
#include <heddle/cpp/runtime.hpp>

HD_CPP_BEGIN

namespace detail
{

/* A negative limit becomes 0, and the call then only checks. In C, a negative limit would mean no
 * limit. */
inline std::int64_t limit_of(std::chrono::nanoseconds limit) noexcept
{
    return limit.count() < 0 ? 0 : static_cast<std::int64_t>(limit.count());
}

} // namespace detail

/* A position in a lane: a plain value around the hd_ticket of C. A ticket without a lane counts as
 * done. */
class ticket : public hd_ticket
{
  public:
    constexpr ticket() noexcept : hd_ticket{nullptr, 0}
    {
    }
    constexpr ticket(const hd_ticket &t) noexcept : hd_ticket(t)
    {
    }

    /* hd_done: a few loads. */
    bool done() const noexcept
    {
        return hd_done(*this);
    }

    /* hd_wait without a limit. */
    result<void> wait() const
    {
        return detail::finish(hd_wait(*this, HD_FOREVER));
    }

    /* hd_wait with a limit. Returns false if the limit passed. */
    result<bool> wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::finish_wait(hd_wait(*this, detail::limit_of(limit)));
    }
};

/* A lane that another object owns, or the default lane of a thread. */
class lane_ref : public detail::reference<hd_lane>
{
  public:
    using reference::reference;
    static hd_status end(hd_lane *handle) noexcept
    {
        return hd_lane_destroy(handle);
    }

    /* hd_lane_device: the number of the lane's device. */
    int device() const noexcept
    {
        return hd_lane_device(get());
    }
    /* hd_lane_number: the number of the lane on its device. */
    int number() const noexcept
    {
        return hd_lane_number(get());
    }

    /* hd_lane_get_ticket: a ticket for everything submitted so far. */
    result<hd::ticket> ticket() const
    {
        hd::ticket out;
        const hd_status status = hd_lane_get_ticket(get(), &out);
        return detail::finish(status, out);
    }

    /* hd_lane_wait without a limit. */
    result<void> wait() const
    {
        return detail::finish(hd_lane_wait(get(), HD_FOREVER));
    }

    /* hd_lane_wait with a limit. Returns false if the limit passed. */
    result<bool> wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::finish_wait(hd_lane_wait(get(), detail::limit_of(limit)));
    }

    /* hd_lane_add_dependency: later work of the lane begins when the ticket is done. Returns the
     * ticket of the wait. */
    result<hd::ticket> add_dependency(const hd::ticket &t) const
    {
        hd::ticket out;
        const hd_status status = hd_lane_add_dependency(get(), t, &out);
        return detail::finish(status, out);
    }

#ifndef HD_NO_DEPRECATED
    [[deprecated("its name is add_dependency now")]] result<hd::ticket> after(const hd::ticket &t) const
    {
        return add_dependency(t);
    }
#endif

    /* hd_lane_keep_times: operations that are submitted after this call get end times, for
     * hd::elapsed. */
    result<void> keep_times(bool on = true) const
    {
        return detail::finish(hd_lane_keep_times(get(), on));
    }

    /* hd_lane_reset without a limit: lets the lane accept work again after a failure. */
    result<void> accept_work() const
    {
        return detail::finish(hd_lane_reset(get(), HD_FOREVER));
    }

    /* hd_lane_reset with a limit. Returns false if the limit passed. */
    result<bool> accept_work_for(std::chrono::nanoseconds limit) const
    {
        return detail::finish_wait(hd_lane_reset(get(), detail::limit_of(limit)));
    }
};

/* hd_ticket_get_elapsed: the time from the end of the first operation to the end of the second one,
 * by the clock of their device. */
inline result<std::chrono::nanoseconds> elapsed(const ticket &from, const ticket &to)
{
    std::int64_t out = 0;
    const hd_status status = hd_ticket_get_elapsed(from, to, &out);
    return detail::finish(status, std::chrono::nanoseconds(out));
}

/* hd_lane_get_default: the calling thread's own lane on a device. */
inline result<lane_ref> runtime_ref::default_lane(int device) const
{
    hd_lane *out = nullptr;
    const hd_status status = hd_lane_get_default(get(), device, &out);
    return detail::finish(status, lane_ref(out));
}

/* hd_lane_create. */
inline result<lane> runtime_ref::create_lane(int device) const
{
    hd_lane *out = nullptr;
    const hd_status status = hd_lane_create(get(), device, &out);
    return detail::finish(status, lane(out));
}

HD_CPP_END
#endif
