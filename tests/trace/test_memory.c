/* test_memory.c - the memory of buffers, and its labels.
 *
 * Promise: Buffers count under their current label from ALLOC to FREE, even with disordered times.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include "cli/trace/output.h"

static trace t;

#define US 1000
#define LABELS TWO_DEVICES "name label 8 halo\nop 0.1:1 launch at=0 span=3-50 done=51\n"

static const trace_label *label(const char *name)
{
    for (size_t i = 0; i < t.n_labels; i++) {
        if (strcmp(trace_name(&t, t.labels[i].label), name) == 0) {
            return &t.labels[i];
        }
    }
    return NULL;
}

/* Returns the bytes of a label at a time, as the page sums them; NULL: of all labels. */
static int64_t held(const char *name, int64_t us)
{
    int64_t sum = 0;
    for (size_t i = 0; i < t.n_memory && t.memory[i].time <= us * US; i++) {
        const trace_memory *m = &t.memory[i];
        bool is = m->counts && (!name || strcmp(trace_name(&t, m->label), name) == 0);
        sum += !is ? 0 : m->is_alloc ? (int64_t)m->bytes : -(int64_t)m->bytes;
    }
    return sum;
}

static void test_relabel(void **state)
{
    (void)state;
    scene_read(LABELS "alloc 1 at=5 bytes=100 label=7 rungs=3 took=2\n"
                      "alloc 2 at=6 bytes=50 label=8\n"
                      "relabel 1 at=10 bytes=100 label=8 thread=6\n"
                      "free 1 at=20 label=8\n"
                      "end at=60\n",
               &t);
    assert_int_equal(held("weights", 9), 100);
    assert_int_equal(held("weights", 10), 0);
    assert_int_equal(held("halo", 10), 150);
    assert_int_equal(held("halo", 20), 50);
    assert_int_equal(held(NULL, 10), 150);
    assert_int_equal(label("weights")->peak, 100);
    assert_int_equal(label("weights")->allocs, 1);
    assert_int_equal(label("weights")->frees, 0);
    assert_int_equal(label("weights")->beyond, 1);
    assert_int_equal(label("weights")->left, 0);
    assert_int_equal(label("halo")->peak, 150);
    assert_int_equal(label("halo")->allocs, 1);
    assert_int_equal(label("halo")->named, 1);
    assert_int_equal(label("halo")->frees, 1);
    assert_int_equal(label("halo")->beyond, 0);
    assert_int_equal(label("halo")->left, 50);
    /* at the peak of all memory, the buffer counts under its label of that time */
    assert_int_equal(label("weights")->at_peak, 0);
    assert_int_equal(label("halo")->at_peak, 150);
    for (size_t i = 0; i < t.n_memory; i++) { /* the allocation shows the holder */
        if (t.memory[i].renames && t.memory[i].is_alloc) {
            assert_int_equal(t.memory[i].since, 5 * US);
            assert_int_equal(t.memory[i].thread, 5);
            assert_int_equal(t.memory[i].rungs, 3);
        }
    }
    trace_release(&t);
}

/* A label that only the FREE states. A buffer older than the trace, whose number is reused. */
static void test_what_is_missing(void **state)
{
    (void)state;
    scene_read(LABELS "alloc 1 at=5 bytes=100\nfree 1 at=20 label=7\n"
                      "relabel 2 at=6 bytes=30 label=8\nfree 2 at=8 label=8\n"
                      "alloc 2 at=9 bytes=40 label=8\n"
                      "alloc 3 at=10 bytes=7 rungs=32\n"
                      "end at=60\n",
               &t);
    assert_int_equal(held("weights", 6), 100);
    assert_int_equal(label("weights")->peak, 100);
    assert_int_equal(held("halo", 8), 0);
    assert_int_equal(label("halo")->peak, 40);
    assert_int_equal(label("halo")->named, 0);
    assert_int_equal(held(NULL, 60), 40);
    trace_release(&t);
}

/* One thread frees a buffer, and another gets its number, with times in the wrong order. A single
 * thread's times may be, too. */
static void test_out_of_order(void **state)
{
    (void)state;
    scene_read(LABELS "alloc 1 at=5 bytes=100 label=7 thread=5\n"
                      "free 1 at=10.2 label=7 thread=5\n"
                      "alloc 1 at=10.1 bytes=60 label=8 thread=6\n"
                      "free 1 at=20 label=8 thread=6\n"
                      "alloc 2 at=30.2 bytes=9 label=7 thread=5\n"
                      "relabel 2 at=30.1 bytes=9 label=8 thread=5\n"
                      "free 2 at=30 label=8 thread=5\n"
                      "end at=60\n",
               &t);
    assert_int_equal(label("weights")->peak, 100);
    assert_int_equal(label("weights")->left, 0);
    assert_int_equal(label("halo")->peak, 60);
    assert_int_equal(label("halo")->left, 0);
    assert_int_equal(label("halo")->frees, 2);
    assert_int_equal(held(NULL, 15), 60);
    assert_int_equal(held(NULL, 60), 0);
    trace_release(&t);
}

static char *text_of(bool all)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    trace_put_text(&t, all, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* Memory in the device's figures that no label covers. */
static void test_rest(void **state)
{
    (void)state;
    scene_read(LABELS "alloc 1 at=5 bytes=41943040 label=7\n"
                      "memory 0 at=4 use=65012224 held=67108864 limit=67108864\n"
                      "memory 0 at=6 use=65011712 held=67108864 limit=67108864\n"
                      "free 1 at=20 label=7\n"
                      "memory 0 at=30 use=23068672 held=67108864 limit=67108864\n"
                      "end at=60\n",
               &t);
    assert_int_equal(t.devices[0].in_use_most, 65012224); /* most of it existed before the trace */
    assert_int_equal(t.devices[0].in_use_rest, 23068672);
    assert_int_equal(t.devices[1].in_use_rest, 0);
    trace_release(&t);
    /* an older buffer is freed, and the next figure comes late */
    scene_read(LABELS "memory 0 at=4 use=65011712 held=67108864 limit=67108864\n"
                      "free 9 at=5 bytes=41943040\n"
                      "alloc 1 at=6 bytes=41943040 label=7\n"
                      "free 1 at=20 label=7\n"
                      "end at=60\n",
               &t);
    assert_int_equal(t.devices[0].in_use_most, 65011712);
    assert_int_equal(t.devices[0].in_use_rest, 23068672);
    char *text = text_of(true);
    assert_non_null(strstr(text, "device 0, the rest: 22 MiB of 62 MiB at most, older than the trace"));
    free(text);
    trace_release(&t);
    /* the trace contains all buffers; the only figure counts the memory that a thread keeps after
     * freeing them */
    scene_read(LABELS "alloc 1 at=5 bytes=41943040 label=7\n"
                      "free 1 at=20 label=7\n"
                      "memory 0 at=30 use=1048576 held=67108864 limit=67108864\n"
                      "end at=60\n",
               &t);
    assert_int_equal(t.devices[0].in_use_most, 41943040);
    assert_int_equal(t.devices[0].in_use_rest, 0);
    trace_release(&t);
    /* kept memory is reused until the next figure */
    scene_read(LABELS "alloc 1 at=5 bytes=20971520 label=7\n"
                      "memory 0 at=10 use=23068672 held=67108864 limit=67108864\n"
                      "alloc 2 at=15 bytes=4194304 label=7\n"
                      "end at=60\n",
               &t);
    assert_int_equal(t.devices[0].in_use_most, 25165824);
    assert_int_equal(t.devices[0].in_use_rest, 0);
    trace_release(&t);
}

/* Counts a text in bytes. */
static size_t times_in(const char *bytes, size_t n, const char *text)
{
    size_t length = strlen(text), found = 0;
    for (size_t i = 0; i + length <= n; i++) {
        found += memcmp(bytes + i, text, length) == 0;
    }
    return found;
}

/* The viewer shows a stack of frames for an allocation, a segment and a block: all labels in order.
 * A free shows the last label. */
static void test_snapshot(void **state)
{
    (void)state;
    scene_read(LABELS "alloc 1 at=5 bytes=100\n"
                      "alloc 2 at=5 bytes=50 label=7\n"
                      "alloc 3 at=5 bytes=20\n"
                      "relabel 1 at=6 bytes=100 label=8\n"
                      "relabel 2 at=6 bytes=50 label=8\n"
                      "relabel 1 at=7 bytes=100 label=8\n"
                      "relabel 1 at=8 bytes=100 label=7\n"
                      "free 2 at=9 label=8\n"
                      "end at=60\n",
               &t);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    trace_export_snapshot(&t, out);
    assert_int_equal(fclose(out), 0);
    /* the name of a frame, and the bytes up to the name of the next one */
    const char halo[] = "X\4\0\0\0halo", weights[] = "X\7\0\0\0weights", next[] = "ua}(X\10\0\0\0filename";
    size_t rows[2] = {0, 0}; /* stacks with halo above weights, and with weights above halo */
    for (size_t i = 0; i + 64 <= bytes; i++) {
        bool is_halo = memcmp(text + i, halo, sizeof halo - 1) == 0;
        bool is_weights = memcmp(text + i, weights, sizeof weights - 1) == 0;
        if (is_halo || is_weights) {
            size_t length = is_halo ? sizeof halo - 1 : sizeof weights - 1;
            rows[is_weights] += memcmp(text + i + length, next, sizeof next - 1) == 0;
        }
    }
    /* buffer 1: segment_alloc and alloc, the segment that is left, and its block */
    assert_int_equal(rows[0], 4);
    /* buffer 2: segment_alloc and alloc */
    assert_int_equal(rows[1], 2);
    assert_int_equal(times_in(text, bytes, "halo"), 4 + 2 + 3); /* and those of its free */
    assert_int_equal(times_in(text, bytes, "(no label)"), 4);   /* buffer 3 */
    free(text);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relabel), cmocka_unit_test(test_what_is_missing),
                                       cmocka_unit_test(test_out_of_order), cmocka_unit_test(test_rest),
                                       cmocka_unit_test(test_snapshot)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
