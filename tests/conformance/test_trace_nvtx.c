/* test_trace_nvtx.c - ranges that a program names by NVTX: a client of the protocol, and NVIDIA's
 * header if it is installed.
 *
 * Promise: A trace records NVTX ranges: nested per thread, or started and ended in any threads.
 *
 * Nesting holds also if domains cross.
 *
 * Placements: inline.
 * Threads: the main one, and one that ends a range. Locks: none.
 */
#include "folder.h"

#include <pthread.h>
#include <wchar.h>
#include "record/format.h"
#include "trace/nvtx.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#define NVTX_STATIC_INJECTION_IMPL
extern int (*InitializeInjectionNvtx2_fnptr)(const void *(*)(uint32_t));
#include <nvtx3/nvToolsExt.h>
int (*InitializeInjectionNvtx2_fnptr)(const void *(*)(uint32_t)) = InitializeInjectionNvtx2;
#define HAVE_NVTX 1
#endif

static char file_path[128];

/* ---- a client: tables of two modules ---- */

typedef void (*function)(void);
static function calls[2][16];
static function *tables[2][16];

static int table_of_module(int module, function ***out, unsigned *entries)
{
    int n = module == 1 ? 0 : module == 5 ? 1 : -1;
    for (int i = 0; n >= 0 && i < 16; i++) {
        tables[n][i] = &calls[n][i];
    }
    *out = n >= 0 ? tables[n] : NULL;
    *entries = n >= 0 ? 16 : 0;
    return n >= 0;
}

static const void *table_of(uint32_t table)
{
    static const struct {
        size_t size;
        int (*of)(int module, function ***out, unsigned *entries);
    } callbacks = {sizeof callbacks, table_of_module};
    return table == 1 ? &callbacks : NULL;
}

static const void *no_table(uint32_t table)
{
    (void)table;
    return NULL;
}

static int push_a(const char *text)
{
    return ((int (*)(const char *))calls[0][9])(text);
}

static int pop(void)
{
    return ((int (*)(void))calls[0][11])();
}

/* ---- reading: ranges as "push a", "pop a" in a line ---- */

static void append_name(char *line, size_t room, const hdi_record *records, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i++) {
        const hdi_record *r = &records[i];
        if (r->type == HDI_RECORD_NAME && r->kind == HDI_RECORD_NAME_RANGE && r->name.number == number) {
            for (size_t p = 1; p <= r->texts; p++) {
                size_t length = strlen(line);
                snprintf(line + length, room - length, "%.*s", records[i + p].text.bytes, records[i + p].text.text);
            }
            return;
        }
    }
}

static uint64_t start_a(const char *text)
{
    return ((uint64_t(*)(const char *))calls[0][5])(text);
}

static void end_id(uint64_t id)
{
    ((void (*)(uint64_t))calls[0][7])(id);
}

static void expect(const char *expected)
{
    static char line[2048];
    FILE *in = fopen(file_path, "rb");
    CONF_TRUE(in != NULL);
    static hdi_record records[4096];
    size_t n = fread(records, sizeof records[0], 4096, in);
    fclose(in);
    line[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const hdi_record *r = &records[i];
        if (r->type == HDI_RECORD_PUSH || r->type == HDI_RECORD_POP) {
            CONF_EQUAL(r->kind, 1);
            strcat(line, r->type == HDI_RECORD_PUSH ? "+" : "-");
            append_name(line, sizeof line, records, n, r->range.name);
            strcat(line, " ");
        }
        if (r->type == HDI_RECORD_INTERVAL) {
            CONF_EQUAL(r->kind, 1);
            CONF_TRUE(r->time <= r->interval.ended);
            strcat(line, r->thread == r->interval.began_by ? "=" : "~"); /* ~: two threads */
            append_name(line, sizeof line, records, n, r->interval.name);
            strcat(line, " ");
        }
    }
    assert_string_equal(line, expected);
}

static hd_runtime *start(void)
{
    snprintf(file_path, sizeof file_path, "%s/t", folder);
    hd_runtime *runtime = conf_open(NULL);
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    return runtime;
}

static void stop(hd_runtime *runtime)
{
    CONF_OK(hd_trace_stop(runtime, NULL));
    conf_close(runtime);
}

static void ranges_of_a_client_are_recorded(void **state)
{
    (void)state;
    CONF_EQUAL(InitializeInjectionNvtx2(no_table), 0);
    CONF_EQUAL(InitializeInjectionNvtx2(table_of), 1);
    CONF_EQUAL(push_a("before"), 0); /* without a trace: neither it nor its end is recorded */
    hd_runtime *runtime = start();
    CONF_EQUAL(push_a("a"), 1);
    CONF_EQUAL(((int (*)(const wchar_t *))calls[0][10])(L"w\u00e4\u20ac"), 2);
    CONF_EQUAL(pop(), 2);
    CONF_EQUAL(pop(), 1);
    CONF_EQUAL(pop(), 0);
    pop();                          /* one too many */
    for (int i = 0; i < 100; i++) { /* deeper than the recorder keeps */
        push_a("deep");
    }
    for (int i = 0; i < 100; i++) {
        CONF_EQUAL(pop(), 99 - i);
    }
    stop(runtime);
    char expected[2048] = "+a +w\u00e4\u20ac -w\u00e4\u20ac -a ";
    for (int i = 0; i < 128; i++) {
        strcat(expected, i < 64 ? "+deep " : "-deep ");
    }
    expect(expected);
}

static void domains_may_cross(void **state)
{
    (void)state;
#ifdef HAVE_NVTX
    nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateW(L"two");
    nvtxEventAttributes_t a = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(one, "x");
    hd_runtime *runtime = start();
    CONF_EQUAL(nvtxDomainRangePushEx(one, &a), 0);
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = "y";
    CONF_EQUAL(nvtxDomainRangePushEx(two, &a), 1);
    nvtxDomainRangePop(one);
    nvtxDomainRangePop(two);
    nvtxRangePushA("plain");
    nvtxRangePop();
    stop(runtime);
    expect("+one: x +two: y -two: y -one: x +two: y -two: y +plain -plain ");
#else
    test_without("NVTX's header");
    skip();
#endif
}

static void several_runtimes_and_a_child(void **state)
{
    (void)state;
    CONF_EQUAL(InitializeInjectionNvtx2(table_of), 1);
    hd_runtime *first = start();
    char other[160];
    snprintf(other, sizeof other, "%s/s", folder);
    hd_runtime *second = conf_open(NULL);
    push_a("early");
    CONF_OK(hd_trace_start(second, other, NULL));
    push_a("late");
    pid_t child = fork();
    if (child == 0) {
        push_a("of the child");
        pop();
        _exit(0);
    }
    int status = -1;
    CONF_EQUAL(waitpid(child, &status, 0), child);
    CONF_EQUAL(status, 0);
    pop();
    pop();
    stop(second);
    stop(first);
    expect("+early +late -late -early ");
    strcpy(file_path, other);
    expect("+late -late ");
}

/* A euro takes 3 bytes: 149 of them fit into the 448 of a name. */
static void a_long_name_ends_with_a_whole_character(void **state)
{
    (void)state;
    enum { LENGTH = 300 };
    static wchar_t wide[LENGTH + 1];
    static char narrow[3 * LENGTH + 1], expected[2048];
    for (int i = 0; i < LENGTH; i++) {
        wide[i] = L'\u20ac';
        memcpy(narrow + 3 * i, "\xe2\x82\xac", 3);
    }
    hd_runtime *runtime = start();
    push_a(narrow);
    pop();
    ((int (*)(const wchar_t *))calls[0][10])(wide);
    pop();
    stop(runtime);
    snprintf(expected, sizeof expected, "+%.447s -%.447s +%.447s -%.447s ", narrow, narrow, narrow, narrow);
    expect(expected);
}

static void *ends(void *id)
{
    end_id(*(uint64_t *)id);
    return NULL;
}

static void started_ranges_may_overlap(void **state)
{
    (void)state;
    CONF_EQUAL(InitializeInjectionNvtx2(table_of), 1);
    CONF_EQUAL(start_a("before"), 0); /* without a trace: as without a tool */
    hd_runtime *runtime = start();
    end_id(0);
    uint64_t a = start_a("a"), w = ((uint64_t(*)(const wchar_t *))calls[0][6])(L"w\u00e4"), open = start_a("open");
    CONF_TRUE(a && w && open && a != w && w != open && a != open);
    push_a("nested");
    end_id(a);
    end_id(a); /* no range any more */
    pop();
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, ends, &w), 0);
    pthread_join(thread, NULL);
    CONF_OK(hd_trace_stop(runtime, NULL));
    end_id(open);
    char first[sizeof file_path];
    strcpy(first, file_path);
    snprintf(file_path, sizeof file_path, "%s/s", folder);
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    end_id(open); /* which began before this trace */
    end_id(start_a("later"));
    stop(runtime);
    expect("=later ");
    strcpy(file_path, first);
    expect("+nested =a -nested ~w\u00e4 ");
}

static void started_ranges_of_domains(void **state)
{
    (void)state;
#ifdef HAVE_NVTX
    nvtxDomainHandle_t one = nvtxDomainCreateA("one");
    nvtxEventAttributes_t a = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = "x";
    hd_runtime *runtime = start();
    nvtxRangeId_t of_domain = nvtxDomainRangeStartEx(one, &a), plain = nvtxRangeStartEx(&a);
    nvtxDomainRangeEnd(one, of_domain);
    nvtxRangeEnd(plain);
    stop(runtime);
    expect("=one: x =x ");
#else
    test_without("NVTX's header");
    skip();
#endif
}

static void started_ranges_without_room_are_counted(void **state)
{
    (void)state;
    enum { ROOM = 512 };
    CONF_EQUAL(InitializeInjectionNvtx2(table_of), 1);
    hd_runtime *runtime = start();
    uint64_t first = start_a("first");
    for (int i = 1; i < ROOM; i++) {
        CONF_TRUE(start_a("many") != 0);
    }
    CONF_EQUAL(start_a("none"), 0);
    end_id(first);
    end_id(start_a("again"));
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_stop(runtime, &info));
    CONF_EQUAL(info.dropped, 1);
    expect("=first =again ");
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    end_id(start_a("new")); /* ranges of the trace before take no room */
    stop(runtime);
    expect("=new ");
}

int main(void)
{
    conf_begin("test_trace_nvtx");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(ranges_of_a_client_are_recorded),
        FOLDER_CASE(domains_may_cross),
        FOLDER_CASE(several_runtimes_and_a_child),
        FOLDER_CASE(a_long_name_ends_with_a_whole_character),
        FOLDER_CASE(started_ranges_may_overlap),
        FOLDER_CASE(started_ranges_of_domains),
        FOLDER_CASE(started_ranges_without_room_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
