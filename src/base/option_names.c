/* option_names.c - names that are no options: which option was meant, and the one line about the environment's.
 *
 * Threads: any; the environment may not change meanwhile (as with getenv). Locks: none. Always: at most one line in a process.
 */
#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "base/write.h"

extern char **environ;

enum { NAME_BYTES = 64, LINE_BYTES = 1024 };
static const char prefix[] = "HEDDLE_";
#define PREFIX_BYTES (sizeof prefix - 1)

/* What begins like an option and is none: the tool's own variables and those of the tests and scripts around it. A name that ends with _ stands
 * for all that begin so. */
static const char *const known[] = {
    "HEDDLE_INCLUDE_DIR",
    "HEDDLE_BUILD",
    "HEDDLE_CAPTURES",
    "HEDDLE_COMMIT",
    "HEDDLE_ENDURANCE_ROUNDS",
    "HEDDLE_FAILURE_OPERATIONS",
    "HEDDLE_FAULT_ROUNDS",
    "HEDDLE_GRAPHS",
    "HEDDLE_MODEL_SEEDS",
    "HEDDLE_MODEL_STEPS",
    "HEDDLE_ONLY_GRAPH",
    "HEDDLE_ONLY_PAIR",
    "HEDDLE_PAIR_MS",
    "HEDDLE_PEER_ALLOCATOR",
    "HEDDLE_REUSES",
    "HEDDLE_SEED",
    "HEDDLE_SHARED_LIBRARY",
    "HEDDLE_SOURCE",
    "HEDDLE_STRESS_SECONDS",
    "HEDDLE_SWEEP_SECONDS",
    "HEDDLE_TEST_",
    "HEDDLE_TOOL",
};

/* Number of single-character edits between two short words; capitals and small letters are the same. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES];
    size_t n = strlen(b);
    if (n >= NAME_BYTES) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t changed = diagonal + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            diagonal = row[j];
            size_t shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            row[j] = changed < shorter + 1 ? changed : shorter + 1;
        }
    }
    return row[n];
}

const hdi_option_row *hdi_option_nearest(const char *name)
{
    const hdi_option_row *nearest = NULL;
    size_t best = SIZE_MAX;
    for (int i = 0; hdi_option_row_at(i) != NULL; i++) {
        const hdi_option_row *row = hdi_option_row_at(i);
        size_t d = distance(name, row->name);
        if (d < best) {
            best = d;
            nearest = row;
        }
    }
    return nearest != NULL && best <= 1 + strlen(nearest->name) / 3 ? nearest : NULL;
}

const hdi_option_row *hdi_option_without_prefix(const char *name)
{
    if (strncasecmp(name, prefix, PREFIX_BYTES) != 0) {
        return NULL;
    }
    const hdi_option_row *row = hdi_option_nearest(name + PREFIX_BYTES);
    return row != NULL && strcasecmp(row->environment, name) == 0 ? row : NULL;
}

static bool is_known(const char *name)
{
    for (int i = 0; hdi_option_row_at(i) != NULL; i++) {
        if (strcmp(name, hdi_option_row_at(i)->environment) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (known[i][n - 1] == '_' ? strncmp(name, known[i], n) == 0 : strcmp(name, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The name of a variable that is set, begins like an option's, and is none. What is no word is no spelling mistake. */
static bool is_unknown(const char *variable, char name[NAME_BYTES])
{
    size_t n = strcspn(variable, "=");
    if (n >= NAME_BYTES || strncmp(variable, prefix, PREFIX_BYTES) != 0 || variable[n] == '\0' ||
        variable[n + 1] == '\0') {
        return false;
    }
    memcpy(name, variable, n);
    name[n] = '\0';
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == n && !is_known(name);
}

size_t hdi_option_unknown_variables(char **environment, char *out, size_t room)
{
    static const char end[] = ": ignored. HEDDLE_ENVIRONMENT_CHECK=off hides this line.\n";
    char name[NAME_BYTES];
    size_t length = 0;
    int found = 0, left_out = 0;
    for (char **variable = environment; variable != NULL && *variable != NULL; variable++) {
        if (!is_unknown(*variable, name)) {
            continue;
        }
        char hint[NAME_BYTES + 32] = "";
        const hdi_option_row *row = hdi_option_nearest(name + PREFIX_BYTES);
        if (row != NULL) {
            snprintf(hint, sizeof hint, " (did you mean %s?)", row->environment);
        }
        if (length + strlen(name) + strlen(hint) + sizeof end + 64 > room) {
            left_out++;
            continue;
        }
        length += (size_t)snprintf(out + length, room - length, "%s%s%s",
                                   found++ == 0 ? "heddle: there is no option " : ", ", name, hint);
    }
    if (found == 0) {
        return 0;
    }
    if (left_out > 0) {
        length += (size_t)snprintf(out + length, room - length, " and %d more", left_out);
    }
    return length + (size_t)snprintf(out + length, room - length, "%s", end);
}

void hdi_option_check_environment(void)
{
    static atomic_bool done;
    char line[LINE_BYTES];
    if (getauxval(AT_SECURE) != 0 || atomic_exchange_explicit(&done, true, memory_order_relaxed)) {
        return;
    }
    size_t length = hdi_option_unknown_variables(environ, line, sizeof line);
    if (length > 0) {
        hdi_write_quietly(STDERR_FILENO, line, length, hdi_clock_ns()); /* a pipe that is full does not get it */
    }
}
