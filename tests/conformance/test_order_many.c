/* test_order_many.c - many unfinished uses of one buffer: a submission never waits for them, and
 * they hold up no other work.
 *
 * Promise: Submissions never wait for unfinished uses of a buffer, and all results count.
 *
 * Threads: the main one, and more in some cases.
 * Locks: none.
 * Always: late work is behind a long kernel. Tickets show what happened, never times.
 */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>

enum { part_words = 16, part = 4 * part_words };

typedef struct world {
    hd_runtime *runtime;
    conf_slow slow;
    conf_kernels k;
    hd_lane *late; /* its work is behind the long kernel */
    hd_lane *other;
} world;

static void world_make(world *w, const char *settings)
{
    w->runtime = conf_open(settings);
    conf_slow_make(&w->slow, w->runtime, 0);
    w->k = w->slow.kernels;
    CONF_OK(hd_lane_create(w->runtime, 0, &w->late));
    CONF_OK(hd_lane_create(w->runtime, 0, &w->other));
}

static hd_buffer *device_buffer(world *w, size_t bytes, uint32_t word)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(w->other, bytes, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, bytes, NULL));
    CONF_OK(hd_buffer_wait(buffer, HD_READ_WRITE, 60 * CONF_SECOND));
    return buffer;
}

/* Makes `lane` busy for long, then writes the parts there. *out is done when the last of them
 * is. */
static void write_parts(world *w, hd_lane *lane, hd_buffer *x, int parts, double ms, uint32_t value, hd_ticket *out)
{
    conf_slow_run(&w->slow, lane, NULL, 0, ms, NULL);
    for (int i = 0; i < parts; i++) {
        CONF_OK(conf_fill(lane, w->k, x, (size_t)i * part, part_words, value, out));
    }
}

/* Calls `body` with longer and longer work, until it returns that it came before the end of the
 * work: then nothing waited. */
static void before_the_end(bool (*body)(world *w, double ms), const char *settings)
{
    world w;
    world_make(&w, settings);
    bool before = conf_is_inline(w.runtime); /* there the thread that submits also does the work */
    for (double ms = 20; !before && ms < 20000; ms *= 2) {
        before = body(&w, ms);
    }
    CONF_TRUE(before);
    CONF_TRUE(!conf_is_inline(w.runtime) || (body(&w, 1), true));
    conf_slow_free(&w.slow);
    conf_close(w.runtime);
}

static bool reads_all(world *w, double ms)
{
    enum { parts = 1500 };
    hd_buffer *x = device_buffer(w, parts * part, 1), *y = device_buffer(w, parts * part, 2);
    hd_ticket last;
    write_parts(w, w->late, x, parts, ms, 7, &last);
    hd_device_stats stats = {.size = sizeof stats}, more = stats;
    CONF_OK(hd_device_get_stats(w->runtime, 0, &stats));
    CONF_OK(conf_copy(w->other, w->k, y, 0, x, 0, parts * part_words, NULL));
    bool before = !hd_done(last);
    CONF_FILLED(y, 0, 7, parts * part);
    CONF_OK(hd_device_get_stats(w->runtime, 0, &more));
    /* one for the order, and those of the read */
    CONF_TRUE(more.waits_inserted - stats.waits_inserted <= 4);
    hd_free(x);
    hd_free(y);
    return before;
}

static void a_reader_of_many_writers_is_submitted_at_once(void **state)
{
    (void)state;
    before_the_end(reads_all, "lane_slots=4096");
}

/* A kernel reads x for long, and many copies into parts of it stand behind that. Then all of x is
 * read. */
static void read_behind_copies(const char *settings, int parts, bool fails)
{
    world w;
    world_make(&w, settings);
    hd_buffer *x = device_buffer(&w, (size_t)parts * part, 1), *y = device_buffer(&w, (size_t)parts * part, 2);
    hd_buffer *source = NULL;
    CONF_OK(hd_alloc_host(w.runtime, (size_t)parts * part, &source));
    uint32_t *words = NULL;
    CONF_OK(hd_map(source, HD_WRITE, (void **)&words));
    for (int i = 0; i < parts * part_words; i++) {
        words[i] = 1000 + (uint32_t)i;
    }
    conf_slow_run(&w.slow, w.late, NULL, 0, 20, NULL);
    CONF_OK(conf_copy(w.late, w.k, y, 0, x, 0, (uint64_t)parts * part_words, NULL));
    int order = 7;
    for (int i = 0; i < parts; i++) {
        order = (order + 7) % parts; /* no neighbours one after the other in one lane */
        CONF_OK(hd_copy(x, (size_t)order * part, source, (size_t)order * part, part, NULL));
    }
    hd_ticket read;
    hd_status status = conf_copy(w.other, w.k, y, 0, x, 0, (uint64_t)parts * part_words, &read);
    status = status ? status : hd_wait(read, 60 * CONF_SECOND);
    CONF_TRUE(status == (fails ? HD_ERROR_FAILED : HD_OK));
    if (!fails) {
        uint32_t *got = malloc((size_t)parts * part);
        CONF_TRUE(got != NULL);
        CONF_OK(hd_read(y, 0, got, (size_t)parts * part));
        CONF_SAME(got, words, (size_t)parts * part);
        free(got);
    }
    conf_slow_free(&w.slow);
    conf_close(w.runtime);
}

/* The results of copies count one by one, for any number of copies. */
static void one_failed_copy_of_many_fails_the_reader(void **state)
{
    (void)state;
    enum { parts = 611 }; /* prime, so that the copies visit all parts */
    read_behind_copies(NULL, parts, false);
    static const int failing[] = {1, 2, 13, 14, 300, parts - 1, parts};
    for (size_t i = 0; i < (CONF_SLOWNESS == 1 ? sizeof failing / sizeof failing[0] : 2); i++) {
        char settings[100];
        snprintf(settings, sizeof settings, "fault=cuMemcpyHtoDAsync:%d=1", failing[i]);
        read_behind_copies(settings, parts, true);
    }
}

/* ---- a full lane ---- */

enum { floods = 4, enough = 500, large_bytes = 3600 };

static const char large_source[] = "#include <heddle/kernel.h>\n"
                                   "typedef struct large {\n"
                                   "    uint32_t v[900];\n"
                                   "} large;\n"
                                   "HD_KERNEL(with_large, HD_OUT(uint32_t, y), HD_VALUE(large, s))\n"
                                   "{\n"
                                   "    y[0] = s.v[899];\n"
                                   "}\n";

typedef struct flood {
    world *w;
    hd_buffer *y;
    pthread_t thread;
    atomic_bool *stop;
    atomic_int *submitted;
} flood;

static void *submits_without_end(void *argument)
{
    flood *f = argument;
    while (!atomic_load(f->stop)) {
        CONF_OK(conf_sum(f->w->other, f->w->k, f->y, 0, f->w->slow.zeros, 0, f->w->slow.n / 4, 1, NULL));
        if (atomic_fetch_add(f->submitted, 1) >= enough) {
            atomic_store(f->stop, true);
        }
    }
    return NULL;
}

/* A launch of 57 slots comes to a lane of 128 that other threads keep full, a slot at a time. */
static void who_needs_much_room_gets_it(void **state)
{
    (void)state;
    size_t size = 0;
    uint8_t *image = conf_kernel_file(large_source, &size);
    if (!image) {
        skip();
    }
    world w;
    world_make(&w, "lane_slots=128");
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    CONF_OK(hd_module_load(w.runtime, image, size, &module));
    CONF_OK(hd_kernel_get(module, "with_large", &kernel));
    free(image);
    hd_buffer *y = device_buffer(&w, part, 0);
    atomic_bool stop = false;
    atomic_int submitted = -256; /* the ring is full when it is 0 */
    flood all[floods];
    for (int i = 0; i < floods; i++) {
        all[i] = (flood){.w = &w, .y = device_buffer(&w, part, 0), .stop = &stop, .submitted = &submitted};
        CONF_TRUE(pthread_create(&all[i].thread, NULL, submits_without_end, &all[i]) == 0);
    }
    while (atomic_load(&submitted) < 0) {
        sched_yield();
    }
    uint32_t large[large_bytes / 4] = {[large_bytes / 4 - 1] = 77};
    hd_arg args[] = {hd_out(y), hd_bytes(large, sizeof large)};
    CONF_OK(hd_launch(w.other, kernel, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, NULL));
    bool starved = atomic_load(&stop);
    atomic_store(&stop, true);
    for (int i = 0; i < floods; i++) {
        pthread_join(all[i].thread, NULL);
    }
    CONF_FILLED(y, 0, 77, 4);
    CONF_TRUE(!starved);
    conf_slow_free(&w.slow);
    conf_close(w.runtime);
}

/* ---- many threads and one long record ---- */

enum { long_parts = CONF_TSAN ? 600 : 2000, users = 3, rounds = CONF_TSAN ? 6 : 20 };

typedef struct user {
    world *w;
    hd_buffer *x;
    int number;
    pthread_t thread;
} user;

/* Writes all of x, reads all of x into its own buffer, and waits for x now and then. All words of a
 * read must belong to one write. */
static void *uses_all(void *argument)
{
    user *u = argument;
    world *w = u->w;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(w->runtime, 0, &lane));
    hd_buffer *y = device_buffer(w, long_parts * part, 0);
    uint32_t *got = malloc(long_parts * part);
    CONF_TRUE(got != NULL);
    for (int i = 0; i < rounds; i++) {
        if (u->number == 0) {
            CONF_OK(conf_fill(lane, w->k, u->x, 0, long_parts * part_words, 100 + (uint32_t)i, NULL));
            for (int p = 0; p < long_parts; p += 3) { /* and parts again, with the same word */
                CONF_OK(conf_fill(lane, w->k, u->x, (size_t)p * part, part_words, 100 + (uint32_t)i, NULL));
            }
        }
        CONF_OK(conf_copy(lane, w->k, y, 0, u->x, 0, long_parts * part_words, NULL));
        if (u->number == 2) {
            hd_status status = hd_buffer_wait(u->x, i % 2 ? HD_READ : HD_READ_WRITE, 1000);
            CONF_TRUE(status == HD_OK || status == HD_ERROR_TIMEOUT);
        }
        if (u->number == 1) {
            CONF_OK(hd_read(y, 0, got, long_parts * part));
            for (int j = 1; j < long_parts * part_words; j++) {
                bool same = got[j] == got[0];
                /* the write before may have come between the write of all and those of its parts */
                CONF_TRUE(same || (got[0] >= 100 && got[j] + 1 == got[0]) || (got[j] >= 100 && got[0] + 1 == got[j]));
            }
        }
    }
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    hd_free(y);
    free(got);
    hd_lane_destroy(lane);
    return NULL;
}

static void threads_share_a_long_record(void **state)
{
    (void)state;
    world w;
    world_make(&w, "lane_slots=4096");
    hd_buffer *x = device_buffer(&w, long_parts * part, 99);
    hd_ticket last;
    user all[users];
    write_parts(&w, w.late, x, long_parts, 20, 99, &last);
    for (int i = 0; i < users; i++) {
        all[i] = (user){.w = &w, .x = x, .number = i};
        CONF_TRUE(pthread_create(&all[i].thread, NULL, uses_all, &all[i]) == 0);
    }
    for (int i = 0; i < users; i++) {
        pthread_join(all[i].thread, NULL);
    }
    CONF_FILLED(x, 0, 100 + rounds - 1, long_parts * part);
    conf_slow_free(&w.slow);
    conf_close(w.runtime);
}

/* Readers of many segments are noted once, beside them. A writer of some of the bytes, or of all,
 * still waits for these readers. It also waits for a reader of only those bytes, whatever the
 * writer's lane itself read before. */
static void write_behind_readers(bool of_all, bool writes_all)
{
    enum { parts = 100 };
    world w;
    world_make(&w, NULL);
    hd_lane *reader = NULL;
    CONF_OK(hd_lane_create(w.runtime, 0, &reader));
    hd_buffer *x = device_buffer(&w, parts * part, 1), *y = device_buffer(&w, parts * part, 2);
    hd_buffer *z = device_buffer(&w, parts * part, 3);
    hd_ticket last;
    write_parts(&w, w.late, x, parts, 50, 7, &last);
    conf_slow_run(&w.slow, reader, NULL, 0, 200, NULL);
    CONF_OK(conf_copy(reader, w.k, y, 0, x, 0, of_all ? parts * part_words : part_words, NULL));
    if (!of_all) {
        CONF_OK(conf_copy(w.other, w.k, z, 0, x, 0, parts * part_words, NULL));
    }
    CONF_OK(conf_fill(w.other, w.k, x, 0, writes_all ? parts * part_words : part_words, 9, &last));
    CONF_OK(hd_wait(last, 60 * CONF_SECOND));
    CONF_FILLED(y, 0, 7, part);
    CONF_FILLED(x, 0, 9, part);
    conf_slow_free(&w.slow);
    conf_close(w.runtime);
}

static void a_write_waits_for_readers_of_many(void **state)
{
    (void)state;
    write_behind_readers(true, false);
    write_behind_readers(true, true);
}

static void a_write_waits_for_readers_of_its_part(void **state)
{
    (void)state;
    write_behind_readers(false, false);
    write_behind_readers(false, true);
}

int main(void)
{
    conf_begin("test_order_many");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_reader_of_many_writers_is_submitted_at_once),
        CONF_CASE(one_failed_copy_of_many_fails_the_reader),
        CONF_CASE(who_needs_much_room_gets_it),
        CONF_CASE(threads_share_a_long_record),
        CONF_CASE(a_write_waits_for_readers_of_many),
        CONF_CASE(a_write_waits_for_readers_of_its_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
