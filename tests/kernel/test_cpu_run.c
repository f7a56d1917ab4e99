/* test_cpu_run.c - the CPU's block scheduler: barriers, shared memory, atomics, faults, perturbed
 * order, several launches.
 *
 * Promise: Kernels on the CPU keep barriers, shared memory and atomics under every schedule.
 * Threads: the main one, several that launch in one case, and those of the pool of cores.
 */
#include "support/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <heddle/kernel.h>
#include "base/wait.h"
#include "simulator/cpu_fiber.h"
#include "simulator/cpu_run.h"

#define KERNEL(name) (&name##_hd_record.kernel)

static hdi_cpu_launch launch_of(const hd_cpu_kernel *kernel, const void *arguments, uint32_t grid, uint32_t block)
{
    hdi_cpu_launch l;
    memset(&l, 0, sizeof l);
    l.kernel = kernel;
    l.arguments = arguments;
    l.grid[0] = grid, l.grid[1] = 1, l.grid[2] = 1;
    l.block[0] = block, l.block[1] = 1, l.block[2] = 1;
    return l;
}

HD_KERNEL(ids, HD_OUT(uint32_t, out))
{
    uint32_t block = (hd_block_z() * hd_grid_dim_y() + hd_block_y()) * hd_grid_dim_x() + hd_block_x();
    uint32_t thread = (hd_thread_z() * hd_block_dim_y() + hd_thread_y()) * hd_block_dim_x() + hd_thread_x();
    uint32_t threads = hd_block_dim_x() * hd_block_dim_y() * hd_block_dim_z();
    hd_atomic_add_u32(&out[(uint64_t)block * threads + thread], 1 + block * 1000 + thread);
}

static void every_thread_runs_once(void **unused)
{
    (void)unused;
    enum { BLOCKS = 5 * 3 * 2, THREADS = 7 * 2 * 3 };
    for (uint64_t seed = 0; seed < 4; seed++) {
        uint32_t *out = calloc(BLOCKS * THREADS, sizeof *out);
        struct ids_hd_arguments a = {.out = out};
        hdi_cpu_launch l = launch_of(KERNEL(ids), &a, 5, 7);
        l.grid[1] = 3, l.grid[2] = 2, l.block[1] = 2, l.block[2] = 3;
        l.schedule = seed;
        assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            for (uint32_t t = 0; t < THREADS; t++) {
                assert_int_equal(out[b * THREADS + t], 1 + b * 1000 + t);
            }
        }
        free(out);
    }
}

/* Reverses each block through static shared memory and sums it through dynamic shared memory, with
 * helper functions. */
HD_DEVICE void put(HD_SELF, uint32_t *dst, uint32_t v)
{
    dst[hd_thread_x()] = v;
    hd_barrier();
}

HD_KERNEL_BOUNDS(shuffle, 1024, HD_INOUT(uint32_t, data), HD_OUT(uint32_t, sums), HD_VALUE(uint32_t, rounds))
{
    HD_SHARED uint32_t tile[1024];
    HD_DYNAMIC_SHARED(uint32_t, partial);
    uint32_t t = hd_thread_x(), n = hd_block_dim_x();
    uint32_t *mine = data + (uint64_t)hd_block_x() * n;
    for (uint32_t r = 0; r < rounds; r++) {
        put(hd_self, tile, mine[t]);
        mine[t] = tile[n - 1 - t];
        hd_barrier();
    }
    partial[t] = mine[t];
    hd_barrier();
    for (uint32_t half = n / 2; half > 0; half /= 2) {
        if (t < half) {
            partial[t] += partial[t + half];
        }
        hd_barrier();
    }
    if (t == 0) {
        sums[hd_block_x()] = partial[0];
    }
}

static void run_shuffle(uint32_t blocks, uint32_t threads, uint64_t seed)
{
    uint32_t *data = malloc((size_t)blocks * threads * sizeof *data);
    uint32_t *sums = calloc(blocks, sizeof *sums);
    for (uint32_t i = 0; i < blocks * threads; i++) {
        data[i] = i * 7 + 1;
    }
    struct shuffle_hd_arguments a = {.data = data, .sums = sums, .rounds = 3};
    hdi_cpu_launch l = launch_of(KERNEL(shuffle), &a, blocks, threads);
    l.dynamic_shared_bytes = threads * sizeof(uint32_t);
    l.schedule = seed;
    assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (uint32_t t = 0; t < threads; t++) {
            uint32_t expected = (b * threads + threads - 1 - t) * 7 + 1;
            assert_int_equal(data[b * threads + t], expected);
            sum += expected;
        }
        assert_int_equal(sums[b], sum);
    }
    free(data);
    free(sums);
}

static void barriers_and_shared_memory(void **unused)
{
    (void)unused;
    run_shuffle(40, 64, 0);
    run_shuffle(3, 1024, 0);
    run_shuffle(9, 1, 0);
    for (uint64_t seed = 1; seed < 6; seed++) {
        run_shuffle(7, 128, seed);
    }
}

/* Thread t returns after t % 4 barriers; the others keep meeting. */
HD_KERNEL(leavers, HD_INOUT(uint32_t, arrived), HD_INOUT(uint32_t, wrong))
{
    uint32_t t = hd_thread_x(), n = hd_block_dim_x();
    for (uint32_t round = 0; round < t % 4; round++) {
        hd_atomic_add_u32(&arrived[hd_block_x() * 4 + round], 1);
        hd_barrier();
        uint32_t expected = 0;
        for (uint32_t i = 0; i < n; i++) {
            expected += i % 4 > round;
        }
        if (arrived[hd_block_x() * 4 + round] != expected) {
            hd_atomic_add_u32(wrong, 1);
        }
        hd_barrier();
    }
}

static void threads_may_return_before_others_meet(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < 5; seed++) {
        uint32_t arrived[10 * 4] = {0}, wrong = 0;
        struct leavers_hd_arguments a = {.arrived = arrived, .wrong = &wrong};
        hdi_cpu_launch l = launch_of(KERNEL(leavers), &a, 10, 50);
        l.schedule = seed;
        assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
        assert_int_equal(wrong, 0);
        assert_int_equal(arrived[2], 12);
    }
}

HD_KERNEL(count, HD_INOUT(int32_t, i), HD_INOUT(uint64_t, u), HD_INOUT(float, f), HD_INOUT(int32_t, most),
          HD_INOUT(uint32_t, tickets), HD_INOUT(uint64_t, bits))
{
    hd_atomic_add_i32(i, -1);
    hd_atomic_add_u64(u, (uint64_t)1 << 33);
    hd_atomic_add_f32(f, 0.5f);
    hd_atomic_max_i32(most, (int32_t)hd_global_x());
    uint32_t seen = 0;
    for (;;) {
        uint32_t before = hd_atomic_cas_u32(tickets, seen, seen + 2);
        if (before == seen) {
            break;
        }
        seen = before;
    }
    uint64_t b = 0;
    for (;;) {
        uint64_t before = hd_atomic_cas_u64(bits, b, b + 3);
        if (before == b) {
            break;
        }
        b = before;
    }
}

static void atomics(void **unused)
{
    (void)unused;
    int32_t i = 0, most = -5;
    uint64_t u = 0, bits = 0;
    float f = 0;
    uint32_t tickets = 0;
    struct count_hd_arguments a = {&i, &u, &f, &most, &tickets, &bits, 0};
    hdi_cpu_launch l = launch_of(KERNEL(count), &a, 64, 32);
    assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
    assert_int_equal(i, -2048);
    assert_true(u == (uint64_t)2048 << 33);
    assert_true(f == 1024.0f);
    assert_int_equal(most, 2047);
    assert_int_equal(tickets, 4096);
    assert_true(bits == 3 * 2048);
}

/* Block b waits for all other blocks, so it ends only if as many system threads run at once as
 * there are blocks. */
HD_KERNEL(meet, HD_INOUT(uint32_t, here), HD_VALUE(uint32_t, blocks))
{
    hd_atomic_add_u32(here, 1);
    while (__atomic_load_n(here, __ATOMIC_RELAXED) < blocks) {
    }
}

static void all_processors_work(void **unused)
{
    (void)unused;
    uint32_t blocks = (uint32_t)hdi_cpu_count();
    uint32_t here = 0;
    struct meet_hd_arguments a = {.here = &here, .blocks = blocks};
    hdi_cpu_launch l = launch_of(KERNEL(meet), &a, blocks, 1);
    assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
    assert_int_equal(here, blocks);
}

static void *many_launches(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 12; i++) {
        run_shuffle(1 + i % 5, 32, i % 3);
    }
    return NULL;
}

static void launches_run_side_by_side(void **unused)
{
    (void)unused;
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, many_launches, NULL), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* One thread of one block fails in the given way, half-way between barriers. */
enum { READ_UNMAPPED = 1, DIVIDE, TRAP, OVERFLOW_STACK, WILD_ADDRESS };

#if defined(__clang__) || defined(__GNUC__)
#define UNCHECKED __attribute__((no_sanitize("undefined", "address"), noinline, unused))
#endif

UNCHECKED static uint32_t recurse(volatile uint32_t *p, uint32_t depth)
{
    volatile uint32_t frame[256];
    frame[depth % 256] = *p + depth;
    return depth == UINT32_MAX ? 0 : recurse(frame, depth + 1) + frame[(depth + 1) % 256];
}

UNCHECKED static uint32_t read_word(const volatile uint32_t *p)
{
    return *p;
}

UNCHECKED static int divide(int a, volatile int b)
{
    return a / b;
}

HD_KERNEL(fails, HD_IN(uint32_t, bad), HD_INOUT(uint32_t, out), HD_VALUE(int32_t, how), HD_VALUE(uint32_t, barriers))
{
    for (uint32_t i = 0; i < barriers; i++) {
        hd_barrier();
    }
    if (hd_thread_x() == hd_block_dim_x() / 2 && hd_block_x() == hd_grid_dim_x() / 2) {
        uint32_t start = 1;
        switch (how) {
        case READ_UNMAPPED:
        case WILD_ADDRESS:
            out[0] = read_word(bad);
            break;
        case DIVIDE:
            out[0] = (uint32_t)divide((int)out[0] + 1, 0);
            break;
        case TRAP:
            __builtin_trap();
        case OVERFLOW_STACK:
            out[0] = recurse(&start, 1);
            break;
        }
    }
    hd_barrier();
}

static hdcu_result fail_in(int how, const void *bad, uint32_t block, uint32_t barriers, uintptr_t *address)
{
    uint32_t out = 0;
    struct fails_hd_arguments a = {.bad = bad, .out = &out, .how = how, .barriers = barriers};
    hdi_cpu_launch l = launch_of(KERNEL(fails), &a, 8, block);
    return hdi_cpu_run(&l, address);
}

static void faults_end_the_launch_alone(void **unused)
{
    (void)unused;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *unmapped = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(unmapped != MAP_FAILED);
    for (int round = 0; round < 5; round++) {
        for (uint32_t barriers = 0; barriers < 2; barriers++) {
            uint32_t block = round % 2 ? 64 : 1;
            uintptr_t address = 0;
            assert_int_equal(fail_in(READ_UNMAPPED, unmapped + 64, block, barriers, &address),
                             HDCU_ERROR_ILLEGAL_ADDRESS);
            assert_true(address == (uintptr_t)unmapped + 64);
            address = 5;
#if defined(__x86_64__) || defined(__i386__)
            assert_int_equal(fail_in(DIVIDE, NULL, block, barriers, &address), HDCU_ERROR_LAUNCH_FAILED);
            assert_int_equal(fail_in(TRAP, NULL, block, barriers, &address), HDCU_ERROR_ILLEGAL_INSTRUCTION);
            assert_int_equal(address, 5);
#endif
            assert_int_equal(fail_in(WILD_ADDRESS, (void *)(uintptr_t)0x8000000000000000u, block, barriers, &address),
                             HDCU_ERROR_ILLEGAL_ADDRESS);
            assert_int_equal(fail_in(OVERFLOW_STACK, NULL, block, barriers, &address), HDCU_ERROR_ILLEGAL_ADDRESS);
            assert_int_equal(fail_in(0, NULL, block, barriers, &address), HDCU_SUCCESS);
        }
        run_shuffle(5, 128, (uint64_t)round);
    }
    munmap(unmapped, page);
}

/* Runs so many threads with barriers, some with faults, that the sanitizers' records would overflow
 * if each thread left something. */
static void nothing_piles_up(void **unused)
{
    (void)unused;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *unmapped = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(unmapped != MAP_FAILED);
    for (int round = 0; round < 500; round++) {
        bool bad = round % 4 == 0;
        assert_int_equal(fail_in(bad ? READ_UNMAPPED : 0, unmapped, 32, 1, NULL),
                         bad ? HDCU_ERROR_ILLEGAL_ADDRESS : HDCU_SUCCESS);
    }
    munmap(unmapped, page);
}

struct copy {
    void *dst;
    const void *src;
    size_t bytes;
};

static void copy_bytes(void *data)
{
    struct copy *c = data;
    memcpy(c->dst, c->src, c->bytes);
}

static void guarded_copies(void **unused)
{
    (void)unused;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(two != MAP_FAILED);
    mprotect(two + page, page, PROT_NONE);
    char *source = malloc(2 * page);
    memset(source, 'x', 2 * page);
    for (int round = 0; round < 20; round++) {
        struct copy good = {two, source, page}, bad = {two, source, page + 16};
        uintptr_t address = 0;
        assert_int_equal(hdi_cpu_guarded(copy_bytes, &good, &address), HDCU_SUCCESS);
        assert_int_equal(two[page - 1], 'x');
        assert_int_equal(address, 0);
        assert_int_equal(hdi_cpu_guarded(copy_bytes, &bad, &address), HDCU_ERROR_ILLEGAL_ADDRESS);
        assert_true(address >= (uintptr_t)two + page - 64 && address < (uintptr_t)two + 2 * page);
    }
    free(source);
    munmap(two, 2 * page);
}

HD_KERNEL(first_block, HD_OUT(uint32_t, order), HD_INOUT(uint32_t, next))
{
    order[hd_atomic_add_u32(next, 1)] = hd_block_x() * 64 + hd_thread_x();
}

static void seeds_change_the_order(void **unused)
{
    (void)unused;
    int different = 0;
    for (uint64_t seed = 1; seed < 10; seed++) {
        uint32_t order[64 * 4] = {0}, next = 0;
        struct first_block_hd_arguments a = {.order = order, .next = &next};
        hdi_cpu_launch l = launch_of(KERNEL(first_block), &a, 1, 64);
        l.schedule = seed;
        assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
        assert_int_equal(next, 64);
        different += order[0] != 0 || order[1] != 1;
    }
    assert_true(different > 5);
}

static void cancelled_launches_skip_blocks(void **unused)
{
    (void)unused;
    uint32_t order[256] = {0}, next = 0;
    volatile int cancel = 1;
    struct first_block_hd_arguments a = {.order = order, .next = &next};
    hdi_cpu_launch l = launch_of(KERNEL(first_block), &a, 4, 64);
    l.cancel = &cancel;
    assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
    assert_int_equal(next, 0);
}

struct mixed {
    double d;
    char c;
};

HD_KERNEL(layout, HD_VALUE(uint8_t, a), HD_VALUE(struct mixed, b), HD_VALUE(int16_t, c), HD_OUT(double, out),
          HD_VALUE(float, d))
{
    out[0] = a + b.d + b.c + c + (double)d;
}

HD_KERNEL(empty)
{
}

static void arguments_and_descriptions(void **unused)
{
    (void)unused;
    const hd_cpu_kernel *k = KERNEL(layout);
    assert_string_equal(k->name, "layout");
    assert_int_equal(k->n_params, 5);
    assert_int_equal(k->argument_bytes, 44);
    assert_int_equal(k->max_threads, 0);
    assert_int_equal(KERNEL(shuffle)->max_threads, 1024);
    const uint32_t expected[5][4] = {
        {3, 0, 0, 1}, {12, 0, 8, 16}, {4, 0, 24, 2}, {1, 2 | 11 << 8 | 8 << 16, 32, 8}, {10, 0, 40, 4}};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k->params[i].kind, expected[i][0]);
        assert_int_equal(k->params[i].access, expected[i][1]);
        assert_int_equal(k->params[i].offset, expected[i][2]);
        assert_int_equal(k->params[i].size, expected[i][3]);
    }
    assert_string_equal(k->params[3].name, "out");
    double out = 0;
    _Alignas(16) char block[64 + 8];
    struct layout_hd_arguments a = {.a = 1, .b = {2.5, 3}, .c = -4, .out = &out, .d = 0.25f};
    memcpy(block + 8, &a, sizeof a); /* not aligned to 16 */
    hdi_cpu_launch l = launch_of(k, block + 8, 1, 1);
    assert_int_equal(hdi_cpu_run(&l, NULL), HDCU_SUCCESS);
    assert_true(out == 2.75);
    assert_int_equal(KERNEL(empty)->n_params, 0);
    assert_int_equal(KERNEL(empty)->argument_bytes, 0);
    hdi_cpu_launch e = launch_of(KERNEL(empty), NULL, 3, 3);
    assert_int_equal(hdi_cpu_run(&e, NULL), HDCU_SUCCESS);
    e.block[1] = 0;
    assert_int_equal(hdi_cpu_run(&e, NULL), HDCU_ERROR_INVALID_VALUE);
}

static volatile sig_atomic_t seen_signal;
static void on_fpe(int signal)
{
    seen_signal = signal;
}

/* Runs before anything else here uses the pool. In a child, the earlier handler gets signals that
 * are not the library's own. */
static void other_signals_go_to_the_handler_before(void **unused)
{
    (void)unused;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGFPE, on_fpe);
        signal(SIGILL, SIG_DFL);
        hdi_cpu_launch e = launch_of(KERNEL(empty), NULL, 3, 3);
        if (hdi_cpu_run(&e, NULL) != HDCU_SUCCESS) {
            _exit(1);
        }
        raise(SIGFPE);
        if (seen_signal != SIGFPE) {
            _exit(2);
        }
        raise(SIGILL); /* the default action ends the child */
        _exit(3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGILL);
}

static void forked_children_have_a_pool_of_their_own(void **unused)
{
    (void)unused;
#ifdef HDI_TSAN
    skip(); /* thread sanitizer does not allow threads after a fork of a program with threads */
#endif
    run_shuffle(8, 64, 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run_shuffle(8, 64, 0);
        exit(0); /* runs exit functions: must not hang */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_signals_go_to_the_handler_before),
        cmocka_unit_test(every_thread_runs_once),
        cmocka_unit_test(barriers_and_shared_memory),
        cmocka_unit_test(threads_may_return_before_others_meet),
        cmocka_unit_test(atomics),
        cmocka_unit_test(all_processors_work),
        cmocka_unit_test(launches_run_side_by_side),
        cmocka_unit_test(faults_end_the_launch_alone),
        cmocka_unit_test(nothing_piles_up),
        cmocka_unit_test(guarded_copies),
        cmocka_unit_test(seeds_change_the_order),
        cmocka_unit_test(cancelled_launches_skip_blocks),
        cmocka_unit_test(arguments_and_descriptions),
        cmocka_unit_test(forked_children_have_a_pool_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
