/* heddle/cpp/mpi.hpp - buffers and tensors as operands of MPI. heddle/mpi.h is the reference.
 *
 * heddle.hpp does not include this header, since it needs the mpi.h of an MPI. Include it after
 * heddle.hpp, and compile with mpicxx.
 *
 *     hd::runtime runtime = hd::open_for_ranks(MPI_COMM_WORLD);
 *     hd::mpi mpi = hd::open_mpi(runtime);
 *     mpi.send(x.span(0, 100), 1, 7);            // to rank 1, with tag 7
 *     mpi.allreduce(x, sum, MPI_SUM);
 *     mpi.recv(halo, 1, 8).wait();
 *
 * For collective operations, an operand may also be a std::vector or std::array of operands, one
 * for each device (hd_mpi_each).
 *
 * Threads: any, as in C.
 * Locks: none.
 * Blocking: as the C calls.
 * Always: an hd::mpi that is destroyed waits up to ten seconds for its operations; close() reports
 * what did not end.
 */
#ifndef HEDDLE_CPP_MPI_HPP
#define HEDDLE_CPP_MPI_HPP

#include <array>
#include <vector>
#include <heddle/mpi.h>
#include <heddle/cpp/copy.hpp>
#include <heddle/cpp/tensor.hpp>

HD_CPP_BEGIN

namespace detail
{

/* An operand of MPI: a buffer, a part of one, or a tensor. */
template <class T> hd_mpi_data mpi_data(const span<T> &s) noexcept
{
    return hd_mpi_range(s.buffer().get(), s.offset_bytes(), s.size_bytes());
}
template <class T> hd_mpi_data mpi_data(const buffer_ref<T> &b) noexcept
{
    return hd_mpi_buffer(b.get());
}
template <class T> hd_mpi_data mpi_data(const tensor_view<T> &t) noexcept
{
    return hd_mpi_tensor(&t.get());
}

/* Operands of several devices: hd_mpi_each. */
struct mpi_list {
    hd_mpi_data each[64]; /* as many as MPI operations take; a longer list is refused */
    std::size_t n;

    template <class Sides> explicit mpi_list(const Sides &sides) noexcept : each{}, n(sides.size())
    {
        for (std::size_t i = 0; i < n && i < 64; i++) {
            each[i] = mpi_data(sides[i]);
        }
    }
    operator hd_mpi_data() const noexcept
    {
        return hd_mpi_each(each, n);
    }
};
template <class Side, class A> mpi_list mpi_data(const std::vector<Side, A> &sides) noexcept
{
    return mpi_list(sides);
}
template <class Side, std::size_t N> mpi_list mpi_data(const std::array<Side, N> &sides) noexcept
{
    return mpi_list(sides);
}

/* The type of the elements of an operand. */
template <class T> T mpi_element_of(const span<T> &);
template <class T> T mpi_element_of(const buffer_ref<T> &);
template <class T> T mpi_element_of(const tensor_view<T> &);
template <class Side, class A>
auto mpi_element_of(const std::vector<Side, A> &sides) -> decltype(mpi_element_of(sides[0]));
template <class Side, std::size_t N>
auto mpi_element_of(const std::array<Side, N> &sides) -> decltype(mpi_element_of(sides[0]));
template <class Side> using mpi_element_t = decltype(mpi_element_of(std::declval<const Side &>()));

} // namespace detail

/* The MPI operations of a runtime, which another object owns. */
class mpi_ref : public detail::reference<hd_mpi>
{
  public:
    using reference::reference;
    static hd_status end(hd_mpi *handle) noexcept
    {
        return hd_mpi_close(handle, INT64_C(10000000000));
    }

    /* hd_mpi_wait without a limit. */
    result<void> wait(const hd::ticket &t) const
    {
        return detail::finish(hd_mpi_wait(get(), t, HD_FOREVER));
    }

    /* hd_mpi_enable_direct. Returns the number of ranks with which messages go directly. */
    result<int> enable_direct(MPI_Comm comm = MPI_COMM_WORLD) const
    {
        int passed = 0;
        const hd_status status = hd_mpi_enable_direct(get(), comm, &passed);
        return detail::finish(status, passed);
    }

    /* hd_mpi_send. */
    template <class From>
    result<hd::ticket> send(const From &from, int to, int tag = 0, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_send(get(), detail::mpi_data(from), to, tag, comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_recv of a message that is exactly as long as `to`. */
    template <class To>
    result<hd::ticket> recv(const To &to, int from, int tag = 0, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_recv(get(), detail::mpi_data(to), from, tag, comm, nullptr, nullptr, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_sendrecv with one tag. Returns the ticket of the receive. */
    template <class From, class To>
    result<hd::ticket> sendrecv(const From &sent, int to, const To &received, int from, int tag = 0,
                                MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_sendrecv(get(), detail::mpi_data(sent), to, tag, detail::mpi_data(received),
                                                 from, tag, comm, nullptr, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_bcast. */
    template <class Data> result<hd::ticket> bcast(const Data &data, int root, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_bcast(get(), detail::mpi_data(data), root, comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_reduce. On ranks other than `root`, `received` only determines the type. */
    template <class From, class To>
    result<hd::ticket> reduce(const From &sent, const To &received, MPI_Op op, int root,
                              MPI_Comm comm = MPI_COMM_WORLD) const
    {
        using T = detail::mpi_element_t<From>;
        static_assert(std::is_same_v<T, detail::mpi_element_t<To>>, "mpi.reduce: the elements are of different types");
        hd::ticket out;
        const hd_status status = hd_mpi_reduce(get(), detail::mpi_data(sent), detail::mpi_data(received),
                                               detail::type_of<T>(), op, root, comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_allreduce. */
    template <class From, class To>
    result<hd::ticket> allreduce(const From &sent, const To &received, MPI_Op op, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        using T = detail::mpi_element_t<From>;
        static_assert(std::is_same_v<T, detail::mpi_element_t<To>>,
                      "mpi.allreduce: the elements are of different types");
        hd::ticket out;
        const hd_status status = hd_mpi_allreduce(get(), detail::mpi_data(sent), detail::mpi_data(received),
                                                  detail::type_of<T>(), op, comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_allgather. */
    template <class From, class To>
    result<hd::ticket> allgather(const From &sent, const To &received, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status =
            hd_mpi_allgather(get(), detail::mpi_data(sent), detail::mpi_data(received), comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_alltoall. */
    template <class From, class To>
    result<hd::ticket> alltoall(const From &sent, const To &received, MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_alltoall(get(), detail::mpi_data(sent), detail::mpi_data(received), comm, &out);
        return detail::finish(status, out);
    }

    /* hd_mpi_barrier. */
    result<hd::ticket> barrier(MPI_Comm comm = MPI_COMM_WORLD) const
    {
        hd::ticket out;
        const hd_status status = hd_mpi_barrier(get(), comm, &out);
        return detail::finish(status, out);
    }
};

/* The MPI operations of a runtime. The destructor closes them: hd_mpi_close. */
using mpi = owned<mpi_ref>;

/* hd_mpi_runtime_open. */
inline result<runtime> open_for_ranks(MPI_Comm comm, const char *settings = nullptr, hd_mpi_place *place = nullptr)
{
    hd_runtime *out = nullptr;
    const hd_status status = hd_mpi_runtime_open(comm, settings, &out, place);
    return detail::finish(status, runtime(out));
}

/* hd_mpi_open; `options` may be null. */
inline result<mpi> open_mpi(runtime_ref of_runtime, const hd_mpi_options *options = nullptr)
{
    hd_mpi *out = nullptr;
    const hd_status status = hd_mpi_open(of_runtime.get(), options, &out);
    return detail::finish(status, mpi(out));
}

/* hd_mpi_trace_clock. */
inline result<void> trace_clock(MPI_Comm comm, runtime_ref of_runtime)
{
    return detail::finish(hd_mpi_trace_clock(comm, of_runtime.get()));
}

HD_CPP_END
#endif
