/* sort.c - sorts tables of a trace. Most are already sorted, or consist of a few sorted runs. See
 * parts.h.
 *
 * Threads, Locks: see model.h.
 */
#include <stdlib.h>
#include <string.h>
#include "cli/trace/parts.h"

typedef int (*comparison)(const void *a, const void *b);

/* Extends shorter rows to this length, one item at a time. */
enum { ROW_LEAST = 12, ITEM_MOST = 256 };

/* Sorts the first `end` items of a row. The first `sorted` of them are already sorted. */
static void trace_sort_insert_items(char *row, size_t sorted, size_t end, size_t item, comparison compare)
{
    char one[ITEM_MOST];
    for (size_t i = sorted; i < end; i++) {
        size_t at = i;
        while (at > 0 && compare(row + (at - 1) * item, row + i * item) > 0) {
            at--;
        }
        if (at < i) {
            memcpy(one, row + i * item, item);
            memmove(row + (at + 1) * item, row + at * item, (i - at) * item);
            memcpy(row + at * item, one, item);
        }
    }
}

/* Finds sorted rows: the begin of each, then the end of the last one. Returns their number. */
static size_t trace_sort_find_runs(char *items, size_t n, size_t item, comparison compare, size_t *begins)
{
    size_t rows = 0, at = 0;
    while (at < n) {
        size_t end = at + 1;
        while (end < n && compare(items + (end - 1) * item, items + end * item) <= 0) {
            end++;
        }
        size_t least = n - at < ROW_LEAST ? n - at : ROW_LEAST;
        if (end - at < least) {
            trace_sort_insert_items(items + at * item, end - at, least, item, compare);
            end = at + least;
        }
        begins[rows++] = at;
        at = end;
    }
    begins[rows] = n;
    return rows;
}

static void trace_sort_merge_rows(const char *a, size_t n_a, const char *b, size_t n_b, size_t item, comparison compare,
                                  char *out)
{
    const char *a_end = a + n_a * item, *b_end = b + n_b * item;
    while (a < a_end && b < b_end) {
        const char **least = compare(a, b) <= 0 ? &a : &b;
        memcpy(out, *least, item);
        *least += item;
        out += item;
    }
    memcpy(out, a, (size_t)(a_end - a));
    memcpy(out + (a_end - a), b, (size_t)(b_end - b));
}

static bool trace_sort_is_sorted(const char *items, size_t n, size_t item, comparison compare)
{
    for (size_t i = 1; i < n; i++) {
        if (compare(items + (i - 1) * item, items + i * item) > 0) {
            return false;
        }
    }
    return true;
}

/* Without memory for a second table the sort is slower. */
void trace_sort(void *items, size_t n, size_t item, comparison compare)
{
    if (trace_sort_is_sorted(items, n, item, compare)) {
        return;
    }
    size_t *begins = malloc((n / ROW_LEAST + 3) * sizeof *begins);
    char *spare = malloc(n * item), *from = items, *to = spare;
    if (!begins || !spare || item > ITEM_MOST) {
        qsort(items, n, item, compare);
        n = 0;
    }
    size_t rows = n > 0 ? trace_sort_find_runs(items, n, item, compare, begins) : 0;
    while (rows > 1) {
        size_t made = 0;
        for (size_t r = 0; r < rows; r += 2) {
            size_t begin = begins[r], middle = begins[r + 1], end = r + 2 <= rows ? begins[r + 2] : middle;
            trace_sort_merge_rows(from + begin * item, middle - begin, from + middle * item, end - middle, item,
                                  compare, to + begin * item);
            begins[made++] = begin;
        }
        begins[made] = n;
        rows = made;
        char *other = from;
        from = to;
        to = other;
    }
    if (n > 0 && from != (char *)items) {
        memcpy(items, from, n * item);
    }
    free(begins);
    free(spare);
}

/* A radix sort, from the lowest digit. Skips digits that are equal in all numbers. */
void trace_sort_times(int64_t *times, size_t n, int64_t *spare)
{
    enum { BITS = 11, PLACES = 1 << BITS };
    const uint64_t sign = UINT64_C(1) << 63; /* negative numbers come first */
    uint64_t all = ~UINT64_C(0), any = 0;
    int64_t *from = times, *to = spare;
    for (size_t i = 0; i < n; i++) {
        all &= (uint64_t)times[i];
        any |= (uint64_t)times[i];
    }
    for (unsigned low = 0; low < 64; low += BITS) {
        size_t place[PLACES] = {0}, sum = 0;
        if (((any ^ all) >> low & (PLACES - 1)) == 0) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            place[(((uint64_t)from[i] ^ sign) >> low) & (PLACES - 1)]++;
        }
        for (size_t i = 0; i < PLACES; i++) {
            size_t count = place[i];
            place[i] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) {
            to[place[(((uint64_t)from[i] ^ sign) >> low) & (PLACES - 1)]++] = from[i];
        }
        int64_t *other = from;
        from = to;
        to = other;
    }
    if (from != times) {
        memcpy(times, from, n * sizeof *times);
    }
}

int64_t trace_quantile(const int64_t *times, size_t n, double share)
{
    size_t at = (size_t)(share * (double)n);
    return n == 0 ? 0 : times[at < n ? at : n - 1];
}
