/* test_trace_file.c - the file of a trace: a file that another trace uses, pipes, and records
 * without room.
 *
 * Promise: A file holds one trace at a time, no pipe blocks the program, and losses are counted.
 *
 * Records without room are counted, and ranges stay whole.
 *
 * Threads: the main one, and one that reads a pipe.
 * Locks: none.
 * Always: a limit of the process for files applies within one case.
 */
#include "traces.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { words = 4096, bytes = words * 4 };

/* Launches until the trace's rings received far more than a pipe or a limit can take. */
static void launch_many(hd_runtime *runtime)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, bytes, &x));
    for (int i = 0; i < 2000; i++) {
        CONF_OK(conf_fill(lane, k, x, 0, words, 1, &ticket));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_free(x);
}

static void a_file_has_one_trace_at_a_time(void **state)
{
    (void)state;
    hd_runtime *first = conf_open(NULL), *second = conf_open(NULL);
    CONF_OK(hd_trace_start(first, in_folder("t"), NULL));
    CONF_FAILS_WITH(hd_trace_start(second, file_path, NULL), HD_ERROR_SYSTEM, "another trace");
    launch_many(first);
    /* the option takes the next free name */
    char settings[256], option_path[160];
    snprintf(settings, sizeof settings, "trace=%s", file_path);
    hd_runtime *third = conf_open(settings);
    conf_close(third);
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_stop(first, &info));
    content c = read_file(file_path);
    CONF_EQUAL(c.n, info.records);
    CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
    CONF_EQUAL(count(&c, HDI_RECORD_TRACE), 1);
    free(c.records);
    snprintf(option_path, sizeof option_path, "%s.2", file_path);
    c = read_file(option_path);
    CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
    free(c.records);
    CONF_OK(hd_trace_start(second, file_path, NULL)); /* the first one ended */
    CONF_OK(hd_trace_stop(second, NULL));
    conf_close(first);
    conf_close(second);
}

static void a_child_keeps_no_file(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    int ends[2];
    CONF_EQUAL(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        /* it keeps the trace's descriptor until then */
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    CONF_TRUE(child > 0);
    CONF_OK(hd_trace_stop(runtime, NULL));
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    CONF_OK(hd_trace_stop(runtime, NULL));
    close(ends[1]);
    close(ends[0]);
    CONF_TRUE(waitpid(child, NULL, 0) == child);
    conf_close(runtime);
}

static void a_pipe_without_a_reader_is_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_EQUAL(mkfifo(in_folder("pipe"), 0600), 0);
    CONF_FAILS_WITH(hd_trace_start(runtime, file_path, NULL), HD_ERROR_SYSTEM, "nothing reads");
    CONF_FAILS_WITH(hd_trace_stop(runtime, NULL), HD_ERROR_NOT_FOUND, "hd_trace_start");
    conf_close(runtime);
}

static void a_reader_that_sleeps_does_not_hold_up_the_end(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_EQUAL(mkfifo(in_folder("pipe"), 0600), 0);
    int reader = open(file_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CONF_TRUE(reader >= 0);
    CONF_TRUE(fcntl(reader, F_SETPIPE_SZ, 4096) >= 4096);
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    launch_many(runtime);
    hd_trace_info info = {.size = sizeof info};
    CONF_FAILS_WITH(hd_trace_stop(runtime, &info), HD_ERROR_SYSTEM, "took nothing");
    CONF_TRUE(info.records + info.dropped >= 2000);
    hdi_record first;
    CONF_EQUAL(read(reader, &first, sizeof first), (ssize_t)sizeof first);
    CONF_TRUE(first.type == HDI_RECORD_TRACE && first.trace.magic == HDI_RECORD_MAGIC);
    close(reader);
    conf_close(runtime);
}

/* Reads a pipe to its end. */
typedef struct drain {
    int reader;
    hdi_record *records;
    size_t n, room;
    _Atomic bool has_dropped;
} drain;

static bool read_record(int reader, hdi_record *out)
{
    size_t at = 0;
    for (ssize_t n = 1; n > 0 && at<sizeof *out; at += n> 0 ? (size_t)n : 0) {
        n = read(reader, (char *)out + at, sizeof *out - at);
    }
    return at == sizeof *out;
}

static void *drain_it(void *context)
{
    drain *d = context;
    for (hdi_record r; read_record(d->reader, &r);) {
        if (d->n == d->room) {
            d->room = d->room ? 2 * d->room : 4096;
            d->records = realloc(d->records, d->room * sizeof r);
            CONF_TRUE(d->records);
        }
        d->records[d->n++] = r;
        if (r.type == HDI_RECORD_DROPPED) {
            atomic_store(&d->has_dropped, true);
        }
    }
    return NULL;
}

/* Returns how many ranges are open after a record; one that ends must have begun. */
static size_t depth_after(const hdi_record *r, size_t depth)
{
    if (r->type == HDI_RECORD_POP) {
        CONF_TRUE(depth > 0);
        return depth - 1;
    }
    return depth + (r->type == HDI_RECORD_PUSH);
}

static void keep_ends(hd_runtime *runtime)
{
    CONF_EQUAL(mkfifo(in_folder("pipe"), 0600), 0);
    for (size_t i = 0; i < 6; i++) { /* the rest of the ring for the last record differs */
        char outer[400] = "";
        memset(outer, 'o', 10 + i * HDI_RECORD_TEXT_BYTES);
        int reader = open(file_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        CONF_TRUE(reader >= 0);
        CONF_OK(hd_trace_start(runtime, file_path, NULL));
        CONF_EQUAL(fcntl(reader, F_SETFL, 0), 0); /* from here on a read waits */
        CONF_OK(hd_range_push(runtime, outer));
        /* more than pipe, writer and ring take while nobody reads */
        for (int k = 0; k < 60000; k++) {
            CONF_OK(hd_range_push(runtime, "inner"));
            CONF_OK(hd_range_pop(runtime));
        }
        drain d = {.reader = reader};
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, drain_it, &d), 0);
        while (!atomic_load(&d.has_dropped)) { /* then the writer has emptied the ring */
            sched_yield();
        }
        CONF_OK(hd_range_push(runtime, "late"));
        CONF_OK(hd_range_pop(runtime));
        CONF_OK(hd_range_pop(runtime)); /* the outer one */
        CONF_OK(hd_range_push(runtime, "behind"));
        CONF_OK(hd_range_pop(runtime));
        CONF_OK(hd_trace_stop(runtime, NULL));
        CONF_EQUAL(pthread_join(thread, NULL), 0);
        /* for the last two ranges: the number of open ranges around them */
        size_t begin[2] = {0, 0}, depth = 0;
        for (size_t k = 0; k < d.n; k++) {
            if (d.records[k].type == HDI_RECORD_PUSH) {
                begin[0] = begin[1];
                begin[1] = depth;
            }
            depth = depth_after(&d.records[k], depth);
        }
        CONF_EQUAL(begin[0], 1);
        CONF_EQUAL(begin[1], 0);
        CONF_EQUAL(depth, 0);
        free(d.records);
        close(reader);
    }
}

static void ranges_keep_their_ends_where_others_have_no_room(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    keep_ends(runtime);
    conf_close(runtime);
}

static void ranges_of_a_shared_ring_keep_their_ends(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    ring_users users;
    use_all_rings(&users, runtime);
    keep_ends(runtime);
    give_all_rings(&users);
    conf_close(runtime);
}

static void the_beginning_is_there_whatever_the_limit(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_trace_options options = {.size = sizeof options, .file_limit = 1};
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), &options));
    CONF_OK(hd_range_push(runtime, "a range"));
    CONF_OK(hd_range_pop(runtime));
    CONF_OK(hd_trace_stop(runtime, &info));
    content c = read_file(file_path);
    CONF_EQUAL(count(&c, HDI_RECORD_DEVICE), hd_device_count(runtime));
    CONF_EQUAL(count(&c, HDI_RECORD_PUSH) + count(&c, HDI_RECORD_POP), 0);
    CONF_EQUAL(count(&c, HDI_RECORD_DROPPED), 1);
    CONF_TRUE(c.n == info.records && info.dropped >= 2);
    free(c.records);
    conf_close(runtime);
}

static void what_a_disk_has_no_room_for_is_counted(void **state)
{
    (void)state;
    enum { ROOM = 500 };
    hd_runtime *runtime = conf_open(NULL);
    /* host devices keep memory in files, too: they need no more of it from here on */
    launch_many(runtime);
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    struct rlimit before, small;
    CONF_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = ROOM * sizeof(hdi_record) + 10; /* and a part of one more */
    CONF_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
    launch_many(runtime);
    hd_trace_info info = {.size = sizeof info};
    hd_status status = hd_trace_stop(runtime, &info);
    CONF_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    CONF_EQUAL(status, HD_ERROR_SYSTEM);
    CONF_EQUAL(info.records, ROOM);
    CONF_EQUAL(info.bytes, ROOM * sizeof(hdi_record));
    CONF_TRUE(info.records + info.dropped >= 2000);
    content c = read_file(file_path);
    CONF_EQUAL(c.n, ROOM);
    free(c.records);
    conf_close(runtime);
}

/* A trace that the option began, and that hd_close ends. */
static void what_a_disk_has_no_room_for_is_said_at_the_end(void **state)
{
    (void)state;
    char settings[192];
    snprintf(settings, sizeof settings, "trace=%s", in_folder("t"));
    hd_runtime *runtime = conf_open(settings);
    launch_many(runtime);
    struct rlimit before, small;
    CONF_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100 * sizeof(hdi_record); /* was written long before */
    CONF_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
    launch_many(runtime);
    conf_track(runtime, NULL);
    hd_status status = hd_close(runtime);
    CONF_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    CONF_EQUAL(status, HD_ERROR_SYSTEM);
    CONF_TRUE(strstr(hd_message(), file_path) != NULL);
}

int main(void)
{
    conf_begin("test_trace_file");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(a_file_has_one_trace_at_a_time),
        FOLDER_CASE(a_child_keeps_no_file),
        FOLDER_CASE(a_pipe_without_a_reader_is_refused),
        FOLDER_CASE(a_reader_that_sleeps_does_not_hold_up_the_end),
        FOLDER_CASE(ranges_keep_their_ends_where_others_have_no_room),
        FOLDER_CASE(ranges_of_a_shared_ring_keep_their_ends),
        FOLDER_CASE(the_beginning_is_there_whatever_the_limit),
        FOLDER_CASE(what_a_disk_has_no_room_for_is_counted),
        FOLDER_CASE(what_a_disk_has_no_room_for_is_said_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
