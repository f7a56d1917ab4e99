/* test_report.c - figures about memory as text and JSON, the grouping of holders, and pages of
 * other processes with any content.
 *
 * Promise: Reports are valid text and JSON, and a damaged page of another process is refused.
 *
 * Threads: one, and one that publishes while the main thread reads. Locks: none.
 */
#include "base/text.h"
#include "support/check.h"

#include <fcntl.h>
#include <heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "buffer/buffer.h"
#include "stats/page.h"
#include "stats/report.h"
#include "support/json.h"
#include "support/lanes.h"

#define COUNT_FIGURE(field) +1
_Static_assert(sizeof(hd_memory_stats) == sizeof(size_t) + (0 HDI_STATS_MAP(COUNT_FIGURE)) * sizeof(uint64_t),
               "HDI_STATS_MAP has every figure");
#undef COUNT_FIGURE

static hd_runtime *open_host(const char *settings)
{
    hd_runtime *rt = NULL;
    hd_options options = {.size = sizeof options, .settings = settings};
    assert_ok(hd_open(&options, &rt));
    return rt;
}

/* ---- amounts ---- */

static void amounts_are_short(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } bytes[] = {
        {0, "0 bytes"},
        {1, "1 byte"},
        {1023, "1023 bytes"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {(1 << 20) - 1, "1023.9 KiB"},
        {UINT64_C(3) << 30, "3 GiB"},
        {UINT64_C(5) << 50, "5120 TiB"},
        {UINT64_MAX, "16777215.9 TiB"},
    };
    static const struct {
        uint64_t ns;
        const char *text;
    } times[] = {
        {0, "0 ns"},
        {999, "999 ns"},
        {1000, "1 us"},
        {1999999, "1.9 ms"},
        {12345678, "12.3 ms"},
        {1500000000, "1.5 s"},
        {UINT64_MAX, "18446744073.7 s"},
    };
    char text[HDI_AMOUNT_BYTES];
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        assert_string_equal(hdi_bytes_text(bytes[i].bytes, text), bytes[i].text);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_string_equal(hdi_duration_text(times[i].ns, text), times[i].text);
    }
    assert_string_equal(hdi_date_text(0, text), "1970-01-01T00:00:00Z");
    assert_string_equal(hdi_date_text(INT64_MAX, text), "unknown");
    assert_string_equal(hdi_date_text(INT64_C(253402300799), text), "9999-12-31T23:59:59Z");
    for (int64_t seconds = 0; seconds < INT64_C(253402300799); seconds += 86400 * 13 - 7) {
        char expected[64];
        time_t t = (time_t)seconds;
        struct tm parts;
        assert_non_null(gmtime_r(&t, &parts));
        strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%SZ", &parts);
        assert_string_equal(hdi_date_text(seconds, text), expected);
    }
}

/* ---- printing ---- */

static char *written(const hdi_report *r, const hdi_leaks *leaks, hd_report_format format)
{
    char *text = NULL;
    size_t length = 0;
    assert_ok(hdi_report_write(r, leaks, format, &text, &length));
    assert_int_equal(strlen(text), length);
    return text;
}

/* Makes a report in which all numbers differ. */
static hdi_report *make_report(void)
{
    hdi_report *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->pid = 4711;
    strcpy(r->version, "9.8.7");
    strcpy(r->driver, "host");
    strcpy(r->placement, "thread");
    strcpy(r->program, "loom");
    r->n_devices = 2;
    uint64_t number = 1000;
    for (uint32_t i = 0; i < 2; i++) {
        hdi_report_device *d = &r->devices[i];
        d->device = i ? HD_DEVICE_HOST : 0;
        strcpy(d->name, i ? "pinned host memory" : "device with a \"name\"");
#define SET(field) d->stats.field = ++number;
        HDI_STATS_MAP(SET)
#undef SET
        d->n_lanes = 2;
        d->lanes[0] = (hd_lane_memory){7, 2048, 3};
        d->lanes[1] = (hd_lane_memory){9, 1024, 1};
        d->n_holders = 2;
        strcpy(d->holders[0].label, "warp");
        strcpy(d->holders[0].site, "weave+0x10");
        strcpy(d->holders[1].site, "tie+0x20");
        d->holders[0].bytes = 5000;
        d->holders[1].bytes = 4000;
        d->holders[0].count = d->holders[1].count = 2;
    }
    return r;
}

static void json_has_every_figure(void **state)
{
    (void)state;
    hdi_report *r = make_report();
    char *json = written(r, NULL, HD_REPORT_JSON);
    assert_true(json_is_document(json));
    uint64_t number = 1000;
    for (int i = 0; i < 2; i++) {
        char path[96];
#define CHECK(field)                                                                                                   \
    snprintf(path, sizeof path, "devices.%d." #field, i);                                                              \
    assert_int_equal(json_integer_at(json, path), ++number);
        HDI_STATS_MAP(CHECK)
#undef CHECK
    }
    assert_int_equal(json_integer_at(json, "devices.1.device"), HD_DEVICE_HOST);
    assert_int_equal(json_integer_at(json, "devices.0.lanes.1.lane"), 9);
    assert_int_equal(json_integer_at(json, "devices.0.lanes.1.cached_bytes"), 1024);
    assert_true(json_text_is(json, "devices.0.holders.0.label", "warp"));
    assert_true(json_text_is(json, "devices.0.holders.1.label", NULL));
    assert_true(json_text_is(json, "devices.0.holders.1.call_site", "tie+0x20"));
    assert_null(json_at(json, "leaks"));
    free(json);
    hdi_holder leak = {.device = 0, .label = "lost thread", .bytes = 77, .count = 1};
    hdi_leaks leaks = {&leak, 1};
    json = written(r, &leaks, HD_REPORT_JSON);
    assert_true(json_is_document(json));
    assert_true(json_text_is(json, "leaks.0.label", "lost thread"));
    assert_int_equal(json_integer_at(json, "leaks.0.bytes"), 77);
    free(json);
    free(r);
}

static void text_says_what_there_is(void **state)
{
    (void)state;
    hdi_report *r = make_report();
    r->holders_age_ns = 0;
    char *text = written(r, NULL, HD_REPORT_TEXT);
    assert_contains(text, "process 4711 (loom), Heddle 9.8.7, driver host, placement thread");
    assert_contains(text, "lane 7: 2 KiB in 3, lane 9: 1 KiB in 1");
    assert_contains(text, "'warp'");
    assert_contains(text, "tie+0x20");
    assert_contains(text, "pinned host memory");
    assert_null(strstr(text, "leaks"));
    assert_null(strstr(text, " older than"));
    free(text);
    r->holders_age_ns = 3000000000;
    text = written(r, NULL, HD_REPORT_TEXT);
    assert_contains(text, "holders and lanes are 3 s older than the other figures");
    free(text);
    hdi_leaks none = {NULL, 0};
    text = written(r, &none, HD_REPORT_TEXT);
    assert_contains(text, "leaks       none");
    free(text);
    /* an unused device takes two lines */
    memset(&r->devices[0].stats, 0, sizeof r->devices[0].stats);
    r->devices[0].n_lanes = r->devices[0].n_holders = 0;
    r->n_devices = 1;
    text = written(r, NULL, HD_REPORT_TEXT);
    assert_contains(text, "  held      0 bytes");
    assert_null(strstr(text, "cached"));
    assert_null(strstr(text, "driver  "));
    free(text);
    free(r);
}

static void nothing_that_a_terminal_obeys_is_printed(void **state)
{
    (void)state;
    hdi_report *r = make_report();
    strcpy(r->program, "a\x1b[2Jb\nc");
    strcpy(r->devices[0].holders[0].label, "\xc2\x9b"
                                           /* a control character of two bytes, then a letter */
                                           "31m\r\xc3\xa9");
    strcpy(r->devices[0].name, "\x07\x7f");
    r->n_findings = r->findings = 1;
    strcpy(r->finding[0].text, "line\nbreak");
    char *text = written(r, NULL, HD_REPORT_TEXT);
    for (const char *c = text; *c; c++) {
        assert_true((unsigned char)*c >= ' ' || *c == '\n');
        assert_true(*c != 0x7f && !((unsigned char)c[0] == 0xc2 && ((unsigned char)c[1] & 0xe0) == 0x80));
    }
    assert_contains(text, "(a?[2Jb?c)");
    assert_contains(text, "'?31m?\xc3\xa9'");
    assert_contains(text, "line?break");
    free(text);
    char *json = written(r, NULL, HD_REPORT_JSON);
    assert_true(json_is_document(json));
    free(json);
    free(r);
}

static void texts_are_handed_out_as_far_as_there_is_room(void **state)
{
    (void)state;
    char out[8];
    size_t needed = 0;
    memset(out, 'x', sizeof out);
    hdi_report_hand_out("weft", 4, out, 8, &needed);
    assert_string_equal(out, "weft");
    assert_int_equal(needed, 5);
    memset(out, 'x', sizeof out);
    hdi_report_hand_out("weft", 4, out, 3, &needed);
    assert_string_equal(out, "we");
    assert_int_equal(out[3], 'x');
    hdi_report_hand_out("weft", 4, out, 1, NULL);
    assert_string_equal(out, "");
    hdi_report_hand_out("weft", 4, NULL, 0, &needed);
    assert_int_equal(needed, 5);
}

/* ---- holders ---- */

static void call_sites_have_names(void **state)
{
    (void)state;
    char site[HDI_SITE_BYTES];
    hdi_site_text(NULL, site);
    assert_string_equal(site, "unknown");
    hdi_site_text((const void *)(uintptr_t)0x1000, site);
    assert_string_equal(site, "0x1000");
    hdi_site_text((const char *)(uintptr_t)strtol + 3, site); /* in a library with symbols */
    assert_contains(site, "strtol");
    assert_contains(site, "+0x3");
    hdi_site_text((const char *)(uintptr_t)make_report + 5, site);
    assert_contains(site, "+0x");
}

static hd_buffer *allocate(hd_runtime *rt, int device, size_t bytes, const char *label)
{
    hd_buffer *b = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = label};
    assert_ok(hd_alloc_with(conf_default_lane(rt, device), bytes, &options, &b));
    return b;
}

static void the_line_of_holders_has_the_largest(void **state)
{
    (void)state;
    hd_runtime *rt = open_host("driver=host host_devices=2");
    char line[400];
    hdi_report_holders(rt, 0, line, sizeof line);
    assert_string_equal(line, "; holders: no buffer of the program");
    for (int i = 0; i < 8; i++) {
        char label[16];
        snprintf(label, sizeof label, "l%d", i);
        allocate(rt, 0, (size_t)(i + 1) * 1024, label);
        allocate(rt, 0, (size_t)(i + 1) * 1024, label);
    }
    allocate(rt, 1, 4096, "elsewhere");
    hdi_report_holders(rt, 0, line, sizeof line);
    assert_string_equal(
        line, "; holders: 'l7' 16 KiB in 2, 'l6' 14 KiB in 2, 'l5' 12 KiB in 2, 'l4' 10 KiB in 2, 'l3' 8 KiB in 2, "
              "3 others 12 KiB in 6");
    hdi_report_holders(rt, 1, line, sizeof line);
    assert_string_equal(line, "; holders: 'elsewhere' 4 KiB in 1");
    /* an entry that does not fit is left out as a whole */
    hdi_report_holders(rt, 0, line, 51);
    assert_string_equal(line, "; holders: 'l7' 16 KiB in 2, 'l6' 14 KiB in 2");
    hdi_report_holders(rt, 0, line, 1);
    assert_string_equal(line, "");
    hd_close(rt);
}

/* of this thread, since the maintenance thread walks, too, whenever it publishes a page */
static _Thread_local int walks;

void __real_hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context);
void __wrap_hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context);
void __wrap_hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context)
{
    walks++;
    __real_hdi_buffers_each(rt, visit, context);
}

/* Few buffers are visited each time, very many only now and then. */
static void very_many_are_not_walked_each_time(void **state)
{
    (void)state;
    hd_runtime *rt = open_host("driver=host host_devices=1");
    char line[400];
    walks = 0;
    allocate(rt, 0, 1024, "first");
    for (int i = 0; i < 10; i++) {
        hdi_report_holders(rt, 0, line, sizeof line);
    }
    assert_int_equal(walks, 10);
    for (int i = 0; i < 20000; i++) {
        allocate(rt, 0, 256, "more");
    }
    walks = 0;
    for (int i = 0; i < 200; i++) {
        hdi_report_holders(rt, 0, line, sizeof line);
        assert_contains(line, "'more' 4.8 MiB in 20000, 'first' 1 KiB in 1");
    }
    assert_true(walks < 100); /* a pause of the machine as long as 50 walks adds one walk */
    hd_close(rt);
}

static void leaks_are_told_apart_by_call_site(void **state)
{
    (void)state;
    hd_runtime *rt = open_host("driver=host host_devices=1");
    hd_buffer *a = NULL, *b = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = "same"};
    assert_ok(hd_alloc_with(conf_default_lane(rt, 0), 100, &options, &a));
    assert_ok(hd_alloc_with(conf_default_lane(rt, 0), 200, &options, &b));
    hdi_holder *list = NULL;
    size_t n = 0;
    assert_ok(hdi_holders_collect(rt, HDI_LEAKS, &list, &n));
    assert_int_equal(n, 2);
    assert_int_equal(list[0].bytes, 200);
    assert_int_equal(list[1].bytes, 100);
    free(list);
    assert_ok(hdi_holders_collect(rt, HDI_HOLDERS, &list, &n));
    assert_int_equal(n, 1);
    assert_int_equal(list[0].bytes, 300);
    free(list);
    hd_free(a);
    hd_free(b);
    assert_ok(hdi_holders_collect(rt, HDI_LEAKS, &list, &n));
    assert_int_equal(n, 0);
    assert_null(list);
    hd_close(rt);
}

/* ---- pages ---- */

/* Counts this process's reports, as others see them. */
static int count_pages(void)
{
    size_t needed = 0;
    hd_status status = hd_memory_report_of(getpid(), HD_REPORT_JSON, NULL, 0, &needed);
    if (status == HD_ERROR_NOT_FOUND) {
        return 0;
    }
    assert_ok(status);
    char *json = malloc(needed);
    assert_non_null(json);
    assert_ok(hd_memory_report_of(getpid(), HD_REPORT_JSON, json, needed, &needed));
    assert_true(json_is_document(json));
    int n = json_count_at(json, "programs");
    free(json);
    assert_ok(hd_memory_report_of(getpid(), HD_REPORT_TEXT, NULL, 0, &needed));
    return n;
}

static hdi_page *make_page(int *file, size_t bytes)
{
    *file = memfd_create(HDI_PAGE_NAME, MFD_CLOEXEC);
    assert_true(*file >= 0);
    assert_int_equal(ftruncate(*file, (off_t)bytes), 0);
    hdi_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

static void drop_page(hdi_page *page, int file)
{
    munmap(page, sizeof *page);
    close(file);
}

static void fill_page(hdi_page *page)
{
    hdi_report *r = make_report();
    r->pid = getpid();
    memset(page, 0, sizeof *page);
    page->magic = HDI_PAGE_MAGIC;
    page->version = HDI_PAGE_VERSION;
    page->bytes = sizeof *page;
    atomic_store(&page->published, 2);
    page->reports[0] = *r;
    memset(&page->reports[1], 0xff, sizeof page->reports[1]); /* still being written */
    free(r);
}

static void pages_with_anything_wrong_are_passed_over(void **state)
{
    (void)state;
    int file;
    hdi_page *page = make_page(&file, sizeof *page);
    assert_int_equal(count_pages(), 0); /* all zeros */
    fill_page(page);
    assert_int_equal(count_pages(), 1);

    hdi_report *r = &page->reports[0];
#define WRONG(change)                                                                                                  \
    fill_page(page);                                                                                                   \
    change;                                                                                                            \
    assert_int_equal(count_pages(), 0);
    WRONG(page->magic++)
    WRONG(page->version++)
    WRONG(page->bytes--)
    WRONG(atomic_store(&page->published, 3))
    WRONG(r->pid = getpid() + 1)
    WRONG(r->pid = 0)
    WRONG(r->n_devices = HDI_DEVICES_MAX + 2)
    WRONG(r->n_findings = HDI_REPORT_FINDINGS + 1)
    WRONG(r->n_claims = HDI_REPORT_CLAIMS + 1)
    WRONG(memset(r->version, 'x', sizeof r->version))
    WRONG(memset(r->program, 'x', sizeof r->program))
    WRONG(memset(r->driver, 'x', sizeof r->driver))
    WRONG(memset(r->placement, 'x', sizeof r->placement))
    WRONG(r->devices[1].device = HDI_DEVICES_MAX)
    WRONG(r->devices[1].device = -2)
    WRONG(r->devices[0].n_lanes = HDI_REPORT_LANES + 1)
    WRONG(r->devices[0].n_holders = UINT32_MAX)
    WRONG(memset(r->devices[0].name, 'x', sizeof r->devices[0].name))
    WRONG(memset(r->devices[0].holders[1].label, 'x', sizeof r->devices[0].holders[1].label))
    WRONG(memset(r->devices[0].holders[1].site, 'x', sizeof r->devices[0].holders[1].site))
    WRONG(r->n_findings = 1; memset(r->finding[0].text, 'x', sizeof r->finding[0].text))
    WRONG(r->n_claims = 1; memset(r->claim[0], 'x', sizeof r->claim[0]))
#undef WRONG
    fill_page(page);
    assert_int_equal(count_pages(), 1);
    /* the same file twice is the same runtime */
    int again = dup(file);
    assert_int_equal(count_pages(), 1);
    close(again);
    assert_int_equal(ftruncate(file, (off_t)sizeof *page - 1), 0);
    assert_int_equal(count_pages(), 0);
    assert_int_equal(ftruncate(file, (off_t)sizeof *page + 1), 0);
    assert_int_equal(count_pages(), 0);
    drop_page(page, file);
}

/* Reading any page ends well. */
static void garbage_is_survived(void **state)
{
    (void)state;
    int file;
    hdi_page *page = make_page(&file, sizeof *page);
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 300; round++) {
        fill_page(page);
        unsigned char *bytes = (unsigned char *)&page->reports[0];
        for (int i = 0; i < (round % 3 + 1) * 400; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* mostly in the first numbers, at times far behind */
            size_t reach = i % 2 ? sizeof page->reports[0] : 4000;
            bytes[random % reach] = (unsigned char)(random >> 40);
        }
        page->reports[0].pid = getpid();
        if (round % 2) { /* so that they pass the checks */
            page->reports[0].n_devices %= HDI_DEVICES_MAX + 2;
            page->reports[0].n_findings %= HDI_REPORT_FINDINGS + 1;
            page->reports[0].n_claims %= HDI_REPORT_CLAIMS + 1;
        }
        int n = count_pages();
        assert_true(n == 0 || n == 1);
    }
    drop_page(page, file);
}

static void a_published_page_is_sane(void **state)
{
    (void)state;
    hd_runtime *rt = open_host("driver=host host_devices=3 memory_debug=on");
    hd_buffer *b = allocate(rt, 1, 1000, "a label");
    hdi_page_publish(rt);
    hdi_report *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_ok(hdi_report_collect(rt, true, r));
    assert_true(hdi_report_is_sane(r));
    assert_int_equal(r->n_devices, 4);
    assert_int_equal(r->devices[1].n_holders, 1);
    assert_string_equal(r->devices[1].holders[0].label, "a label");
    assert_int_equal(r->debug, 1);
    free(r);
    assert_int_equal(count_pages(), 1);
    hd_free(b);
    hd_close(rt);
    assert_int_equal(count_pages(), 0);
}

/* A reader never sees halves of two different reports. */
typedef struct publisher {
    hdi_page *page;
    _Atomic bool stop;
} publisher;

/* Sets the first and the last figure of every device. */
static void set_figures(hdi_report *r, uint64_t n)
{
    for (uint32_t i = 0; i < r->n_devices; i++) {
        r->devices[i].stats.limit_bytes = n;
        r->devices[i].stats.overruns = n;
    }
}

static void *publish_all_the_time(void *context)
{
    publisher *p = context;
    for (uint64_t n = 3; !atomic_load(&p->stop); n++) {
        set_figures(&p->page->reports[n % 2], n);
        atomic_store_explicit(&p->page->published, n, memory_order_release);
        usleep(200); /* a program publishes a few times per second */
    }
    return NULL;
}

static void reports_are_never_torn(void **state)
{
    (void)state;
    int file;
    hdi_page *page = make_page(&file, sizeof *page);
    fill_page(page);
    set_figures(&page->reports[0], 2);
    page->reports[1] = page->reports[0];
    publisher p = {.page = page};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, publish_all_the_time, &p), 0);
    char *json = malloc(1 << 20);
    assert_non_null(json);
    int whole = 0;
    while (whole < 200) {
        size_t needed = 0;
        hd_status status = hd_memory_report_of(getpid(), HD_REPORT_JSON, json, 1 << 20, &needed);
        if (status == HD_ERROR_NOT_FOUND) {
            continue; /* it gave up, because each look came too late */
        }
        assert_ok(status);
        int64_t n = json_integer_at(json, "programs.0.devices.0.limit_bytes");
        assert_int_equal(json_integer_at(json, "programs.0.devices.0.overruns"), n);
        assert_int_equal(json_integer_at(json, "programs.0.devices.1.limit_bytes"), n);
        assert_int_equal(json_integer_at(json, "programs.0.devices.1.overruns"), n);
        whole++;
    }
    atomic_store(&p.stop, true);
    pthread_join(thread, NULL);
    free(json);
    drop_page(page, file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_short),
        cmocka_unit_test(json_has_every_figure),
        cmocka_unit_test(text_says_what_there_is),
        cmocka_unit_test(nothing_that_a_terminal_obeys_is_printed),
        cmocka_unit_test(texts_are_handed_out_as_far_as_there_is_room),
        cmocka_unit_test(call_sites_have_names),
        cmocka_unit_test(the_line_of_holders_has_the_largest),
        cmocka_unit_test(very_many_are_not_walked_each_time),
        cmocka_unit_test(leaks_are_told_apart_by_call_site),
        cmocka_unit_test(pages_with_anything_wrong_are_passed_over),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(a_published_page_is_sane),
        cmocka_unit_test(reports_are_never_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
