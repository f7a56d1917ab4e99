/* main.c - runs the kernels of tests/kernel/pairs, and compares their results with the expected
 * ones and between several sets.
 *
 * usage: pairs SET=FOLDER...    SET is a name for messages. FOLDER contains kernel files, such as
 *                               reductions.hdk, or nvcc's output, such as reductions.fatbin
 *                               (.cubin, .ptx)
 *        pairs --margins SET=FOLDER...
 *                               also prints how close each inexact kernel comes to its limit
 *        pairs --list           prints each kernel, its name in CUDA C++, and its allowed error
 *
 * It uses the first device that HEDDLE_DRIVER and HEDDLE_PLACEMENT ask for. Exit status: 0; 1 if a
 * result is wrong or a call failed. Results of exact kernels are the same bits in all sets. Other
 * results may differ from each other as much as each may differ from the expected one.
 *
 * Threads: one. Blocking: waits for each launch.
 */
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SETS_MOST = 4, FILES_MOST = 16 };

typedef struct loaded {
    const char *file;
    hd_module *module; /* NULL: loading failed, which was reported */
    bool cuda;         /* with the names of CUDA C++ */
} loaded;

typedef struct kernel_set {
    const char *name, *folder;
    loaded files[FILES_MOST];
    int n_files;
} kernel_set;

static hd_runtime *runtime;
static hd_lane *lane;
static kernel_set sets[SETS_MOST];
static int n_sets, failures;
static bool margins;

/* The arrays after one set's launch. */
typedef struct results {
    bool there;
    void *arrays[PAIRS_ARGUMENTS_MOST];
} results;

static bool failed_call(const kernel_set *set, const char *what, hd_status status)
{
    if (status != HD_OK) {
        printf("FAILED: set %s, %s: %s\n", set->name, what, hd_message());
        failures++;
    }
    return status != HD_OK;
}

/* ---- kernel files ---- */

static bool find_file(const kernel_set *set, const char *file, char *path, size_t room, bool *cuda)
{
    static const char *const suffixes[] = {"hdk", "fatbin", "cubin", "ptx"};
    struct stat facts;
    for (int i = 0; i < 4; i++) {
        *cuda = i > 0;
        snprintf(path, room, "%s/%s.%s", set->folder, file, suffixes[i]);
        if (stat(path, &facts) == 0) {
            return true;
        }
    }
    return false;
}

/* Loads a file at its first use. */
static const loaded *load(kernel_set *set, const char *file)
{
    for (int i = 0; i < set->n_files; i++) {
        if (strcmp(set->files[i].file, file) == 0) {
            return &set->files[i];
        }
    }
    loaded *f = &set->files[set->n_files++];
    char path[4096];
    f->file = file;
    if (!find_file(set, file, path, sizeof path, &f->cuda)) {
        printf("FAILED: set %s: there is no %s.hdk, .fatbin, .cubin or .ptx in %s\n", set->name, file, set->folder);
        failures++;
    } else {
        failed_call(set, file, hd_module_load_file(runtime, path, &f->module));
    }
    return f;
}

/* An image with a texture reference is refused, and the message names it. */
static void refuse_textures(kernel_set *set)
{
    char path[4096];
    bool cuda;
    hd_module *module = NULL;
    if (!find_file(set, "textures", path, sizeof path, &cuda)) {
        return;
    }
    hd_status status = hd_module_load_file(runtime, path, &module);
    if (status != HD_ERROR_IMAGE || strstr(hd_message(), "'picture'") == NULL) {
        printf("FAILED: set %s: %s is not refused because of its texture reference 'picture': %s\n", set->name, path,
               status == HD_OK ? "it was loaded" : hd_message());
        failures++;
    }
    hd_module_unload(module);
}

/* ---- a launch ---- */

static bool launch(kernel_set *set, hd_kernel *kernel, const char *name, pairs_launch *l, results *r)
{
    hd_arg args[PAIRS_ARGUMENTS_MOST];
    hd_buffer *buffers[PAIRS_ARGUMENTS_MOST] = {NULL};
    bool failed = false;
    for (size_t i = 0; i < l->n_arguments && !failed; i++) {
        const pairs_argument *a = &l->arguments[i];
        size_t bytes = a->count * pairs_type_bytes(a->type);
        args[i] = a->value;
        if (a->access != 0) {
            failed = failed_call(set, name, hd_alloc(lane, bytes + PAIRS_GUARD, &buffers[i])) ||
                     failed_call(set, name, hd_write(buffers[i], 0, a->before, bytes + PAIRS_GUARD));
            args[i] = hd_arg_buffer(buffers[i], (hd_access)a->access, 0, bytes);
        } else if (a->value.kind == HD_ARG_BYTES) {
            args[i].value.bytes = a->structure;
        }
    }
    failed = failed ||
             failed_call(set, name, hd_launch(lane, kernel, l->grid, l->block, l->shared, args, l->n_arguments, NULL));
    for (size_t i = 0; i < l->n_arguments; i++) {
        const pairs_argument *a = &l->arguments[i];
        size_t bytes = a->count * pairs_type_bytes(a->type) + PAIRS_GUARD;
        if (buffers[i] != NULL && !failed) {
            r->arrays[i] = malloc(bytes);
            failed = r->arrays[i] == NULL || failed_call(set, name, hd_read(buffers[i], 0, r->arrays[i], bytes));
        }
        hd_free(buffers[i]);
    }
    return !failed;
}

/* ---- comparing ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the elements as numbers, sorted if they may come in any order. The caller frees them. */
static double *numbers(const pairs_argument *a, const void *array)
{
    double *values = malloc((a->count + 1) * sizeof *values);
    if (values == NULL) {
        fprintf(stderr, "pairs: no memory\n");
        exit(2);
    }
    for (size_t i = 0; i < a->count; i++) {
        values[i] = pairs_get(a->type, array, i);
    }
    if (a->any_order) {
        qsort(values, a->count, sizeof *values, by_value);
    }
    return values;
}

static double limit_of(const pairs_row *row, const pairs_argument *a, double expected, size_t i)
{
    double limit = a->slack != NULL ? a->slack[i] : 0;
    return pairs_type_is_float(a->type) ? limit + row->absolute + row->relative * fabs(expected) : limit;
}

static bool is_within(double got, double expected, double limit)
{
    return got == expected || (isnan(got) && isnan(expected)) || fabs(got - expected) <= limit;
}

/* Reports the first element outside its limit, and the number of such elements. */
static void compare(const pairs_row *row, const char *set, const char *other, size_t argument, const pairs_argument *a,
                    const double *got, const double *expected)
{
    size_t wrong = 0, first = 0;
    double most = 0;
    for (size_t i = 0; i < a->count; i++) {
        double limit = limit_of(row, a, expected[i], i);
        if (!is_within(got[i], expected[i], limit)) {
            first = wrong++ == 0 ? i : first;
        }
        most = limit > 0 ? fmax(most, fabs(got[i] - expected[i]) / limit) : most;
    }
    if (margins && most > 0) {
        printf("%-16s argument %zu of %s, %s %.3f of the limit\n", row->kernel, argument, set,
               strcmp(other, "expected") == 0 ? "takes" : "differs from another set by", most);
    }
    if (wrong > 0) {
        printf("FAILED: kernel '%s' of set %s, argument %zu, index %zu: got %.9g, %s %.9g (limit %.3g: %s; %zu of %zu "
               "are wrong)\n",
               row->kernel, set, argument, first, got[first], other, expected[first],
               limit_of(row, a, expected[first], first), row->because, wrong, a->count);
        failures++;
    }
}

static void check_against_expected(const pairs_row *row, const kernel_set *set, const pairs_launch *l, const results *r)
{
    for (size_t i = 0; i < l->n_arguments; i++) {
        const pairs_argument *a = &l->arguments[i];
        if (a->access == 0) {
            continue;
        }
        size_t bytes = a->count * pairs_type_bytes(a->type);
        double *got = numbers(a, r->arrays[i]);
        if (a->expected != NULL) {
            if (a->any_order) {
                qsort(a->expected, a->count, sizeof *a->expected, by_value);
            }
            compare(row, set->name, "expected", i, a, got, a->expected);
        }
        size_t from = a->expected != NULL ? bytes : 0;
        if (memcmp((char *)r->arrays[i] + from, (char *)a->before + from, bytes + PAIRS_GUARD - from) != 0) {
            printf("FAILED: kernel '%s' of set %s, argument %zu: bytes that no kernel writes have changed\n",
                   row->kernel, set->name, i);
            failures++;
        }
        free(got);
    }
}

static bool is_exact(const pairs_row *row, const pairs_argument *a)
{
    return a->slack == NULL && !a->any_order && (!pairs_type_is_float(a->type) || row->absolute + row->relative == 0);
}

static void check_sets(const pairs_row *row, const pairs_launch *l, const results *r, int one, int other)
{
    char what[128];
    snprintf(what, sizeof what, "set %s has", sets[one].name);
    for (size_t i = 0; i < l->n_arguments; i++) {
        const pairs_argument *a = &l->arguments[i];
        if (a->expected == NULL) {
            continue;
        }
        double *x = numbers(a, r[one].arrays[i]), *y = numbers(a, r[other].arrays[i]);
        compare(row, sets[other].name, what, i, a, y, x);
        if (is_exact(row, a) &&
            memcmp(r[one].arrays[i], r[other].arrays[i], a->count * pairs_type_bytes(a->type)) != 0) {
            printf("FAILED: kernel '%s', argument %zu: sets %s and %s differ in their bits\n", row->kernel, i,
                   sets[one].name, sets[other].name);
            failures++;
        }
        free(x);
        free(y);
    }
}

static void run_row(const pairs_row *row)
{
    pairs_launch l = {.random = 1};
    results r[SETS_MOST];
    memset(r, 0, sizeof r);
    row->make(&l);
    for (int i = 0; i < n_sets; i++) {
        const loaded *f = load(&sets[i], row->file);
        const char *name = f->cuda && row->cuda != NULL ? row->cuda : row->kernel;
        hd_kernel *kernel;
        if (f->module == NULL || failed_call(&sets[i], name, hd_kernel_get(f->module, name, &kernel))) {
            continue;
        }
        r[i].there = launch(&sets[i], kernel, name, &l, &r[i]);
        if (r[i].there) {
            check_against_expected(row, &sets[i], &l, &r[i]);
        }
        for (int j = 0; j < i; j++) {
            if (r[i].there && r[j].there) {
                check_sets(row, &l, r, j, i);
            }
        }
    }
    for (int i = 0; i < n_sets; i++) {
        for (size_t j = 0; j < l.n_arguments; j++) {
            free(r[i].arrays[j]);
        }
    }
    pairs_release(&l);
}

static int list(void)
{
    for (int i = 0; pairs_all[i] != NULL; i++) {
        for (const pairs_row *row = pairs_all[i]; row->file != NULL; row++) {
            printf("%-11s %-18s %-50s %-8.3g %-8.3g %s\n", row->file, row->kernel, row->cuda ? row->cuda : row->kernel,
                   row->absolute, row->relative, row->because);
        }
    }
    return 0;
}

static bool read_sets(int argc, char **argv)
{
    margins = argc > 1 && strcmp(argv[1], "--margins") == 0;
    for (int i = margins ? 2 : 1; i < argc; i++) {
        char *folder = strchr(argv[i], '=');
        if (folder == NULL || n_sets == SETS_MOST) {
            return false;
        }
        *folder = 0;
        sets[n_sets].name = argv[i];
        sets[n_sets++].folder = folder + 1;
    }
    return n_sets > 0;
}

int main(int argc, char **argv)
{
    int kernels = 0;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        return list();
    }
    if (!read_sets(argc, argv)) {
        fprintf(stderr, "usage: pairs SET=FOLDER..., %d at most, or pairs --list\n", SETS_MOST);
        return 2;
    }
    if (hd_open(NULL, &runtime) != HD_OK || hd_lane_get_default(runtime, 0, &lane) != HD_OK) {
        printf("FAILED: %s\n", hd_message());
        return 1;
    }
    for (int i = 0; pairs_all[i] != NULL; i++) {
        for (const pairs_row *row = pairs_all[i]; row->file != NULL; row++) {
            run_row(row);
            kernels++;
        }
    }
    for (int i = 0; i < n_sets; i++) {
        refuse_textures(&sets[i]);
    }
    if (hd_close(runtime) != HD_OK) {
        printf("FAILED: %s\n", hd_message());
        failures++;
    }
    printf("%d kernels in", kernels);
    for (int i = 0; i < n_sets; i++) {
        printf(" %s", sets[i].name);
    }
    printf(": %d failures\n", failures);
    return failures > 0;
}
