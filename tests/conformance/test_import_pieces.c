/* test_import_pieces.c - buffers that are one piece of physical memory, and the same memory in
 * another process.
 *
 * Promise: A piece works like any buffer, goes back to the driver, and another process can use it.
 *
 * The other process imports and uses the very same bytes.
 *
 * Threads: the main one.
 * Locks: none. The other process is this program with the variable HEDDLE_TEST_PIECE, which names
 * the descriptor of a socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "conformance.h"

enum { words = 16384, bytes = words * 4, granule = 2 << 20 };

static const char *program;

static hd_buffer *piece(hd_lane *lane, size_t size, const char *label)
{
    hd_buffer *b = NULL;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED, .label = label};
    CONF_OK(hd_alloc_with(lane, size, &options, &b));
    return b;
}

static hd_export export_of(hd_buffer *b)
{
    hd_export e = {.size = sizeof e};
    CONF_OK(hd_buffer_export(b, HD_EXPORT_DESCRIPTOR, &e));
    CONF_TRUE(e.descriptor >= 0 && e.kind == HD_EXPORT_DESCRIPTOR && e.bytes == hd_buffer_size(b) && e.offset == 0);
    CONF_TRUE(e.piece_bytes >= e.bytes && e.piece_bytes % granule == 0);
    return e;
}

static uint64_t reserved(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, 0, &stats));
    CONF_EQUAL(stats.mapped_bytes - stats.moved_bytes - stats.returned_bytes, stats.reserved_bytes);
    return stats.reserved_bytes;
}

/* The library sees ends of uses a little later. If one never comes, the watchdog ends the wait. */
static void await_reserved(hd_runtime *runtime, uint64_t wanted)
{
    while (reserved(runtime) != wanted) {
        conf_sleep_ms(1);
    }
}

static void count(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static void await_released(atomic_int *released)
{
    while (atomic_load(released) == 0) {
        conf_sleep_ms(1);
    }
    CONF_EQUAL(atomic_load(released), 1);
}

/* ---- one process ---- */

static void a_piece_is_a_buffer_like_any_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_schedule=3");
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *plain = NULL;
    CONF_OK(hd_alloc(lane, bytes, &plain));
    CONF_OK(hd_fill(plain, 0, 1, bytes, NULL));
    uint64_t before = reserved(runtime);
    for (uint32_t i = 0; i < 10; i++) {
        hd_buffer *b = piece(lane, bytes, "one");
        CONF_EQUAL(reserved(runtime), before + granule);
        CONF_TRUE(hd_buffer_device(b) == 0 && hd_buffer_size(b) == bytes);
        CONF_OK(conf_fill(lane, k, b, 0, words, i, NULL));
        CONF_OK(hd_copy(plain, 0, b, 0, bytes, NULL));
        CONF_OK(hd_free(b)); /* while it is used */
        CONF_FILLED(plain, 0, i, bytes);
        await_reserved(runtime, before); /* the driver owns it again */
    }
    hd_buffer *large = piece(lane, 3 * granule + 1, NULL);
    CONF_EQUAL(reserved(runtime), before + 4 * granule);
    CONF_OK(hd_fill(large, 0, 5, 3 * granule, NULL));
    CONF_FILLED(large, 3 * granule - 64, 5, 64);
    CONF_OK(hd_free(large));
    hd_free(plain);
    conf_close(runtime);
}

static void other_devices_reach_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 1);
    hd_buffer *b = piece(conf_default_lane(runtime, 0), bytes, NULL), *there = NULL;
    CONF_OK(hd_alloc(lane, bytes, &there));
    for (uint32_t i = 0; i < 5; i++) {
        CONF_OK(conf_fill(lane, k, there, 0, words, i, NULL));
        CONF_OK(hd_copy(b, 0, there, 0, bytes, NULL));
        CONF_FILLED(b, 0, i, bytes);
        if (conf_reaches(runtime, 1, 0)) {
            CONF_OK(conf_fill(lane, k, b, 0, words, 100 + i, NULL));
            CONF_FILLED(b, 0, 100 + i, bytes);
        }
    }
    CONF_OK(hd_free(b));
    b = piece(conf_default_lane(runtime, 0), bytes, NULL); /* perhaps at the same addresses */
    CONF_OK(hd_copy(b, 0, there, 0, bytes, NULL));
    CONF_FILLED(b, 0, 4, bytes);
    hd_free(b);
    hd_free(there);
    conf_close(runtime);
}

static void the_limit_holds_for_pieces(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("memory_limit=16M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *b[4], *none = NULL, *plain = NULL;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
    CONF_OK(hd_alloc(lane, 12 << 20, &plain)); /* idle memory makes room for pieces */
    hd_free(plain);
    for (int i = 0; i < 4; i++) {
        b[i] = piece(lane, 4 << 20, NULL);
    }
    CONF_FAILS_WITH(hd_alloc_with(lane, 1, &options, &none), HD_ERROR_MEMORY, "16");
    CONF_FAILS(hd_alloc(lane, 2 << 20, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(reserved(runtime), 16 << 20);
    CONF_OK(hd_free(b[0]));
    await_reserved(runtime, 12 << 20);
    CONF_OK(hd_alloc(lane, 2 << 20, &plain));
    for (int i = 1; i < 4; i++) {
        hd_free(b[i]);
    }
    hd_free(plain);
    conf_close(runtime);
}

/* Each round frees a piece that is in use, or idle, and allocates its memory again at once: as a
 * piece, and as plain memory. */
static void a_freed_piece_is_room_for_the_next(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("memory_limit=16M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
    for (int i = 0; i < 24; i++) {
        hd_buffer *b = piece(lane, 10 << 20, "window"), *next = NULL;
        if (i % 4 < 2) {
            CONF_OK(conf_fill(lane, k, b, 0, words, 1, NULL));
        }
        CONF_OK(hd_free(b));
        CONF_OK(i % 2 ? hd_alloc_with(lane, 10 << 20, &options, &next) : hd_alloc(lane, 10 << 20, &next));
        CONF_OK(hd_free(next));
    }
    hd_buffer *b = piece(lane, 10 << 20, "window"), *none = NULL;
    CONF_FAILS_WITH(hd_alloc_with(lane, 8 << 20, &options, &none), HD_ERROR_MEMORY, "10 MiB in use");
    CONF_FAILS_WITH(hd_alloc_with(lane, 8 << 20, &options, &none), HD_ERROR_MEMORY, "free buffers");
    CONF_FAILS_WITH(hd_alloc_with(lane, 8 << 20, &options, &none), HD_ERROR_MEMORY, "window");
    CONF_FAILS_WITH(hd_alloc(lane, 8 << 20, &none), HD_ERROR_MEMORY, "10 MiB in use");
    CONF_FAILS_WITH(hd_alloc_with(lane, SIZE_MAX / 4, &options, &none), HD_ERROR_MEMORY, "at most 16 MiB");
    CONF_OK(hd_free(b));
    conf_close(runtime);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *plain = NULL, *pinned = NULL, *none = NULL, *one = piece(lane, bytes, "one");
    hd_alloc_options both = {.size = sizeof both, .flags = HD_ALLOC_DEDICATED | HD_ALLOC_KEEP};
    CONF_FAILS_WITH(hd_alloc_with(lane, bytes, &both, &none), HD_ERROR_ARGUMENT, "another flag");
    both.flags = 64;
    CONF_FAILS_WITH(hd_alloc_with(lane, bytes, &both, &none), HD_ERROR_ARGUMENT, "unknown flags");
    CONF_OK(hd_alloc(lane, bytes, &plain));
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    hd_export e = {.size = sizeof e};
    CONF_FAILS_WITH(hd_buffer_export(plain, HD_EXPORT_DESCRIPTOR, &e), HD_ERROR_ARGUMENT, "HD_ALLOC_DEDICATED");
    CONF_FAILS_WITH(hd_buffer_export(pinned, HD_EXPORT_DESCRIPTOR, &e), HD_ERROR_ARGUMENT, "memory of the host");
    CONF_FAILS(hd_buffer_export(one, 3, &e), HD_ERROR_ARGUMENT);
    hd_status fabric = hd_buffer_export(one, HD_EXPORT_FABRIC, &e);
    CONF_TRUE(fabric == HD_OK || fabric == HD_ERROR_UNSUPPORTED);
    e = export_of(one);
    hd_export bad = e;
    bad.kind = 9;
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "kind 9");
    bad = e;
    bad.piece_bytes = 1000;
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "piece of 1000 bytes");
    bad = e;
    bad.piece_bytes = 64 * granule; /* more than the device provides */
    CONF_FAILS(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT);
    bad = e;
    bad.offset = e.piece_bytes;
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "hd_buffer_export");
    bad = e;
    bad.uuid[3] ^= 1;
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "does not have");
    if (hd_device_count(runtime) > 1) {
        CONF_FAILS_WITH(hd_import_descriptor(runtime, 1, &e, NULL, &none), HD_ERROR_ARGUMENT, "import it on device 0");
    }
    if (fabric) { /* no fabric handles */
        bad = e;
        bad.kind = HD_EXPORT_FABRIC;
        CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_UNSUPPORTED, "a descriptor");
    }
    if (conf_is_host(runtime)) { /* a GPU's driver may import only the first bytes */
        hd_buffer *large = piece(lane, 3 * granule, NULL);
        bad = export_of(large);
        bad.piece_bytes = granule;
        bad.bytes = 64;
        CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "piece_bytes is");
        close(bad.descriptor);
        hd_free(large);
    }
    bad = e;
    bad.descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT, "no memory of device 0");
    close(bad.descriptor);
    CONF_FAILS(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT); /* closed */
    bad.descriptor = -1;
    CONF_FAILS(hd_import_descriptor(runtime, 0, &bad, NULL, &none), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_import_descriptor(runtime, 99, &e, NULL, &none), HD_ERROR_NO_DEVICE);
    CONF_TRUE(none == NULL && fcntl(e.descriptor, F_GETFD) >= 0);
    CONF_OK(hd_import_descriptor(runtime, 0, &e, NULL, &none)); /* the device still works */
    hd_export again = {.size = sizeof again};
    CONF_FAILS_WITH(hd_buffer_export(none, HD_EXPORT_DESCRIPTOR, &again), HD_ERROR_ARGUMENT,
                    "only its owner can export it");
    close(e.descriptor);
    hd_free(none);
    hd_free(one);
    CONF_FAILS(hd_buffer_export(one, HD_EXPORT_DESCRIPTOR, &e), HD_ERROR_HANDLE);
    hd_free(plain);
    hd_free(pinned);
    conf_close(runtime);
}

static void an_import_outlives_the_export(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *one = piece(lane, bytes, NULL), *same = NULL;
    hd_export e = export_of(one);
    atomic_int released = 0;
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &released};
    CONF_OK(conf_fill(lane, k, one, 0, words, 42, NULL));
    CONF_OK(hd_buffer_wait(one, HD_READ, HD_FOREVER));
    e.offset = 4096;
    e.bytes = bytes - 4096;
    CONF_OK(hd_import_descriptor(runtime, 0, &e, &options, &same));
    close(e.descriptor);
    CONF_EQUAL(hd_buffer_size(same), bytes - 4096);
    CONF_OK(hd_free(one));
    CONF_FILLED(same, 0, 42, bytes - 4096);
    CONF_OK(conf_fill(lane, k, same, 0, words - 1024, 43, NULL));
    CONF_FILLED(same, 0, 43, bytes - 4096);
    CONF_OK(hd_free(same));
    await_released(&released);
    conf_close(runtime);
    CONF_EQUAL(atomic_load(&released), 1);
}

/* ---- two processes ---- */

static void send_export(int line, const hd_export *e)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)e, sizeof *e};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &e->descriptor, sizeof(int));
    CONF_EQUAL(sendmsg(line, &m, 0), (ssize_t)sizeof *e);
}

static hd_export receive_export(int line)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    hd_export e;
    struct iovec part = {&e, sizeof e};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CONF_EQUAL(recvmsg(line, &m, MSG_WAITALL), (ssize_t)sizeof e);
    CONF_TRUE(CMSG_FIRSTHDR(&m) != NULL);
    memcpy(&e.descriptor, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return e;
}

/* The other process: adds one to each of the words, and reports the end. */
static int other_process(int line)
{
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_export e = receive_export(line);
    hd_buffer *theirs = NULL;
    CONF_OK(hd_import_descriptor(runtime, 0, &e, NULL, &theirs));
    close(e.descriptor);
    CONF_FILLED(theirs, 0, 7, bytes);
    CONF_OK(conf_fill(lane, k, theirs, 0, words, 8, NULL));
    CONF_OK(hd_buffer_wait(theirs, HD_READ, HD_FOREVER));
    CONF_OK(hd_free(theirs));
    conf_close(runtime);
    return write(line, "d", 1) == 1 ? 0 : 1;
}

static void another_process_uses_the_bytes(void **state)
{
    (void)state;
    int line[2];
    CONF_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", line[1]);
        setenv("HEDDLE_TEST_PIECE", number, 1);
        close(line[0]);
        execl(program, program, (char *)NULL);
        _exit(9);
    }
    close(line[1]);
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *one = piece(lane, bytes, "shared");
    CONF_OK(conf_fill(lane, k, one, 0, words, 7, NULL));
    CONF_OK(hd_buffer_wait(one, HD_READ, HD_FOREVER));
    hd_export e = export_of(one);
    send_export(line[0], &e);
    close(e.descriptor);
    char done = 0;
    CONF_EQUAL(read(line[0], &done, 1), 1);
    CONF_FILLED(one, 0, 8, bytes);
    int status = -1;
    CONF_EQUAL(waitpid(child, &status, 0), child);
    CONF_EQUAL(status, 0);
    close(line[0]);
    hd_free(one);
    conf_close(runtime);
}

/* ---- driver calls that fail ---- */

/* Makes every kind of object, counts failures, and ends what it made. */
static int make_and_end(hd_runtime *runtime, hd_lane *lane, void *memory)
{
    hd_buffer *one = NULL, *same = NULL, *host = NULL;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
    hd_export e = {.size = sizeof e, .descriptor = -1};
    int failed = hd_alloc_with(lane, bytes, &options, &one) != HD_OK;
    if (one) {
        failed += hd_buffer_export(one, HD_EXPORT_DESCRIPTOR, &e) != HD_OK;
    }
    if (e.descriptor >= 0) {
        failed += hd_import_descriptor(runtime, 0, &e, NULL, &same) != HD_OK;
        close(e.descriptor);
    }
    if (!conf_is_process(runtime)) {
        failed += hd_import_host(runtime, memory, bytes, NULL, &host) != HD_OK;
    }
    CONF_OK(hd_free(one));
    CONF_OK(hd_free(same));
    CONF_OK(hd_free(host));
    return failed;
}

static uint64_t pinned(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
    return stats.reserved_bytes + stats.imported_count;
}

/* False: the number is above that of the last call. */
static bool one_call_fails(const char *entry, int nth, int code, void *memory, int *refused)
{
    hd_runtime *runtime = NULL;
    char settings[128];
    snprintf(settings, sizeof settings, "host_devices=1 fault=%s:%d=%d", entry, nth, code);
    if (conf_try_open(settings, &runtime) != HD_OK) {
        return true;
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint64_t before = reserved(runtime), pins = pinned(runtime);
    int failed = make_and_end(runtime, lane, memory);
    await_reserved(runtime, before);
    while (pinned(runtime) != pins) {
        conf_sleep_ms(1);
    }
    if (failed) { /* the next try succeeds */
        ++*refused;
        CONF_EQUAL(make_and_end(runtime, lane, memory), 0);
        await_reserved(runtime, before);
    }
    conf_close(runtime);
    return failed != 0;
}

static void failing_calls_of_the_driver_lose_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemAddressReserve",
                                          "cuMemCreate",
                                          "cuMemMap",
                                          "cuMemSetAccess",
                                          "cuMemExportToShareableHandle",
                                          "cuMemImportFromShareableHandle",
                                          "cuMemHostRegister",
                                          "cuMemHostGetDevicePointer"};
    void *memory = aligned_alloc(4096, bytes);
    int refused = 0;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        /* a GPU is opened in a second */
        for (int code = 1; code <= (conf_on_gpus ? 1 : 2); code++) {
            int nth = 1;
            while (nth < (conf_on_gpus ? 3 : 20) && one_call_fails(entries[i], nth, code, memory, &refused)) {
                nth++;
            }
        }
    }
    CONF_TRUE(refused >= (conf_on_gpus ? 2 : 8)); /* with workers: only descriptors */
    free(memory);
}

/* ---- losses ---- */

static void after_a_restart_pieces_are_made_anew(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *one = piece(lane, bytes, NULL), *two = piece(lane, bytes, NULL), *total = NULL;
    /* a peer uses it, too */
    if (hd_device_count(runtime) > 1 && conf_reaches(runtime, 1, 0)) {
        CONF_OK(conf_fill(conf_default_lane(runtime, 1), k, one, 0, words, 1, NULL));
        CONF_OK(hd_buffer_wait(one, HD_READ, HD_FOREVER));
    }
    hd_lane *other = NULL;
    hd_ticket ticket;
    CONF_OK(hd_lane_create(runtime, 0, &other));
    CONF_OK(hd_alloc(other, 4096, &total));
    hd_arg args[] = {hd_inout_range(total, 0, 4), hd_in(total), hd_u64(UINT64_C(1) << 38)};
    CONF_OK(hd_launch(other, k.sum, conf_dims(2, 1, 1), conf_dims(256, 1, 1), 0, args, 3, &ticket));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_free(one));
    CONF_OK(hd_device_restart(runtime, 0));
    hd_export e = {.size = sizeof e};
    CONF_FAILS(hd_buffer_export(two, HD_EXPORT_DESCRIPTOR, &e), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_fill(two, 0, 0, bytes, NULL), HD_ERROR_DEVICE_LOST);
    uint64_t before = reserved(runtime);
    hd_buffer *fresh = piece(lane, bytes, NULL);
    CONF_EQUAL(reserved(runtime), before + granule);
    CONF_OK(hd_free(two));
    CONF_OK(conf_fill(lane, k, fresh, 0, words, 3, NULL));
    CONF_FILLED(fresh, 0, 3, bytes);
    if (hd_device_count(runtime) > 1 && conf_reaches(runtime, 1, 0)) {
        CONF_OK(conf_fill(conf_default_lane(runtime, 1), k, fresh, 0, words, 4, NULL));
        CONF_FILLED(fresh, 0, 4, bytes);
    }
    CONF_OK(hd_free(fresh));
    await_reserved(runtime, before);
    hd_free(total);
    conf_close(runtime);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    const char *line = getenv("HEDDLE_TEST_PIECE");
    if (line) {
        unsetenv("HEDDLE_TEST_PIECE");
        return other_process(atoi(line));
    }
    conf_begin("test_import_pieces");
    const struct CMUnitTest cases[] = {
        CONF_CASE(a_piece_is_a_buffer_like_any_other),
        CONF_CASE(other_devices_reach_it),
        CONF_CASE(the_limit_holds_for_pieces),
        CONF_CASE(a_freed_piece_is_room_for_the_next),
        CONF_CASE(wrong_calls_are_refused),
        CONF_CASE(an_import_outlives_the_export),
        CONF_CASE(another_process_uses_the_bytes),
        CONF_CASE(failing_calls_of_the_driver_lose_nothing),
        CONF_CASE(after_a_restart_pieces_are_made_anew),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
