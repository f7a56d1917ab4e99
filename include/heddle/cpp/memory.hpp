/* heddle/cpp/memory.hpp - limits, reclaim, statistics and safety of memory. heddle/memory.h is the
 * reference.
 *
 * Threads: any. heddle/memory.h lists the threads that run callbacks.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: an exception never leaves a callback. If a reclaim callback throws, Heddle continues as
 * if the callback had freed nothing.
 */
#ifndef HEDDLE_CPP_MEMORY_HPP
#define HEDDLE_CPP_MEMORY_HPP

#include <memory>
#include <heddle/cpp/buffer.hpp>

HD_CPP_BEGIN

/* hd_memory_get_stats. `device` may be HD_DEVICE_HOST. */
inline result<hd_memory_stats> runtime_ref::memory_stats(int device) const
{
    auto out = detail::sized<hd_memory_stats>();
    const hd_status status = hd_memory_get_stats(get(), device, &out);
    return detail::finish(status, out);
}

/* hd_memory_get_lanes. */
inline result<std::vector<hd_lane_memory>> runtime_ref::memory_lanes(int device) const
{
    std::vector<hd_lane_memory> out(256); /* a device has no more lanes for the program */
    std::size_t count = 0;
    const hd_status status = hd_memory_get_lanes(get(), device, out.data(), out.size(), &count);
    out.resize(count < out.size() ? count : out.size());
    return detail::finish(status, std::move(out));
}

/* hd_memory_trim. Returns the bytes that went back to the driver. */
inline result<std::size_t> runtime_ref::memory_trim(int device, std::size_t keep_bytes) const
{
    std::size_t out = 0;
    const hd_status status = hd_memory_trim(get(), device, keep_bytes, &out);
    return detail::finish(status, out);
}

/* hd_memory_each. Returns the buffers that are not freed, or that a hold keeps. */
inline result<std::vector<hd_memory_block>> runtime_ref::memory_blocks() const
{
    std::vector<hd_memory_block> out;
    const hd_status status = hd_memory_each(
        get(),
        [](void *context, const hd_memory_block *block) noexcept {
            static_cast<std::vector<hd_memory_block> *>(context)->push_back(*block);
            return true;
        },
        &out);
    return detail::finish(status, std::move(out));
}

namespace detail
{

/* Returns the text of a report. The report may grow between two calls, so the second call gets more
 * room. */
template <class Report> result<std::string> text_of(const Report &report)
{
    std::string out;
    std::size_t needed = 0;
    hd_status status = report(nullptr, 0, &needed);
    while (status == HD_OK && needed > out.size()) {
        out.resize(needed + needed / 4);
        status = report(out.data(), out.size(), &needed);
    }
    out.resize(needed > 0 ? needed - 1 : 0); /* without the zero at the end */
    return finish(status, std::move(out));
}

} // namespace detail

/* hd_memory_report. */
inline result<std::string> runtime_ref::memory_report(hd_report_format format) const
{
    return detail::text_of([&](char *out, std::size_t room, std::size_t *needed) {
        return hd_memory_report(get(), format, out, room, needed);
    });
}

/* hd_memory_report_of: the report on the runtimes of another process; if pid is 0, the report on
 * all processes of this user. */
inline result<std::string> memory_report_of(int pid, hd_report_format format = HD_REPORT_TEXT)
{
    return detail::text_of([&](char *out, std::size_t room, std::size_t *needed) {
        return hd_memory_report_of(pid, format, out, room, needed);
    });
}

/* ---- holds ---- */

/* A hold that another object owns. */
class hold_ref : public detail::reference<hd_hold>
{
  public:
    using reference::reference;
    static hd_status end(hd_hold *handle) noexcept
    {
        return hd_hold_destroy(handle);
    }

    /* hd_hold_add. */
    template <class T> result<void> add(const buffer_ref<T> &b) const
    {
        return detail::finish(hd_hold_add(get(), b.get()));
    }
};

/* hd_hold_create. */
inline result<hold> runtime_ref::create_hold() const
{
    hd_hold *out = nullptr;
    const hd_status status = hd_hold_create(get(), &out);
    return detail::finish(status, hold(out));
}

/* ---- callbacks ---- */

/* A function that a runtime calls as long as this object lives. The destructor removes the
 * function, and waits until no call of the function is under way. Therefore the function itself
 * must not destroy the object. */
class callback
{
  public:
    callback() noexcept = default;
    callback(callback &&other) noexcept
        : runtime_(std::exchange(other.runtime_, {})), remove_(std::exchange(other.remove_, nullptr)),
          function_(std::move(other.function_))
    {
    }
    callback &operator=(callback &&other) noexcept
    {
        if (this != &other) {
            reset();
            runtime_ = std::exchange(other.runtime_, {});
            remove_ = std::exchange(other.remove_, nullptr);
            function_ = std::move(other.function_);
        }
        return *this;
    }
    ~callback()
    {
        reset();
    }

    /* Removes the function now. */
    void reset() noexcept
    {
        if (remove_ != nullptr) {
            (void)remove_(runtime_.get());
        }
        remove_ = nullptr;
        function_.reset();
    }

  private:
    friend class runtime_ref;
    using any = std::unique_ptr<void, void (*)(void *)>;
    callback(runtime_ref of_runtime, hd_status (*remove)(hd_runtime *), any function) noexcept
        : runtime_(of_runtime), remove_(remove), function_(std::move(function))
    {
    }
    static void delete_none(void *) noexcept
    {
    }

    runtime_ref runtime_;
    hd_status (*remove_)(hd_runtime *) = nullptr;
    any function_{nullptr, delete_none};
};

namespace detail
{

/* Calls a function of the program for the library, and catches its exceptions, because no exception
 * may pass through code in C. */
template <class Function> bool call_reclaim(void *function, const hd_reclaim *what) noexcept
{
#if HD_CPP_THROWS
    try {
        return (*static_cast<Function *>(function))(*what);
    } catch (...) {
        return false;
    }
#else
    return (*static_cast<Function *>(function))(*what);
#endif
}

template <class Function> void call_finding(void *function, const hd_finding *finding) noexcept
{
#if HD_CPP_THROWS
    try {
        (*static_cast<Function *>(function))(*finding);
    } catch (...) {
    }
#else
    (*static_cast<Function *>(function))(*finding);
#endif
}

} // namespace detail

/* hd_memory_on_reclaim: `function` takes a const hd_reclaim & and returns true if it freed
 * anything. */
template <class Function> result<callback> runtime_ref::on_reclaim(Function function) const
{
    static_assert(std::is_invocable_r_v<bool, Function &, const hd_reclaim &>,
                  "on_reclaim: the function takes a const hd_reclaim & and returns a bool");
    callback::any kept(new Function(std::move(function)), [](void *f) { delete static_cast<Function *>(f); });
    const hd_status status = hd_memory_on_reclaim(get(), detail::call_reclaim<Function>, kept.get());
    const auto remove = [](hd_runtime *of) { return hd_memory_on_reclaim(of, nullptr, nullptr); };
    return detail::finish(status, status == HD_OK ? callback(*this, remove, std::move(kept)) : callback());
}

/* hd_memory_on_finding: `function` takes a const hd_finding &. To get the leaks that hd_close
 * finds, declare the callback object before the runtime. */
template <class Function> result<callback> runtime_ref::on_finding(Function function) const
{
    static_assert(std::is_invocable_v<Function &, const hd_finding &>,
                  "on_finding: the function takes a const hd_finding &");
    callback::any kept(new Function(std::move(function)), [](void *f) { delete static_cast<Function *>(f); });
    const hd_status status = hd_memory_on_finding(get(), detail::call_finding<Function>, kept.get());
    const auto remove = [](hd_runtime *of) { return hd_memory_on_finding(of, nullptr, nullptr); };
    return detail::finish(status, status == HD_OK ? callback(*this, remove, std::move(kept)) : callback());
}

HD_CPP_END
#endif
