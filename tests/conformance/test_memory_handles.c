/* test_memory_handles.c - the option memory_debug: double frees, uses after a free, and the list of
 * leaks at the end.
 *
 * Promise: memory_debug reports double frees, late uses and leaks, nothing in a correct program.
 *
 * Threads: two that free the same handles.
 * Locks: none.
 * Always: a program without mistakes gets no finding.
 */
#include "debug.h"

/* ---- handles ---- */

static void a_double_free_is_found(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *b = labelled(lane, 4096, "twice");
    hd_free(b);
    hd_free(b);
    CONF_FAILS_WITH(HD_ERROR_HANDLE, HD_ERROR_HANDLE, "freed twice");
    CONF_TRUE(strstr(hd_message(), "'twice'") != NULL && strstr(hd_message(), "4 KiB") != NULL);
    CONF_EQUAL(stats_of(runtime, 0).double_frees, 1);

    /* also if others use its place meanwhile */
    hd_buffer *others[200];
    for (int i = 0; i < 200; i++) {
        others[i] = labelled(lane, 4096, "another");
    }
    leave_message();
    hd_free(b);
    CONF_FAILS_WITH(HD_ERROR_HANDLE, HD_ERROR_HANDLE, "freed twice");
    CONF_EQUAL(stats_of(runtime, 0).double_frees, 2);
    for (int i = 0; i < 200; i++) {
        CONF_EQUAL(hd_buffer_size(others[i]), 4096);
        hd_free(others[i]);
    }
    hd_memory_stats s = stats_of(runtime, 0);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.frees, 201);

    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 5000, &pinned));
    hd_free(pinned);
    hd_free(pinned);
    CONF_EQUAL(stats_of(runtime, HD_DEVICE_HOST).double_frees, 1);
    leave_message();
    hd_free(NULL);
    CONF_TRUE(message_is_left());
    conf_close(runtime);
}

typedef struct pair {
    hd_buffer **buffers;
    pthread_barrier_t *start;
} pair;

static void *free_all(void *context)
{
    pair *p = context;
    pthread_barrier_wait(p->start);
    for (int i = 0; i < 100; i++) {
        hd_free(p->buffers[i]);
    }
    return NULL;
}

static void of_two_frees_one_is_too_many(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    for (int round = 0; round < 5; round++) {
        hd_buffer *buffers[100];
        pthread_t thread[2];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 100; i++) {
            buffers[i] = labelled(lane, 300, "both");
        }
        pair p = {buffers, &start};
        for (int i = 0; i < 2; i++) {
            CONF_EQUAL(pthread_create(&thread[i], NULL, free_all, &p), 0);
        }
        for (int i = 0; i < 2; i++) {
            CONF_EQUAL(pthread_join(thread[i], NULL), 0);
        }
        pthread_barrier_destroy(&start);
        hd_memory_stats s = stats_of(runtime, 0);
        CONF_EQUAL(s.live_count, 0);
        /* if pinned memory got the structure in between, the report knows no more than the
         * handle */
        CONF_EQUAL(s.double_frees + stats_of(runtime, HD_DEVICE_HOST).double_frees, 100 * (round + 1));
        CONF_EQUAL(s.overruns, 0);
    }
    /* more than the report describes */
    char *json = json_of(runtime);
    CONF_EQUAL(json_integer_at(json, "findings_count"), 500);
    CONF_EQUAL(json_count_at(json, "findings"), 64);
    CONF_TRUE(json_text_is(json, "findings.63.kind", "double free"));
    free(json);
    conf_close(runtime);
}

static void a_freed_buffer_is_named_when_it_is_used(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    uint32_t word = 7;
    hd_buffer *b = labelled(lane, 4096, "gone");
    hd_free(b);
    CONF_FAILS_WITH(hd_read(b, 0, &word, 4), HD_ERROR_HANDLE, "'gone'");
    CONF_TRUE(strstr(hd_message(), "4 KiB on device 0") != NULL && strstr(hd_message(), "+0x") != NULL);
    CONF_FAILS_WITH(hd_write(b, 0, &word, 4), HD_ERROR_HANDLE, "'gone'");
    CONF_FAILS_WITH(conf_fill(lane, k, b, 0, 4, 1, NULL), HD_ERROR_HANDLE, "'gone'");
    CONF_EQUAL(word, 7);
    char *json = json_of(runtime);
    CONF_EQUAL(json_integer_at(json, "findings_count"), 3);
    CONF_TRUE(json_text_is(json, "findings.0.kind", "use after free"));
    free(json);
    conf_close(runtime);
}

static void without_the_option_handles_are_refused_as_well(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint32_t word = 7;
    hd_buffer *b = labelled(lane, 4096, "gone");
    hd_free(b);
    CONF_FAILS(hd_read(b, 0, &word, 4), HD_ERROR_HANDLE);
    CONF_FAILS(hd_free(b), HD_ERROR_HANDLE);
    CONF_EQUAL(stats_of(runtime, 0).double_frees, 0);
    CONF_EQUAL(stats_of(runtime, 0).frees, 1);
    conf_close(runtime);
}

/* ---- leaks ---- */

/* A runtime that writes its report into a file when it ends. Reading the file deletes it. */
typedef struct reporting {
    hd_runtime *runtime;
    char folder[32], path[64];
} reporting;

static reporting open_reporting(void)
{
    reporting r = {.folder = "/tmp/heddle-test-XXXXXX"};
    CONF_TRUE(mkdtemp(r.folder) != NULL);
    snprintf(r.path, sizeof r.path, "%s/report.json", r.folder);
    r.runtime = conf_open_with(DEBUG " stats=%s", r.path);
    return r;
}

static char *read_report(const reporting *r)
{
    FILE *file = fopen(r->path, "re");
    CONF_TRUE(file != NULL);
    char *text = conf_memory(1 << 20);
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    CONF_EQUAL(unlink(r->path), 0);
    CONF_EQUAL(rmdir(r->folder), 0);
    CONF_TRUE(json_is_document(text));
    return text;
}

static void leaks_are_listed_at_the_end(void **state)
{
    (void)state;
    reporting r = open_reporting();
    hd_lane *lane = conf_default_lane(r.runtime, 0);
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    hd_buffer *kept = NULL, *pinned = NULL, *held = labelled(lane, 777, "held");
    CONF_OK(hd_alloc_with(lane, 1000, &keep, &kept));
    CONF_OK(hd_alloc_host(r.runtime, 2000, &pinned));
    char content[1000] = "x";
    CONF_OK(hd_write(kept, 0, content, sizeof content));
    for (int i = 0; i < 5; i++) {
        labelled(lane, 300, "forgotten");
    }
    hd_hold *hold = NULL; /* freed by the program, so no leak */
    CONF_OK(hd_hold_create(r.runtime, &hold));
    CONF_OK(hd_hold_add(hold, held));
    hd_free(held);
    conf_close(r.runtime);
    CONF_TRUE(strstr(hd_message(), "7 buffers of 4.3 KiB") != NULL);

    char *text = read_report(&r);
    CONF_EQUAL(json_count_at(text, "leaks"), 3);
    CONF_EQUAL(json_integer_at(text, "leaks.0.device"), HD_DEVICE_HOST);
    CONF_EQUAL(json_integer_at(text, "leaks.0.bytes"), 2000);
    CONF_TRUE(json_text_is(text, "leaks.1.label", "forgotten"));
    CONF_EQUAL(json_integer_at(text, "leaks.1.bytes"), 1500);
    CONF_EQUAL(json_integer_at(text, "leaks.1.count"), 5);
    CONF_TRUE(json_text_is(text, "leaks.2.label", NULL));
    CONF_EQUAL(json_integer_at(text, "leaks.2.bytes"), 1000);
    const char *site = json_at(text, "leaks.2.call_site");
    CONF_TRUE(site != NULL && strstr(site, "+0x") != NULL);
    free(text);
}

static void without_leaks_there_is_nothing_to_say(void **state)
{
    (void)state;
    reporting r = open_reporting();
    hd_buffer *b = labelled(conf_default_lane(r.runtime, 0), 100, "freed");
    char content[100] = "x";
    CONF_OK(hd_write(b, 0, content, sizeof content));
    hd_free(b);
    leave_message();
    conf_close(r.runtime);
    CONF_TRUE(message_is_left());
    char *text = read_report(&r);
    CONF_EQUAL(json_count_at(text, "leaks"), 0);
    free(text);
}

int main(void)
{
    conf_begin("test_memory_handles");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_double_free_is_found),
        CONF_CASE(of_two_frees_one_is_too_many),
        CONF_CASE(a_freed_buffer_is_named_when_it_is_used),
        CONF_CASE(without_the_option_handles_are_refused_as_well),
        CONF_CASE(leaks_are_listed_at_the_end),
        CONF_CASE(without_leaks_there_is_nothing_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
