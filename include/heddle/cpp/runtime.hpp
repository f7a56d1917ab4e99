/* heddle/cpp/runtime.hpp - the runtime: the devices of this machine and everything on them.
 * heddle/runtime.h is the reference.
 *
 *     hd::runtime runtime = hd::open();
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: C++ destroys objects in reverse order. Therefore buffers, lanes and modules that are
 * declared after their runtime end before the runtime. If an object outlives its runtime, calls
 * refuse the handle of the object, and its destructor does nothing.
 */
#ifndef HEDDLE_CPP_RUNTIME_HPP
#define HEDDLE_CPP_RUNTIME_HPP

#include <optional>
#include <string>
#include <vector>
#include <heddle/cpp/owned.hpp>

HD_CPP_BEGIN

class lane_ref;
class module_ref;
class hold_ref;
class callback;
template <class T> class buffer_ref;
/* A lane that its destructor gives back: hd_lane_destroy. */
using lane = owned<lane_ref>;
/* A module that its destructor unloads: hd_module_unload. */
using module = owned<module_ref>;
/* A hold that its destructor ends: hd_hold_destroy. */
using hold = owned<hold_ref>;
/* A buffer that its destructor frees: hd_free. */
template <class T> using buffer = owned<buffer_ref<T>>;

namespace detail
{

/* Makes a structure of the library that begins with `size`. */
template <class Structure> Structure sized() noexcept
{
    Structure s{};
    s.size = sizeof s;
    return s;
}

} // namespace detail

/* A runtime that another object owns. */
class runtime_ref : public detail::reference<hd_runtime>
{
  public:
    using reference::reference;
    static hd_status end(hd_runtime *handle) noexcept
    {
        return hd_close(handle);
    }

    /* hd_device_count. Devices are numbered from 0. */
    int device_count() const noexcept
    {
        return hd_device_count(get());
    }

    /* hd_runtime_get_info. */
    result<hd_runtime_info> info() const
    {
        auto out = detail::sized<hd_runtime_info>();
        const hd_status status = hd_runtime_get_info(get(), &out);
        return detail::finish(status, out);
    }

    /* hd_device_get_info. */
    result<hd_device_info> device_info(int device) const
    {
        auto out = detail::sized<hd_device_info>();
        const hd_status status = hd_device_get_info(get(), device, &out);
        return detail::finish(status, out);
    }

    /* hd_device_get_stats. */
    result<hd_device_stats> device_stats(int device) const
    {
        auto out = detail::sized<hd_device_stats>();
        const hd_status status = hd_device_get_stats(get(), device, &out);
        return detail::finish(status, out);
    }

    /* hd_device_restart. */
    result<void> restart(int device) const
    {
        return detail::finish(hd_device_restart(get(), device));
    }

    /* hd_loss_descriptor. */
    result<int> loss_descriptor() const
    {
        int out = -1;
        const hd_status status = hd_loss_descriptor(get(), &out);
        return detail::finish(status, out);
    }

    /* hd_loss_next. Returns an empty optional if hd_loss_next returns NOT_FOUND. */
    result<std::optional<hd_device_loss>> next_loss() const
    {
        auto out = detail::sized<hd_device_loss>();
        const hd_status status = hd_loss_next(get(), &out);
        const bool found = status != HD_ERROR_NOT_FOUND;
        return detail::finish(found ? status : HD_OK, found ? std::make_optional(out) : std::nullopt);
    }

    /* hd_option_get_info of all options. For a runtime_ref without a handle, the call returns the
     * defaults. */
    result<std::vector<hd_option_info>> options() const
    {
        std::vector<hd_option_info> out;
        for (;;) {
            auto option = detail::sized<hd_option_info>();
            const hd_status status = hd_option_get_info(get(), static_cast<int>(out.size()), &option);
            if (status != HD_OK) {
                return detail::finish(status == HD_ERROR_NOT_FOUND ? HD_OK : status, std::move(out));
            }
            out.push_back(option);
        }
    }

    /* ---- heddle/cpp/lane.hpp ---- */

    result<lane_ref> default_lane(int device) const;
    result<lane> create_lane(int device) const;

    /* ---- heddle/cpp/module.hpp ---- */

    result<module> load_module(const void *image, std::size_t bytes) const;
    result<module> load_module_file(const char *path) const;
    result<module_ref> builtin_module() const;

    /* ---- heddle/cpp/memory.hpp ---- */

    result<hd_memory_stats> memory_stats(int device) const;
    result<std::vector<hd_lane_memory>> memory_lanes(int device) const;
    result<std::size_t> memory_trim(int device, std::size_t keep_bytes = 0) const;
    result<std::vector<hd_memory_block>> memory_blocks() const;
    result<std::string> memory_report(hd_report_format format = HD_REPORT_TEXT) const;
    result<hold> create_hold() const;
    template <class Function> result<callback> on_reclaim(Function function) const;
    template <class Function> result<callback> on_finding(Function function) const;

    /* ---- heddle/cpp/peer.hpp ---- */

    result<hd_peer_info> peer_check(int device, int owner) const;
    result<void> peers_check(unsigned flags = 0) const;
    template <class Function> result<void> peers_check(unsigned flags, Function &&progress) const;
};

/* A runtime that its destructor closes. The destructor waits as hd_close does. */
using runtime = owned<runtime_ref>;

/* hd_open. `settings` is "name=value name=value ...". If it is nullptr, only the environment sets
 * options. */
inline result<runtime> open(const char *settings = nullptr)
{
    auto options = detail::sized<hd_options>();
    options.settings = settings;
    hd_runtime *out = nullptr;
    const hd_status status = hd_open(&options, &out);
    return detail::finish(status, runtime(out));
}

inline result<runtime> open(const std::string &settings)
{
    return open(settings.c_str());
}

HD_CPP_END
#endif
