/* heddle/cpp/peer.hpp - which device can use the memory of which other device. heddle/peer.h is the
 * reference.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: all calls wait for the tests of pairs.
 * Always: if the callback of peers_check throws, peers_check throws the same exception after the
 * tests.
 */
#ifndef HEDDLE_CPP_PEER_HPP
#define HEDDLE_CPP_PEER_HPP

#include <exception>
#include <heddle/cpp/runtime.hpp>

HD_CPP_BEGIN

/* hd_peer_check: how `device` can use memory of `owner`. */
inline result<hd_peer_info> runtime_ref::peer_check(int device, int owner) const
{
    auto out = detail::sized<hd_peer_info>();
    const hd_status status = hd_peer_check(get(), device, owner, &out);
    return detail::finish(status, out);
}

/* hd_peers_check of all pairs without a known verdict, or with HD_PEERS_AGAIN of all pairs. */
inline result<void> runtime_ref::peers_check(unsigned flags) const
{
    return detail::finish(hd_peers_check(get(), flags, nullptr, nullptr));
}

/* hd_peers_check with a callback. After each pair, the call calls progress(int device, int owner,
 * const hd_peer_info &, int done, int total). If `progress` throws, the call does not call
 * `progress` again, and throws the same exception at its end. */
template <class Function> result<void> runtime_ref::peers_check(unsigned flags, Function &&progress) const
{
    struct watch {
        std::remove_reference_t<Function> &function;
#if HD_CPP_THROWS
        std::exception_ptr thrown;
#endif
    } watching
    {
        progress
#if HD_CPP_THROWS
            ,
            nullptr
#endif
    };
    const hd_status status = hd_peers_check(
        get(), flags,
        [](void *context, int device, int owner, const hd_peer_info *info, int done, int total) noexcept {
            watch &w = *static_cast<watch *>(context);
#if HD_CPP_THROWS
            try {
                if (!w.thrown) {
                    w.function(device, owner, *info, done, total);
                }
            } catch (...) {
                w.thrown = std::current_exception();
            }
#else
            w.function(device, owner, *info, done, total);
#endif
        },
        &watching);
#if HD_CPP_THROWS
    if (watching.thrown) {
        std::rethrow_exception(watching.thrown);
    }
#endif
    return detail::finish(status);
}

HD_CPP_END
#endif
