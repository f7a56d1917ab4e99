/* classes.cpp - hd::mpi: messages and collective operations of spans, buffers and tensors.
 *
 * usage: mpiexec -n 2 classes
 *
 * Threads: the main one. Locks: none.
 */
#include <heddle.hpp>
#include <heddle/cpp/mpi.hpp>
#include "check.h"

static void operands(const hd::mpi &mpi, hd::lane_ref lane, int rank)
{
    const int other = 1 - rank;
    hd::buffer<int> x = hd::alloc<int>(lane, 100), y = hd::alloc<int>(lane, 100), both = hd::alloc<int>(lane, 200);
    hd::fill(x, rank + 1);
    hd::fill(y, 0);
    mpi.send(x.span(0, 10), other, 3);
    mpi.recv(y.span(90, 10), other, 3);
    EXPECT(hd::read(y)[90] == other + 1 && hd::read(y)[89] == 0);
    mpi.wait(mpi.sendrecv(x, other, y, other));
    EXPECT(hd::read(y)[0] == other + 1);
    mpi.allreduce(x, y, MPI_SUM);
    EXPECT(hd::read(y)[99] == 3);
    mpi.reduce(x, y, MPI_MAX, 1);
    EXPECT(hd::read(y)[0] == (rank == 1 ? 2 : 3));
    mpi.allgather(x, both);
    EXPECT(hd::read(both)[99] == 1 && hd::read(both)[100] == 2);
    mpi.alltoall(x, y);
    EXPECT(hd::read(y)[49] == 1 && hd::read(y)[50] == 2);
    mpi.bcast(x, 1);
    EXPECT(hd::read(x)[5] == 2);
    hd::tensor<float> table = hd::alloc_tensor<float>(lane, {4, 6});
    hd::fill(table.buffer(), static_cast<float>(rank));
    mpi.bcast(table.slice(1, 0, 3, 2), 0); /* every second column */
    const std::vector<float> got = hd::read(table.buffer());
    EXPECT(got[0] == 0 && got[1] == static_cast<float>(rank) && got[2] == 0);
    mpi.wait(mpi.barrier());
    EXPECT(mpi.enable_direct() == 0); /* the system's MPI cannot use device memory */
}

/* Two operands of a rank, as if each were of another device. */
static void lists(hd::mpi_ref mpi, hd::lane_ref lane, int rank)
{
    std::vector<hd::buffer<int>> x;
    hd::buffer<int> sum = hd::alloc<int>(lane, 20);
    const std::array<hd::span<int>, 2> halves = {sum.span(0, 10), sum.span(10, 10)};
    for (int i = 0; i < 2; i++) {
        x.push_back(hd::alloc<int>(lane, 10));
        hd::fill(x.back(), 10 * rank + i);
    }
    mpi.wait(mpi.allreduce(x, halves, MPI_SUM));
    EXPECT(hd::read(sum)[0] == 0 + 1 + 10 + 11 && hd::read(sum)[19] == 22);
    mpi.wait(mpi.bcast(halves, 1));
    EXPECT(hd::read(sum)[19] == 22);
    mpi.reduce(x, sum.span(0, 10), MPI_MAX, 0);
    EXPECT(hd::read(sum)[9] == (rank == 0 ? 11 : 22));
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        hd_mpi_place place{};
        hd::runtime runtime = hd::open_for_ranks(MPI_COMM_WORLD, "driver=host host_devices=1", &place);
        hd::mpi mpi = hd::open_mpi(runtime);
        EXPECT(place.rank == rank && place.ranks == 2);
        operands(mpi, runtime.default_lane(0), rank);
        lists(mpi, runtime.default_lane(0), rank);
        bool refused = false;
        try {
            mpi.send(hd::alloc_host<int>(runtime, 10), 17);
        } catch (const hd::error &e) {
            refused = e.status() == HD_ERROR_ARGUMENT;
        }
        EXPECT(refused);
        mpi.close();
        runtime.close();
    } catch (const hd::error &e) {
        FAIL("%s", e.what());
    }
    if (rank == 0) {
        std::printf("classes: all operands passed\n");
    }
    MPI_Finalize();
    return 0;
}
