/* test_memory_report.c - statistics, labels, lists of buffers, and reports on a runtime's own
 * memory.
 *
 * Promise: Statistics, labels and lists of buffers agree with the program's allocations.
 *
 * Threads: some that allocate while others look.
 * Locks: none.
 * Always: checks of the figures hold for every placement and driver.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "conformance.h"
#include "support/json.h"

static hd_memory_stats stats_of(hd_runtime *runtime, int device)
{
    hd_memory_stats s = {.size = sizeof s};
    CONF_OK(hd_memory_get_stats(runtime, device, &s));
    CONF_EQUAL(s.size, sizeof s);
    return s;
}

static uint64_t sources(const hd_memory_stats *s)
{
    return s->from_magazine + s->from_same_lane + s->from_finished + s->from_waited + s->from_fresh;
}

/* Returns the report of a runtime, for the caller to free. */
static char *report_of(hd_runtime *runtime, hd_report_format format)
{
    size_t room = 0, needed = 0;
    char *text = NULL;
    CONF_OK(hd_memory_report(runtime, format, NULL, 0, &needed));
    while (needed > room) { /* it may have grown meanwhile */
        room = needed + 512;
        text = realloc(text, room);
        CONF_TRUE(text != NULL);
        CONF_OK(hd_memory_report(runtime, format, text, room, &needed));
    }
    CONF_EQUAL(strlen(text) + 1, needed);
    return text;
}

/* ---- figures ---- */

static void figures_add_up(void **state)
{
    (void)state;
    enum { count = 300 };
    hd_runtime *runtime = conf_open(NULL);
    static hd_buffer *buffers[count];
    for (int d = 0; d < hd_device_count(runtime); d++) {
        hd_lane *lanes[2] = {conf_default_lane(runtime, d), NULL};
        CONF_OK(hd_lane_create(runtime, d, &lanes[1]));
        conf_random r = {(uint64_t)d + 1};
        uint64_t bytes = 0, allocations = 0, frees = 0;
        memset(buffers, 0, sizeof buffers);
        for (int step = 0; step < 3000; step++) {
            hd_buffer **b = &buffers[conf_below(&r, count)];
            if (*b != NULL) {
                bytes -= hd_buffer_size(*b);
                hd_free(*b);
                *b = NULL;
                frees++;
                continue;
            }
            size_t size = 1 + conf_below(&r, conf_chance(&r, 2) ? 3 << 20 : 20000);
            CONF_OK(hd_alloc(lanes[conf_below(&r, 2)], size, b));
            bytes += size;
            allocations++;
            if (conf_chance(&r, 30)) {
                CONF_OK(hd_fill(*b, 0, 1, size / 4 * 4, NULL));
            }
        }
        hd_memory_stats s = stats_of(runtime, d);
        CONF_EQUAL(s.live_bytes, bytes);
        CONF_EQUAL(s.live_count, allocations - frees);
        CONF_EQUAL(s.allocations, allocations);
        CONF_EQUAL(s.frees, frees);
        CONF_EQUAL(s.failures, 0);
        CONF_EQUAL(sources(&s), allocations);
        CONF_TRUE(s.taken_bytes >= s.live_bytes + s.cached_bytes && s.taken_peak_bytes >= s.taken_bytes);
        CONF_TRUE(s.reserved_bytes >= s.taken_bytes && s.reserved_peak_bytes >= s.reserved_bytes);
        CONF_TRUE(s.limit_bytes >= s.reserved_peak_bytes);
        CONF_EQUAL(s.mapped_bytes, s.reserved_bytes + s.moved_bytes + s.returned_bytes);
        CONF_TRUE(s.driver_calls > 0 && s.longest_pause_ns > 0);
        CONF_EQUAL(s.double_frees, 0);
        CONF_EQUAL(s.overruns, 0);
        hd_device_stats device = {.size = sizeof device};
        CONF_OK(hd_device_get_stats(runtime, d, &device));
        CONF_EQUAL(device.bytes_live, bytes);
        CONF_EQUAL(device.buffers_live, allocations - frees);

        hd_lane_memory lane[300];
        size_t n = 0;
        CONF_OK(hd_memory_get_lanes(runtime, d, lane, 300, &n));
        uint64_t cached = 0;
        for (size_t i = 0; i < n; i++) {
            CONF_TRUE(lane[i].cached_bytes > 0 && lane[i].cached_count > 0);
            cached += lane[i].cached_bytes;
        }
        CONF_TRUE(n > 0);
        CONF_EQUAL(cached, s.cached_bytes);

        for (int i = 0; i < count; i++) {
            hd_free(buffers[i]);
        }
        s = stats_of(runtime, d);
        CONF_EQUAL(s.live_bytes, 0);
        CONF_EQUAL(s.live_count, 0);
        CONF_EQUAL(s.allocations, s.frees);
        CONF_EQUAL(sources(&s), s.allocations);
    }
    conf_close(runtime);
}

static void figures_fit(hd_runtime *runtime)
{
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.mapped_bytes, s.reserved_bytes + s.moved_bytes + s.returned_bytes);
    CONF_TRUE(s.reserved_peak_bytes >= s.reserved_bytes && s.taken_peak_bytes >= s.taken_bytes);
    CONF_TRUE(s.reserved_bytes >= s.taken_bytes && s.taken_bytes >= s.live_bytes);
    CONF_EQUAL(sources(&s), s.allocations);
}

/* Dedicated pieces count like all other memory of the device. */
static void dedicated_pieces_are_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
    const size_t mega = (size_t)1 << 20;
    hd_buffer *piece = NULL, *plain[2];
    if (hd_alloc_with(lane, 2 * mega, &options, &piece) == HD_ERROR_UNSUPPORTED) {
        conf_close(runtime);
        skip();
    }
    figures_fit(runtime);
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.allocations, 1);
    CONF_TRUE(s.taken_bytes >= 2 * mega && s.driver_calls > 0);
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_alloc(lane, 8 * mega, &plain[i]));
        figures_fit(runtime);
    }
    uint64_t calls = stats_of(runtime, 0).driver_calls;
    hd_free(piece);
    while (stats_of(runtime, 0).taken_bytes > 16 * mega) { /* the keeper gives the piece back */
        conf_sleep_ms(1);
        figures_fit(runtime);
    }
    CONF_TRUE(stats_of(runtime, 0).driver_calls > calls);
    hd_free(plain[0]);
    hd_free(plain[1]);
    figures_fit(runtime);
    conf_close(runtime);
}

/* Blocks that take a part of a freed large block: the arena divides the mapping of that block. */
static void divided_memory_is_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=1G memory_limit=200M memory_timeout=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_random r = {7};
    hd_buffer *b[32] = {NULL};
    for (int step = 0; step < 500; step++) {
        hd_buffer **one = &b[conf_below(&r, 32)];
        if (*one) {
            hd_free(*one);
            *one = NULL;
        } else {
            size_t size = (1 + conf_below(&r, conf_chance(&r, 50) ? 100 : 20)) << 20;
            hd_status status = hd_alloc(lane, size, one);
            CONF_TRUE(status == HD_OK || status == HD_ERROR_MEMORY);
            *one = status == HD_OK ? *one : NULL;
        }
        figures_fit(runtime);
    }
    CONF_TRUE(stats_of(runtime, 0).moved_bytes > 0);
    for (int i = 0; i < 32; i++) {
        hd_free(b[i]);
    }
    CONF_OK(hd_memory_trim(runtime, 0, 0, NULL));
    figures_fit(runtime);
    conf_close(runtime);
}

static void *free_them(void *context)
{
    hd_buffer **buffers = context;
    for (int i = 0; i < 100; i++) {
        hd_free(buffers[i]);
    }
    return NULL;
}

static void frees_of_other_threads_are_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *buffers[100];
    for (int i = 0; i < 100; i++) {
        CONF_OK(hd_alloc(lane, 1000, &buffers[i]));
    }
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, free_them, buffers), 0);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.frees, 100);
    CONF_EQUAL(s.frees_elsewhere, 100);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.live_bytes, 0);
    conf_close(runtime);
}

static void pinned_figures_add_up(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffers[20];
    uint64_t bytes = 0;
    for (int i = 0; i < 20; i++) {
        size_t size = (size_t)(i + 1) * 30000;
        CONF_OK(hd_alloc_host(runtime, size, &buffers[i]));
        bytes += size;
    }
    hd_memory_stats s = stats_of(runtime, HD_DEVICE_HOST);
    CONF_EQUAL(s.live_bytes, bytes);
    CONF_EQUAL(s.live_count, 20);
    CONF_EQUAL(s.allocations, 20);
    CONF_TRUE(s.taken_bytes >= bytes && s.reserved_bytes >= s.taken_bytes && s.limit_bytes >= s.reserved_bytes);
    for (int i = 0; i < 20; i++) {
        hd_free(buffers[i]);
    }
    s = stats_of(runtime, HD_DEVICE_HOST);
    CONF_EQUAL(s.live_bytes, 0);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.frees, 20);
    size_t n = 77;
    CONF_OK(hd_memory_get_lanes(runtime, HD_DEVICE_HOST, NULL, 0, &n));
    CONF_EQUAL(n, 0);
    conf_close(runtime);
}

static bool never(void *context, const hd_memory_block *block)
{
    (void)context;
    (void)block;
    conf_fail_at(__FILE__, __LINE__, "called");
    return false;
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int n = hd_device_count(runtime);
    hd_memory_stats s = {.size = sizeof s};
    hd_lane_memory lane;
    size_t count = 5;
    char text[8] = "keep";
    CONF_FAILS(hd_memory_get_stats(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    s.size = 8;
    CONF_FAILS(hd_memory_get_stats(runtime, 0, &s), HD_ERROR_ARGUMENT);
    s.size = sizeof s;
    CONF_FAILS(hd_memory_get_stats(NULL, 0, &s), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_get_stats(runtime, n, &s), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_memory_get_stats(runtime, -2, &s), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_memory_get_lanes(runtime, 0, &lane, 1, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_get_lanes(runtime, 0, NULL, 1, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_get_lanes(NULL, 0, &lane, 1, &count), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_get_lanes(runtime, n, &lane, 1, &count), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_memory_each(runtime, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_each(NULL, never, NULL), HD_ERROR_HANDLE);
    CONF_OK(hd_memory_each(runtime, never, NULL));
    CONF_FAILS(hd_buffer_set_label(NULL, "x"), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_report(runtime, (hd_report_format)7, text, sizeof text, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_report(runtime, HD_REPORT_TEXT, NULL, 5, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_report(NULL, HD_REPORT_TEXT, text, sizeof text, &count), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_report_of(-1, HD_REPORT_TEXT, text, sizeof text, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_report_of(0, (hd_report_format)7, text, sizeof text, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_report_of(0, HD_REPORT_TEXT, NULL, 5, &count), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_report_of(INT32_MAX, HD_REPORT_TEXT, text, sizeof text, &count), HD_ERROR_NOT_FOUND);
    CONF_EQUAL(count, 5);
    CONF_TRUE(strcmp(text, "keep") == 0);
    conf_close(runtime);
    CONF_FAILS(hd_memory_get_stats(runtime, 0, &s), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_report(runtime, HD_REPORT_TEXT, text, sizeof text, &count), HD_ERROR_HANDLE);
}

/* ---- labels and the list of buffers ---- */

typedef struct listed {
    hd_memory_block blocks[64];
    int n, most;
} listed;

static bool note(void *context, const hd_memory_block *block)
{
    listed *l = context;
    CONF_TRUE(l->n < 64 && block->size == sizeof *block);
    l->blocks[l->n++] = *block;
    return l->n != l->most;
}

static const hd_memory_block *with_bytes(const listed *l, uint64_t bytes)
{
    const hd_memory_block *found = NULL;
    for (int i = 0; i < l->n; i++) {
        if (l->blocks[i].bytes == bytes) {
            CONF_TRUE(found == NULL);
            found = &l->blocks[i];
        }
    }
    CONF_TRUE(found != NULL);
    return found;
}

static __attribute__((noinline)) hd_buffer *from_one_place(hd_lane *lane, size_t bytes)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(lane, bytes, &b));
    return b;
}

/* The call site of a tensor's memory is the program's call that makes the tensor. */
static void tensors_are_listed_with_their_place(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_tensor first, second;
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U8, 1, (const uint64_t[]){1001}, &first));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U8, 1, (const uint64_t[]){1002}, &second));
    listed l = {.n = 0};
    CONF_OK(hd_memory_each(runtime, note, &l));
    CONF_TRUE(with_bytes(&l, 1001)->call_site != with_bytes(&l, 1002)->call_site);
    conf_close(runtime);
}

static void buffers_are_listed(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *b[6];
    b[0] = from_one_place(lane, 1001);
    b[1] = from_one_place(lane, 1002);
    hd_alloc_options named = {.size = sizeof named, .label = "named at once"};
    CONF_OK(hd_alloc_with(lane, 1003, &named, &b[2]));
    CONF_OK(hd_alloc(lane, (5 << 20) + 4, &b[3]));
    CONF_OK(hd_alloc_host(runtime, 1005, &b[4]));
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_alloc_with(lane, 1006, &keep, &b[5]));
    CONF_OK(hd_buffer_set_label(b[3], "a label that is much longer than there is room for"));
    CONF_OK(hd_buffer_set_label(b[4], "pinned one"));
    char content[1006] = "x";
    /* no list contains the library's own memory */
    CONF_OK(hd_write(b[5], 0, content, sizeof content));
    CONF_OK(hd_read(b[5], 0, content, sizeof content));

    listed l = {.n = 0};
    CONF_OK(hd_memory_each(runtime, note, &l));
    CONF_EQUAL(l.n, 6);
    CONF_TRUE(with_bytes(&l, 1001)->label[0] == '\0' && with_bytes(&l, 1001)->device == 0);
    CONF_TRUE(with_bytes(&l, 1001)->call_site == with_bytes(&l, 1002)->call_site);
    CONF_TRUE(with_bytes(&l, 1001)->call_site != with_bytes(&l, 1003)->call_site);
    CONF_TRUE(with_bytes(&l, 1001)->call_site != NULL && with_bytes(&l, 1005)->call_site != NULL);
    CONF_TRUE(strcmp(with_bytes(&l, 1003)->label, "named at once") == 0);
    const char *cut = with_bytes(&l, (5 << 20) + 4)->label;
    CONF_TRUE(strlen(cut) == HD_LABEL_BYTES - 1 && strncmp(cut, "a label that is much longer", 27) == 0);
    CONF_TRUE(strcmp(with_bytes(&l, 1005)->label, "pinned one") == 0);
    CONF_EQUAL(with_bytes(&l, 1005)->device, HD_DEVICE_HOST);
    CONF_TRUE(!with_bytes(&l, 1001)->held && !with_bytes(&l, 1001)->unified && !with_bytes(&l, 1001)->lost);

    CONF_OK(hd_buffer_set_label(b[3], NULL));
    hd_free(b[0]);
    CONF_FAILS(hd_buffer_set_label(b[0], "late"), HD_ERROR_HANDLE);
    /* probably the same structure: without the facts of the old buffer */
    b[0] = from_one_place(lane, 1001);
    l.n = 0;
    CONF_OK(hd_memory_each(runtime, note, &l));
    CONF_EQUAL(l.n, 6);
    CONF_TRUE(with_bytes(&l, (5 << 20) + 4)->label[0] == '\0' && with_bytes(&l, 1001)->label[0] == '\0');
    l = (listed){.most = 2};
    CONF_OK(hd_memory_each(runtime, note, &l));
    CONF_EQUAL(l.n, 2);
    for (int i = 0; i < 6; i++) {
        hd_free(b[i]);
    }
    CONF_OK(hd_memory_each(runtime, never, NULL));
    conf_close(runtime);
}

static void a_held_buffer_is_listed(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *b = from_one_place(lane, 5000);
    hd_hold *hold = NULL;
    CONF_OK(hd_hold_create(runtime, &hold));
    CONF_OK(hd_hold_add(hold, b));
    hd_free(b);
    listed l = {.n = 0};
    CONF_OK(hd_memory_each(runtime, note, &l));
    CONF_EQUAL(l.n, 1);
    CONF_TRUE(l.blocks[0].held && l.blocks[0].bytes == 5000);
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.held_bytes, 5000);
    CONF_EQUAL(s.live_bytes, 0);
    hd_hold_destroy(hold);
    CONF_EQUAL(stats_of(runtime, 0).held_bytes, 0);
    CONF_OK(hd_memory_each(runtime, never, NULL));
    conf_close(runtime);
}

typedef struct freeing {
    hd_runtime *runtime;
    hd_buffer **buffers;
    int calls;
} freeing;

static bool frees_all(void *context, const hd_memory_block *block)
{
    freeing *f = context;
    if (f->calls++ == 0) {
        for (int i = 0; i < 10; i++) {
            hd_free(f->buffers[i]);
        }
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(conf_default_lane(f->runtime, 0), block->bytes, &b));
        free(report_of(f->runtime, HD_REPORT_TEXT));
        hd_free(b);
    }
    return true;
}

static void a_visitor_may_call_anything(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffers[10];
    for (int i = 0; i < 10; i++) {
        buffers[i] = from_one_place(conf_default_lane(runtime, 0), 4096);
    }
    freeing f = {runtime, buffers, 0};
    CONF_OK(hd_memory_each(runtime, frees_all, &f));
    CONF_EQUAL(f.calls, 10);
    CONF_EQUAL(stats_of(runtime, 0).live_count, 0);
    conf_close(runtime);
}

/* ---- reports ---- */

static void label_some(hd_runtime *runtime, hd_buffer **b)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    for (int i = 0; i < 12; i++) {
        CONF_OK(hd_alloc(lane, i < 3 ? 3 << 20 : i < 8 ? 100000 : 500, &b[i]));
        if (i < 8) {
            CONF_OK(hd_buffer_set_label(b[i], i < 3 ? "weights" : "say \"act\"\n\x1b[1m"));
        }
    }
}

static void a_report_names_the_largest_holders(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int n = hd_device_count(runtime);
    hd_buffer *b[12];
    label_some(runtime, b);
    char *json = report_of(runtime, HD_REPORT_JSON);
    CONF_TRUE(json_is_document(json));
    CONF_EQUAL(json_integer_at(json, "pid"), getpid());
    CONF_TRUE(json_text_is(json, "heddle", hd_version()));
    CONF_EQUAL(json_count_at(json, "devices"), n + 1);
    CONF_EQUAL(json_integer_at(json, "devices.0.live_bytes"), 3 * (3 << 20) + 5 * 100000 + 4 * 500);
    CONF_EQUAL(json_integer_at(json, "devices.0.live_count"), 12);
    CONF_EQUAL(json_integer_at(json, "devices.0.allocations"), 12);
    CONF_EQUAL(json_count_at(json, "devices.0.holders"), 3);
    CONF_TRUE(json_text_is(json, "devices.0.holders.0.label", "weights"));
    CONF_EQUAL(json_integer_at(json, "devices.0.holders.0.bytes"), 3 * (3 << 20));
    CONF_EQUAL(json_integer_at(json, "devices.0.holders.0.count"), 3);
    CONF_EQUAL(json_integer_at(json, "devices.0.holders.1.count"), 5);
    CONF_TRUE(json_text_is(json, "devices.0.holders.2.label", NULL));
    CONF_EQUAL(json_integer_at(json, "devices.0.holders.2.bytes"), 2000);
    const char *site = json_at(json, "devices.0.holders.2.call_site");
    CONF_TRUE(site != NULL && site[0] == '"' && strstr(site, "+0x") != NULL);
    CONF_EQUAL(json_count_at(json, "findings"), 0);
    CONF_TRUE(json_at(json, "leaks") == NULL);
    free(json);

    char *text = report_of(runtime, HD_REPORT_TEXT);
    const char *first = strstr(text, "'weights'"), *second = strstr(text, "'say \"act\"");
    CONF_TRUE(first != NULL && second != NULL && first < second);
    CONF_TRUE(strstr(text, "9 MiB") != NULL && strstr(text, "in 12 buffers") != NULL);
    CONF_TRUE(strchr(text, '\x1b') == NULL); /* no control sequence for a terminal */
    CONF_TRUE(strstr(text, "leaks") == NULL);
    size_t needed = 0, length = strlen(text);
    char part[20];
    memset(part, 'x', sizeof part);
    CONF_OK(hd_memory_report(runtime, HD_REPORT_TEXT, part, 10, NULL));
    CONF_TRUE(strlen(part) == 9 && strncmp(part, text, 9) == 0 && part[10] == 'x');
    CONF_OK(hd_memory_report(runtime, HD_REPORT_TEXT, part, 1, &needed));
    CONF_TRUE(part[0] == '\0' && needed >= length / 2);
    free(text);
    for (int i = 0; i < 12; i++) {
        hd_free(b[i]);
    }
    conf_close(runtime);
}

static void many_labels_are_counted_exactly(void **state)
{
    (void)state;
    enum { labels = 2000, most = 16 };
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint64_t bytes = 0;
    for (int i = 0; i < labels; i++) {
        char label[HD_LABEL_BYTES];
        hd_buffer *b = NULL;
        snprintf(label, sizeof label, "tensor %d", i);
        hd_alloc_options named = {.size = sizeof named, .label = label};
        CONF_OK(hd_alloc_with(lane, 256 + (size_t)i, &named, &b));
        bytes += 256 + (uint64_t)i;
    }
    char *json = report_of(runtime, HD_REPORT_JSON);
    CONF_TRUE(json_is_document(json));
    CONF_EQUAL(json_count_at(json, "devices.0.holders"), most);
    uint64_t seen = (uint64_t)json_integer_at(json, "devices.0.other_holders_bytes");
    for (int i = 0; i < most; i++) {
        char path[64], label[64];
        snprintf(path, sizeof path, "devices.0.holders.%d.label", i);
        snprintf(label, sizeof label, "tensor %d", labels - 1 - i);
        CONF_TRUE(json_text_is(json, path, label));
        snprintf(path, sizeof path, "devices.0.holders.%d.bytes", i);
        seen += (uint64_t)json_integer_at(json, path);
    }
    CONF_EQUAL(seen, bytes);
    CONF_EQUAL(json_integer_at(json, "devices.0.other_holders"), labels - most);
    CONF_EQUAL(json_integer_at(json, "devices.0.other_holders_count"), labels - most);
    free(json);
    conf_close(runtime);
}

/* ---- looking while others allocate ---- */

typedef struct busy {
    hd_runtime *runtime;
    _Atomic bool stop;
} busy;

static void *allocate_and_free(void *context)
{
    busy *b = context;
    hd_buffer *own[32] = {NULL};
    conf_random r = {(uint64_t)(uintptr_t)&own};
    hd_lane *lane = conf_default_lane(b->runtime, 0);
    while (!atomic_load(&b->stop)) {
        hd_buffer **at = &own[conf_below(&r, 32)];
        if (*at) {
            hd_free(*at);
            *at = NULL;
        } else {
            hd_alloc_options named = {.size = sizeof named, .label = conf_chance(&r, 50) ? "some" : NULL};
            CONF_OK(hd_alloc_with(lane, 1 + conf_below(&r, conf_chance(&r, 1) ? 2 << 20 : 9000), &named, at));
            if (conf_chance(&r, 20)) {
                CONF_OK(hd_buffer_set_label(*at, "others"));
            }
        }
    }
    for (int i = 0; i < 32; i++) {
        hd_free(own[i]);
    }
    return NULL;
}

static bool is_whole(void *context, const hd_memory_block *block)
{
    (void)context;
    CONF_TRUE(block->bytes > 0 && block->bytes <= 2 << 20 && block->device == 0 && block->call_site != NULL);
    CONF_TRUE(block->label[0] == 0 || strcmp(block->label, "some") == 0 || strcmp(block->label, "others") == 0);
    return true;
}

static void looking_disturbs_nobody(void **state)
{
    (void)state;
    enum { threads = 3 };
    hd_runtime *runtime = conf_open(NULL);
    busy b = {.runtime = runtime};
    pthread_t thread[threads];
    conf_failure_ends_program = true;
    for (int i = 0; i < threads; i++) {
        CONF_EQUAL(pthread_create(&thread[i], NULL, allocate_and_free, &b), 0);
    }
    for (int i = 0; i < 60; i++) {
        hd_lane_memory lanes[4];
        size_t n = 0;
        CONF_OK(hd_memory_each(runtime, is_whole, NULL));
        char *json = report_of(runtime, HD_REPORT_JSON);
        CONF_TRUE(json_is_document(json));
        free(json);
        CONF_OK(hd_memory_get_lanes(runtime, 0, lanes, 4, &n));
        stats_of(runtime, 0);
        size_t needed = 0;
        CONF_OK(hd_memory_report_of(getpid(), HD_REPORT_TEXT, NULL, 0, &needed));
    }
    atomic_store(&b.stop, true);
    for (int i = 0; i < threads; i++) {
        CONF_EQUAL(pthread_join(thread[i], NULL), 0);
    }
    conf_failure_ends_program = false;
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.live_bytes, 0);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(sources(&s), s.allocations);
    conf_close(runtime);
}

/* ---- little host memory ---- */

#if !TEST_ASAN && !TEST_TSAN      /* sanitizers replace the allocator */
static pthread_t starved;         /* the thread whose allocations fail */
static atomic_int left_over = -1; /* its allocations until one fails; negative: none fails */
static atomic_bool for_good;      /* and all later ones */
static atomic_int failed_now;     /* failed allocations */

static bool fails(void)
{
    if (atomic_load(&left_over) < 0 || !pthread_equal(pthread_self(), starved)) {
        return false;
    }
    bool now = atomic_load(&left_over) == 0;
    if (!now || !atomic_load(&for_good)) {
        atomic_fetch_sub(&left_over, 1);
    }
    atomic_fetch_add(&failed_now, now);
    return now;
}

/* The C library calls them, too. */
#define PUBLIC __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

PUBLIC void *malloc(size_t bytes)
{
    return fails() ? (errno = ENOMEM, NULL) : __libc_malloc(bytes);
}

PUBLIC void *calloc(size_t count, size_t bytes)
{
    return fails() ? (errno = ENOMEM, NULL) : __libc_calloc(count, bytes);
}

PUBLIC void *realloc(void *old, size_t bytes)
{
    return fails() ? (errno = ENOMEM, NULL) : __libc_realloc(old, bytes);
}

static void whole_report(const char *text, size_t needed, hd_report_format format, const char *what)
{
    bool whole = strlen(text) + 1 == needed && strstr(text, "pinned host memory") != NULL && text[needed - 2] == '\n' &&
                 (format == HD_REPORT_TEXT || json_is_document(text));
    if (!whole) {
        conf_fail_at(__FILE__, __LINE__, "%s: the call returned HD_OK, and this: %s", what, text);
    }
}

/* The N-th allocation of a report fails, alone or with all later ones: the call returns the
 * failure, or its report is complete. */
static void reports_are_whole_or_fail(void **state)
{
    (void)state;
    enum { ROOM = 1 << 20 };
    hd_runtime *runtime = conf_open("host_devices=2");
    hd_buffer *buffer;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 5000, &buffer));
    char *text = malloc(ROOM);
    starved = pthread_self();
    for (int what = 0; what < 12; what++) {
        hd_report_format format = what % 2 ? HD_REPORT_JSON : HD_REPORT_TEXT;
        int pid = what / 4 == 1 ? getpid() : 0;
        bool fails_now = true;
        atomic_store(&for_good, what / 2 % 2);
        for (int n = 0; fails_now && n < 1000; n++) {
            size_t needed = 12345;
            text[0] = 0;
            atomic_store(&failed_now, 0);
            atomic_store(&left_over, n);
            hd_status status = what / 4 == 0 ? hd_memory_report(runtime, format, text, ROOM, &needed)
                                             : hd_memory_report_of(pid, format, text, ROOM, &needed);
            atomic_store(&left_over, -1);
            fails_now = atomic_load(&failed_now) > 0;
            if (status == HD_OK) {
                whole_report(text, needed, format, what / 4 == 0 ? "hd_memory_report" : "hd_memory_report_of");
            } else {
                CONF_EQUAL(status, HD_ERROR_HOST_MEMORY);
                CONF_TRUE(hd_message()[0] != 0);
                CONF_EQUAL(needed, 12345);
                CONF_EQUAL(text[0], 0);
            }
            CONF_TRUE(fails_now || status == HD_OK);
        }
        CONF_TRUE(!fails_now);
    }
    free(text);
    hd_free(buffer);
    conf_close(runtime);
}
#endif

int main(void)
{
    conf_begin("test_memory_report");
    const struct CMUnitTest tests[] = {
        CONF_CASE(figures_add_up),
        CONF_CASE(dedicated_pieces_are_counted),
        CONF_CASE(divided_memory_is_counted),
        CONF_CASE(frees_of_other_threads_are_counted),
        CONF_CASE(pinned_figures_add_up),
        CONF_CASE(bad_calls_are_refused),
        CONF_CASE(buffers_are_listed),
        CONF_CASE(tensors_are_listed_with_their_place),
        CONF_CASE(a_held_buffer_is_listed),
        CONF_CASE(a_visitor_may_call_anything),
        CONF_CASE(a_report_names_the_largest_holders),
        CONF_CASE(many_labels_are_counted_exactly),
        CONF_CASE(looking_disturbs_nobody),
#if !TEST_ASAN && !TEST_TSAN
        CONF_CASE(reports_are_whole_or_fail),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
