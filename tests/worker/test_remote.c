/* test_remote.c - the remote port and hdi_serve together: every request and reply with all their
 * data, from many threads, and into another process.
 *
 * Promise: Every request of the remote port returns what the local port returns.
 * Threads: the main one, several that make requests, and those that serve the worker's lines.
 */
#include "connected.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "engine/channel.h"
#include "worker/remote.h"
#include "process/wire.h"

static void expect_note(const char *call, uint64_t a, uint64_t b)
{
    fake_note note = fake_last(&fake);
    assert_string_equal(note.call, call);
    assert_int_equal(note.a, a);
    assert_int_equal(note.b, b);
}

static void facts_and_lanes(void **state)
{
    (void)state;
    hdi_facts facts;
    memset(&facts, 0xee, sizeof facts);
    hdi_answer answer = port->calls->facts(port, &facts);
    expect(answer, 0);
    assert_string_equal(answer.call, "cuDeviceGetCount");
    assert_memory_equal(&facts, &fake_facts, sizeof facts);
    uint64_t bytes = 0;
    expect(port->calls->memory_free(port, &bytes), 0);
    assert_int_equal(bytes, FAKE_FREE);
    expect(port->calls->lane(port, 255, true), 0);
    expect_note("lane", 255, 1);
    expect(port->calls->lane(port, 0, false), 0);
    expect_note("lane", 0, 0);
}

static void memory(void **state)
{
    (void)state;
    uint64_t at = 0, a = 0xfedcba9876543210, b = 0x0123456789abcdef;
    expect(port->calls->reserve(port, a, b, &at), 0);
    expect_note("reserve", a, b);
    assert_int_equal(at, FAKE_RESERVED(a, b));
    expect(port->calls->unreserve(port, a, b), 0);
    expect_note("unreserve", a, b);
    expect(port->calls->map(port, a, b), 0);
    expect_note("map", a, b);
    expect(port->calls->map_each(port, a, b, 7), 0);
    expect_note("map_each", a + 7, b);
    expect(port->calls->move(port, a, 9, b), 0);
    expect_note("move", a + 9, b);
    expect(port->calls->unmap(port, a, b), 0);
    expect_note("unmap", a, b);
    expect(port->calls->grant(port, 1, a, b), HDCU_ERROR_NOT_SUPPORTED);

    struct stat file, got;
    int descriptor = -1;
    expect(port->calls->export(port, a, b, &descriptor), 0);
    expect_note("export", a, b);
    assert_int_equal(fstat(fake.memory, &file), 0);
    assert_int_equal(fstat(descriptor, &got), 0);
    assert_int_equal(file.st_ino, got.st_ino);
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    expect(port->calls->import(port, descriptor, b, a), 0);
    expect_note("import", b, a);
    assert_int_equal(fake_last(&fake).file, file.st_ino);
    assert_true(fcntl(descriptor, F_GETFD) >= 0); /* our descriptor stays open */
    close(descriptor);
}

static void pinned_memory_is_mapped_at_the_same_address(void **state)
{
    (void)state;
    uint64_t address = 0, bytes = 2 * things.page;
    ((char *)things.file.base)[0] = 'p';
    expect(port->calls->pin(port, things.base, bytes, things.file.descriptor, &address), 0);
    expect_note("pin", (uintptr_t)things.base, bytes);
    assert_int_equal(fake_last(&fake).pinned, 'p');
    assert_int_equal(address, FAKE_PINNED((uintptr_t)things.base));
    things.base[bytes - 1] = 'q'; /* in this test, the worker shares this process */
    assert_int_equal(((char *)things.file.base)[bytes - 1], 'q');

    /* the range is mapped now */
    hdi_answer answer = port->calls->pin(port, things.base, bytes, things.file.descriptor, &address);
    expect(answer, HDCU_ERROR_ALREADY_MAPPED);
    assert_string_equal(answer.call, "mmap");
    /* only the pinned range can be unpinned */
    expect(port->calls->unpin(port, things.base, things.page), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
    expect(port->calls->unpin(port, things.base + things.page, things.page), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
    /* a failed unpin leaves it mapped */
    fake_answer(&fake, HDCU_ERROR_UNKNOWN, "");
    expect(port->calls->unpin(port, things.base, bytes), HDCU_ERROR_UNKNOWN);
    fake_answer(&fake, 0, "");
    assert_int_equal(things.base[0], 'p');
    expect(port->calls->unpin(port, things.base, bytes), 0);
    expect_note("unpin", (uintptr_t)things.base, bytes);
    assert_int_equal(msync(things.base, bytes, MS_ASYNC), -1); /* unmapped */
    expect(port->calls->unpin(port, things.base, bytes), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);

    /* a failed pin leaves nothing mapped */
    fake_answer(&fake, HDCU_ERROR_OUT_OF_MEMORY, "");
    expect(port->calls->pin(port, things.base, bytes, things.file.descriptor, &address), HDCU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(msync(things.base, bytes, MS_ASYNC), -1);
    /* nor does an invalid one */
    fake_answer(&fake, 0, "");
    int calls = fake_calls(&fake);
    expect(port->calls->pin(port, things.base, 2 * things.file.bytes, things.file.descriptor, &address), 1);
    expect(port->calls->pin(port, things.base + 8, bytes, things.file.descriptor, &address), 1);
    expect(port->calls->pin(port, things.base, bytes - 8, things.file.descriptor, &address), 1);
    expect(port->calls->pin(port, things.base, 0, things.file.descriptor, &address), 1);
    expect(port->calls->pin(port, NULL, bytes, things.file.descriptor, &address), 1);
    expect(port->calls->pin(port, things.base, bytes, -1, &address), 1);
    expect(port->calls->pin(port, things.base, bytes, 9999, &address), 1);
    assert_int_equal(fake_calls(&fake), calls);
}

static uint64_t sum(const void *bytes, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        total += ((const unsigned char *)bytes)[i];
    }
    return total;
}

static void code_goes_as_a_file(void **state)
{
    (void)state;
    char log[HDI_CODE_LOG_BYTES];
    const char *bytes = things.file.base;
    /* from a file, at an odd offset; without a file, more than fits into a message */
    const struct {
        size_t offset, size;
        int descriptor;
    } cases[] = {
        {4099, 5001, things.file.descriptor}, {0, 300, -1}, {17, 65536 - 17, -1}, {0, 65536, things.file.descriptor}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdi_code code = {.bytes = bytes + cases[i].offset,
                         .size = cases[i].size,
                         .descriptor = cases[i].descriptor,
                         .offset = cases[i].descriptor >= 0 ? cases[i].offset : 99};
        uint64_t module = 0;
        memset(log, 'x', sizeof log);
        expect(port->calls->load(port, &code, &module, log), 0);
        assert_int_equal(module, FAKE_MODULE(code.size));
        assert_string_equal(log, FAKE_LOG);
        fake_note note = fake_last(&fake);
        assert_string_equal(note.call, "load");
        assert_int_equal(note.code_size, code.size);
        assert_int_equal(note.code_sum, sum(code.bytes, code.size));
        assert_memory_equal(note.code, code.bytes, sizeof note.code);
    }
}

static void code_that_could_fault_is_refused(void **state)
{
    (void)state;
    char log[HDI_CODE_LOG_BYTES];
    uint64_t module = 5;
    int open_file = memfd_create("heddle-open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(open_file, 65536), 0);
    const hdi_code cases[] = {{things.file.base, 65536, things.file.descriptor, 1},
                              {things.file.base, 1, things.file.descriptor, 65536},
                              {things.file.base, 2, things.file.descriptor, UINT64_MAX},
                              {things.file.base, SIZE_MAX, things.file.descriptor, 4096},
                              {things.file.base, 0, things.file.descriptor, 0},
                              {things.file.base, 0, -1, 0},
                              {things.file.base, 300, open_file, 0},
                              {things.file.base, 300, 0, 0},
                              {things.file.base, 300, 9999, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(log, 'x', sizeof log);
        expect(port->calls->load(port, &cases[i], &module, log), HDCU_ERROR_INVALID_VALUE);
        assert_string_equal(log, "");
    }
    assert_int_equal(module, 5);
    assert_int_equal(fake_calls(&fake), 0);
    close(open_file);
}

static void modules_and_kernels(void **state)
{
    (void)state;
    static hdi_kernel_facts facts, expected;
    memset(&facts, 0xee, sizeof facts);
    fake_kernel_facts(&expected);
    char name[HDI_KERNEL_SYMBOL_BYTES + 1];
    memset(name, 'n', sizeof name);
    name[HDI_KERNEL_SYMBOL_BYTES - 1] = '\0';
    expect(port->calls->kernel(port, 0xfedcba9876543210, name, 65535, true, &facts), 0);
    expect_note("kernel", 0xfedcba9876543210, 65535 | (uint64_t)1 << 32);
    expect(port->calls->kernel(port, 1, name, 65535, false, &facts), 0);
    expect_note("kernel", 1, 65535);
    assert_string_equal(fake_last(&fake).name, name);
    assert_memory_equal(&facts, &expected, sizeof facts);
    expect(port->calls->kernel_shared(port, 4711, 0xfffffff0), 0);
    expect_note("kernel_shared", 4711, 0xfffffff0);
    hdi_global_place place = {0, 0};
    expect(port->calls->global(port, 0xfedcba9876543210, name, &place), 0);
    expect_note("global", 0xfedcba9876543210, 0);
    assert_string_equal(fake_last(&fake).name, name);
    assert_memory_equal(&place, &fake_global_place, sizeof place);
    expect(port->calls->unload(port, 0xfedcba9876543210), 0);
    expect_note("unload", 0xfedcba9876543210, 0);
    /* numbers and names outside all tables */
    int calls = fake_calls(&fake);
    name[HDI_KERNEL_SYMBOL_BYTES - 1] = 'n';
    name[HDI_KERNEL_SYMBOL_BYTES] = '\0';
    expect(port->calls->kernel(port, 1, name, 5, true, &facts), HDCU_ERROR_INVALID_VALUE);
    expect(port->calls->global(port, 1, name, &place), HDCU_ERROR_INVALID_VALUE);
    expect(port->calls->kernel(port, 1, "k", 65536, true, &facts), HDCU_ERROR_INVALID_VALUE);
    expect(port->calls->kernel_shared(port, 65536, 5), HDCU_ERROR_INVALID_VALUE);
    expect(port->calls->lane(port, HDI_LANES_MAX, false), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(fake_calls(&fake), calls);
}

static void libraries(void **state)
{
    (void)state;
    hdi_blas_facts blas;
    memset(&blas, 0xee, sizeof blas);
    fake_answer(&fake, 0, "cublasCreate_v2");
    hdi_answer opened = port->calls->blas(port, 255, 0xfedcba9876540000, 0x123456789ab, &blas);
    expect(opened, 0);
    assert_string_equal(opened.call, "cublasCreate_v2");
    expect_note("blas", 0xfedcba9876540000 + 255, 0x123456789ab);
    assert_memory_equal(&blas, &fake_blas_facts, sizeof blas);
    hdi_activities_facts activities;
    expect(port->calls->activities(port, true, &activities), 0);
    expect_note("activities", 1, 0);
    assert_int_equal(activities.works, 1);
    assert_string_equal(activities.why, "because");
    expect(port->calls->activities(port, false, &activities), 0);
    expect_note("activities", 0, 0);
    fake_answer(&fake, HDCU_ERROR_OUT_OF_MEMORY, "blasOpen");
    memset(&blas, 0xee, sizeof blas);
    expect(port->calls->blas(port, 0, 0, 0, &blas), HDCU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(blas.types, 0xeeeeeeee);
    fake_answer(&fake, 0, "");
    int calls = fake_calls(&fake);
    /* no such lane */
    expect(port->calls->blas(port, HDI_LANES_MAX, 0, 0, &blas), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(fake_calls(&fake), calls);
}

static void failures_come_back_and_change_nothing(void **state)
{
    (void)state;
    fake_answer(&fake, HDCU_ERROR_ILLEGAL_ADDRESS, "cuMemCreate");
    static hdi_kernel_facts kernel, kernel_before;
    hdi_facts facts, facts_before;
    memset(&kernel, 0xee, sizeof kernel);
    memset(&facts, 0xee, sizeof facts);
    kernel_before = kernel;
    facts_before = facts;
    uint64_t number = 42;
    int descriptor = 43;
    char log[HDI_CODE_LOG_BYTES];
    hdi_code code = {.bytes = things.file.base, .size = 100, .descriptor = -1};
    const hdi_port_calls *c = port->calls;
    hdi_answer answers[] = {c->facts(port, &facts),
                            c->memory_free(port, &number),
                            c->reserve(port, 1, 2, &number),
                            c->export(port, 1, 2, &descriptor),
                            c->load(port, &code, &number, log),
                            c->kernel(port, 1, "k", 2, true, &kernel),
                            c->pin(port, things.base, things.page, things.file.descriptor, &number)};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        expect(answers[i], HDCU_ERROR_ILLEGAL_ADDRESS);
        /* in all answers, although later ones followed */
        assert_string_equal(answers[i].call, "cuMemCreate");
    }
    assert_memory_equal(&facts, &facts_before, sizeof facts);
    assert_memory_equal(&kernel, &kernel_before, sizeof kernel);
    assert_int_equal(number, 42);
    assert_int_equal(descriptor, 43);
    assert_string_equal(log, FAKE_LOG); /* the compiler's text matters most after a failure */
    /* after this error the driver does nothing for the worker, so each one is reported */
    assert_int_equal(told_times, sizeof answers / sizeof answers[0]);
    assert_int_equal(told_code, HDCU_ERROR_ILLEGAL_ADDRESS);
    atomic_store(&told_times, 0);
    fake_answer(&fake, HDCU_ERROR_UNKNOWN, NULL);
    assert_string_equal(c->memory_free(port, &number).call, "");
    fake_answer(&fake, HDCU_ERROR_UNKNOWN, "cuSomethingElse");
    assert_string_equal(c->memory_free(port, &number).call, "");
    assert_int_equal(told_times, 0); /* other driver codes are for the caller alone */
}

static void no_descriptor_is_left(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        int code = round == 1 ? HDCU_ERROR_OUT_OF_MEMORY : 0;
        fake_answer(&fake, code, "");
        int before = fake_count_descriptors();
        for (int i = 0; i < 10 * FAKE_KINDS; i++) {
            int which = i % FAKE_KINDS;
            bool unpins_nothing = code != 0 && which == FAKE_UNPIN;
            expect(fake_ask(port, which, &things), unpins_nothing ? HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED : code);
        }
        /* The worker closes received descriptors before it replies, but those that it sends only
         * later. One more request gives it the time. */
        expect(fake_ask(port, FAKE_MAP, &things), code);
        assert_int_equal(fake_count_descriptors(), before);
    }
}

static void without_a_free_descriptor_nothing_is_lost(void **state)
{
    (void)state;
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int taken[200], n = 0, descriptor = -1;
    while (n < 200 && (taken[n] = fcntl(fake.memory, F_DUPFD_CLOEXEC, 0)) >= 0) {
        n++;
    }
    uint64_t module;
    char log[HDI_CODE_LOG_BYTES];
    hdi_answer exported = port->calls->export(port, 1, 2, &descriptor);
    hdi_answer loaded = port->calls->load(port, &(hdi_code){.bytes = "x", .size = 1, .descriptor = -1}, &module, log);
    hdi_wire_close(taken, n);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    expect(exported, HDCU_ERROR_OPERATING_SYSTEM);
    expect(loaded, HDCU_ERROR_OPERATING_SYSTEM);
    expect(port->calls->export(port, 1, 2, &descriptor), 0);
    close(descriptor);
    assert_int_equal(told_times, 0);
}

static void *ask_reserve_many(void *argument)
{
    uint64_t wanted = (uintptr_t)argument;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t at = 0, module = 0;
        char log[HDI_CODE_LOG_BYTES];
        hdi_code code = {.bytes = things.file.base, .size = wanted * 200 + i + 1, .descriptor = things.file.descriptor};
        if (!hdi_answered(port->calls->reserve(port, wanted, i, &at)) || at != FAKE_RESERVED(wanted, i)) {
            return NULL;
        }
        if (i % 8 == 0 &&
            (!hdi_answered(port->calls->load(port, &code, &module, log)) || module != FAKE_MODULE(code.size))) {
            return NULL;
        }
    }
    return argument;
}

#define THREADS 8

static void many_threads_get_their_own_answers(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_reserve_many, (void *)(i + 1)), 0);
    }
    for (uintptr_t i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, (void *)(i + 1));
    }
    assert_int_equal(told_times, 0);
}

static void pins_in_another_process_and_notices_its_end(void **state)
{
    (void)state;
    int ends[2], code_ends[2];
    assert_ok(hdi_wire_pair(ends));
    assert_ok(hdi_wire_pair(code_ends));
    hdi_remote_port_disconnect(port);
    fake_worker_join(&worker);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        close(code_ends[0]);
        close(code_ends[1]);
        _exit(hdi_serve(ends[1], &fake.port) == 0 ? 7 : 8);
    }
    close(ends[1]);
    close(code_ends[1]);
    hdi_remote_port_connect(port, ends[0], code_ends[0]);
    uint64_t address = 0, bytes = things.page;
    char *base =
        mmap(things.base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, things.file.descriptor, 0);
    assert_ptr_equal(base, things.base);
    base[0] = 's';
    expect(port->calls->pin(port, base, bytes, things.file.descriptor, &address), 0);
    assert_int_equal(address, FAKE_PINNED((uintptr_t)base));
    expect(port->calls->unpin(port, base, bytes), 0);
    expect(port->calls->pin(port, base, bytes, things.file.descriptor, &address), 0);
    assert_int_equal(base[0], 's');
    assert_int_equal(told_times, 0);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    expect(port->calls->unpin(port, base, bytes), HDI_GONE_CLOSED);
    assert_int_equal(told_times, 1);
    munmap(base, bytes);
    connect_worker();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED_TEST(facts_and_lanes),
        CONNECTED_TEST(memory),
        CONNECTED_TEST(pinned_memory_is_mapped_at_the_same_address),
        CONNECTED_TEST(code_goes_as_a_file),
        CONNECTED_TEST(code_that_could_fault_is_refused),
        CONNECTED_TEST(modules_and_kernels),
        CONNECTED_TEST(libraries),
        CONNECTED_TEST(failures_come_back_and_change_nothing),
        CONNECTED_TEST(no_descriptor_is_left),
        CONNECTED_TEST(without_a_free_descriptor_nothing_is_lost),
        CONNECTED_TEST(many_threads_get_their_own_answers),
        CONNECTED_TEST(pins_in_another_process_and_notices_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
