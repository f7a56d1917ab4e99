/* options.c - parses the one table of options (HDI_OPTION_MAP in options.h), and reports names that
 * are no options.
 *
 * Threads: hdi_options_parse and hdi_option_check_environment run in hd_open. They read the
 * environment, which no thread may change meanwhile (as with secure_getenv). A parsed table is
 * read-only. Locks: none.
 * Always: in a parsed table every option contains a text, and a field that agrees with it. A
 * process prints at most one line about its environment.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file.h"
#include "base/options.h"
#include "base/spelling.h"
#include "base/wait.h"

typedef enum kind { CHOICE, INTEGER, BYTES, AMOUNT, TEXT } kind;

typedef struct entry {
    hdi_option_row row;
    kind kind;
    size_t offset;          /* of the field in hdi_options */
    const char *low, *high; /* the limits, as a user writes them */
} entry;

#define WORD(option, name, text, meaning) "|" text
#define LIMITS_CHOICE(low_, high_) .row.choices = &(low_(WORD))[1], .row.meanings = &(low_(HDI_OPTION_MEANING))[2]
#define LIMITS_INTEGER(low_, high_) .low = (low_), .high = (high_)
#define LIMITS_BYTES(low_, high_) .low = (low_), .high = (high_)
#define LIMITS_AMOUNT(low_, high_) .low = (low_), .high = (high_)
#define LIMITS_TEXT(low_, high_) .low = NULL, .high = NULL
#define KIND_CHOICE "choice"
#define KIND_INTEGER "integer"
#define KIND_BYTES "bytes"
#define KIND_AMOUNT "amount"
#define KIND_TEXT "text"

static const entry table[] = {
#define ENTRY(field, env, kind_, def, low_, high_, help_)                                                              \
    {.row.name = #field,                                                                                               \
     .row.environment = (env),                                                                                         \
     .row.default_text = (def),                                                                                        \
     .row.help = HDI_OPTION_HELP(kind_, low_, high_, help_),                                                           \
     .row.kind = KIND_##kind_,                                                                                         \
     .kind = (kind_),                                                                                                  \
     .offset = offsetof(hdi_options, field),                                                                           \
     LIMITS_##kind_(low_, high_)},
    HDI_OPTION_MAP(ENTRY)
#undef ENTRY
};

enum { COUNT = sizeof table / sizeof table[0] };
_Static_assert(COUNT <= sizeof((hdi_options *)0)->text / sizeof(char *),
               "hdi_options.text has a place for each option");

const hdi_option_row *hdi_option_row_at(int index)
{
    return index >= 0 && index < COUNT ? &table[index].row : NULL;
}

/* ---- names that are no options: suggestions ---- */

enum { NAME_BYTES = HDI_OPTION_NAME, LINE_BYTES = 1024 };
static const char prefix[] = "HEDDLE_";
#define PREFIX_BYTES (sizeof prefix - 1)

/* The option whose name differs from `name` by a few letters only; NULL: none. */
static const hdi_option_row *option_nearest(const char *name)
{
    const hdi_option_row *nearest = NULL;
    size_t best = SIZE_MAX;
    for (int i = 0; hdi_option_row_at(i) != NULL; i++) {
        const hdi_option_row *row = hdi_option_row_at(i);
        size_t d = hdi_spelling_distance(name, row->name);
        if (d < best) {
            best = d;
            nearest = row;
        }
    }
    return nearest != NULL && hdi_spelling_is_near(best, nearest->name) ? nearest : NULL;
}

/* The option whose variable in the environment is `name`; NULL: none. */
static const hdi_option_row *option_without_prefix(const char *name)
{
    if (strncasecmp(name, prefix, PREFIX_BYTES) != 0) {
        return NULL;
    }
    const hdi_option_row *row = option_nearest(name + PREFIX_BYTES);
    return row != NULL && strcasecmp(row->environment, name) == 0 ? row : NULL;
}

/* ---- former names ---- */

/* Options of release 0.2 that have other names and words now. Release 0.4 drops them. */
static const struct former {
    const char *name, *environment, *now;
    struct {
        const char *word, *now;
    } words[2];
} former_options[] = {
    {"queues", "HEDDLE_QUEUES", "hw_queues", {{NULL, NULL}}},
    {"modules", "HEDDLE_MODULES", "module_loading", {{"used", "lazy"}, {"all", "eager"}}},
};
enum { FORMER = sizeof former_options / sizeof former_options[0] };

static int option_index(const char *name)
{
    int index = 0;
    while (index < COUNT && strcmp(name, table[index].row.name) != 0) {
        index++;
    }
    return index;
}

static const struct former *option_former(const char *name)
{
    for (int i = 0; i < FORMER; i++) {
        if (strcmp(name, former_options[i].name) == 0) {
            return &former_options[i];
        }
    }
    return NULL;
}

static const char *option_former_word(const struct former *f, const char *value)
{
    for (int i = 0; i < 2 && f->words[i].word != NULL; i++) {
        if (strcmp(value, f->words[i].word) == 0) {
            return f->words[i].now;
        }
    }
    return value;
}

/* Options of release 0.2 that are gone. Settings may name them until release 0.4, without effect,
 * so that compiled programs go on. */
static bool option_is_gone(const char *name)
{
    return strcmp(name, "chain_memory") == 0 || strcmp(name, "trace_memory") == 0;
}

/* ---- parsing ---- */

static bool option_is_separator(char c)
{
    return isspace((unsigned char)c) || c == ',';
}

static hd_status option_fail_unknown(const char *name)
{
    const hdi_option_row *row = option_without_prefix(name);
    if (row != NULL) {
        return hdi_fail(HD_ERROR_OPTION, "there is no option \"%.64s\"; in settings it is called \"%s\"", name,
                        row->name);
    }
    row = option_nearest(name);
    if (row != NULL) {
        return hdi_fail(HD_ERROR_OPTION, "there is no option \"%.64s\"; did you mean \"%s\"?", name, row->name);
    }
    return hdi_fail(HD_ERROR_OPTION, "there is no option \"%.64s\"; `heddle info` and hd_option_get_info list all",
                    name);
}

/* The index of `value` among the words in "a|b|c"; -1: none of them. */
static int option_choice_of(const char *choices, const char *value)
{
    size_t length = strlen(value);
    const char *word = choices;
    for (int i = 0;; i++) {
        size_t word_length = strcspn(word, "|");
        if (word_length == length && memcmp(word, value, length) == 0) {
            return i;
        }
        if (word[word_length] == '\0') {
            return -1;
        }
        word += word_length + 1;
    }
}

/* Parses a whole number in decimal. False: the text is no such number, or it is too large. */
static bool option_parse_integer(const char *value, int64_t *out)
{
    char *end;
    if (isspace((unsigned char)value[0])) {
        return false;
    }
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || errno != 0 || *end != '\0') {
        return false;
    }
    *out = number;
    return true;
}

/* The power of two of a unit ("", "K", "MB", "GiB", ...); -1: the text is no unit. */
static int option_unit_shift(const char *unit)
{
    static const char letters[] = "kmgt";
    if (unit[0] == 0) {
        return 0;
    }
    const char *letter = strchr(letters, tolower((unsigned char)unit[0]));
    const char *rest = unit + 1;
    rest += (rest[0] == 'i' || rest[0] == 'I') && rest[1] != 0; /* "iB", never "i" alone */
    rest += rest[0] == 'b' || rest[0] == 'B';
    return letter && rest[0] == 0 ? (int)(letter - letters + 1) * 10 : -1;
}

/* Parses a number of bytes: "4096", "32M", "32MB", "32MiB", "1.5G". All spellings of K, M, G and T
 * mean powers of 1024. Capitals and small letters are the same. A fraction of a byte is dropped.
 * False: the text is no number, a fraction without a unit, or 2^63 or more. */
static bool option_parse_bytes(const char *text, int64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1; /* part / scale */
    const char *begin = text;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (whole > (UINT64_MAX - 9) / 10) {
            return false;
        }
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    bool digits = text != begin, fraction = *text == '.';
    text += fraction;
    for (; fraction && *text >= '0' && *text <= '9'; text++) {
        digits = true;
        /* all further digits amount to less than a byte */
        if (scale < UINT64_C(1000000000000000000)) {
            part = part * 10 + (uint64_t)(*text - '0');
            scale *= 10;
        }
    }
    int shift = option_unit_shift(text);
    if (!digits || shift < 0 || (fraction && shift == 0)) {
        return false;
    }
    unsigned __int128 bytes = ((unsigned __int128)whole << shift) + ((unsigned __int128)part << shift) / scale;
    if (bytes > INT64_MAX) {
        return false;
    }
    *out = (int64_t)bytes;
    return true;
}

/* One value for one option, as the program or its user wrote it. */
typedef struct setting {
    const entry *e;
    const struct former *former; /* NULL: the name is not a former one */
    /* the name of the variable, if the value comes from the environment */
    const char *name;
    const char *value;
    hd_option_source source;
} setting;

/* Fails. The message shows name and value as they were written. */
static hd_status __attribute__((format(printf, 2, 3))) option_refuse(const setting *s, const char *format, ...)
{
    char problem[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    bool variable = s->source == HD_OPTION_FROM_ENVIRONMENT;
    return hdi_fail(HD_ERROR_OPTION, "hd_open: option %s=%s: %s%s%s%s", s->name, s->value, problem,
                    s->former != NULL ? "; " : "",
                    s->former == NULL ? ""
                    : variable        ? s->e->row.environment
                                      : s->e->row.name,
                    s->former != NULL ? " is its name now" : "");
}

/* The number that a limit in the table stands for. */
static int64_t option_limit(const entry *e, const char *text)
{
    int64_t limit = 0;
    (void)(e->kind == INTEGER ? option_parse_integer(text, &limit) : option_parse_bytes(text, &limit));
    return limit;
}

static hd_status option_parse_number(const setting *s, int64_t *out)
{
    const entry *e = s->e;
    bool power_of_two = strcmp(e->row.name, "lane_slots") == 0;
    int64_t number;
    bool parsed = e->kind == INTEGER ? option_parse_integer(s->value, &number) : option_parse_bytes(s->value, &number);
    if (parsed && number >= option_limit(e, e->low) && number <= option_limit(e, e->high) &&
        (!power_of_two || (number & (number - 1)) == 0)) {
        *out = number;
        return HD_OK;
    }
    if (e->kind != INTEGER) {
        return option_refuse(
            s, "must be a number of bytes from %s to %s, such as 1536M, 1536MiB or 1.5G (powers of 1024)%s", e->low,
            e->high, e->kind == AMOUNT ? ", or a share such as 80%" : "");
    }
    return option_refuse(s, "must be %s from %s to %s", power_of_two ? "a power of two" : "a whole number", e->low,
                         e->high);
}

/* Parses "80%" as a share, anything else as bytes. */
static hd_status option_parse_amount(const setting *s, hdi_option_AMOUNT *out)
{
    const char *value = s->value;
    size_t length = strlen(value);
    if (length == 0 || value[length - 1] != '%') {
        out->share = 0;
        return option_parse_number(s, &out->bytes);
    }
    char *end = NULL;
    errno = 0;
    double percent = strtod(value, &end);
    bool digits = strspn(value, "0123456789.") == length - 1;
    if (!digits || errno != 0 || end != value + length - 1 || !(percent > 0 && percent <= 100)) {
        return option_refuse(s, "a share must be above 0%% and at most 100%%");
    }
    *out = (hdi_option_AMOUNT){.share = percent / 100};
    return HD_OK;
}

/* Gives the option its value. A failure leaves `out` unchanged. */
static hd_status option_set(hdi_options *out, const setting *s)
{
    const entry *e = s->e;
    const char *value = s->former != NULL ? option_former_word(s->former, s->value) : s->value;
    size_t index = (size_t)(e - table);
    void *field = (char *)out + e->offset;
    int64_t number = 0;
    int choice = e->kind == CHOICE ? option_choice_of(e->row.choices, value) : 0;
    hdi_option_AMOUNT amount = {0};
    hd_status status = HD_OK;
    if (e->kind == INTEGER || e->kind == BYTES) {
        status = option_parse_number(s, &number);
    } else if (e->kind == AMOUNT) {
        status = option_parse_amount(s, &amount);
    } else if (choice < 0) {
        return option_refuse(s, "must be one of %s (%s)", e->row.choices, e->row.meanings);
    }
    if (status != HD_OK) {
        return status;
    }

    char *text = strdup(value);
    if (text == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the options");
    }
    free(out->text[index]);
    out->text[index] = text;
    out->is_default[index] = strcmp(text, e->row.default_text) == 0;
    out->source[index] = s->source;
    if (e->kind == INTEGER || e->kind == BYTES) {
        *(int64_t *)field = number;
    } else if (e->kind == AMOUNT) {
        *(hdi_option_AMOUNT *)field = amount;
    } else if (e->kind == CHOICE) {
        *(int *)field = choice;
    } else {
        *(const char **)field = text;
    }
    return HD_OK;
}

/* Reads the next "name=value" of a settings string. `copy` is as long as the string and receives
 * name and value, unquoted. *at moves behind the setting. At the end of the string *name is
 * NULL. */
static hd_status option_next_setting(const char **at, char *copy, char **name, char **value)
{
    const char *s = *at;
    while (option_is_separator(*s)) {
        s++;
    }
    *name = *value = NULL;
    if (*s == '\0') {
        *at = s;
        return HD_OK;
    }
    const char *start = s;
    char *to = copy;
    while (*s != '\0' && *s != '=' && !option_is_separator(*s)) {
        *to++ = *s++;
    }
    *to++ = '\0';
    if (*s != '=' || s == start) {
        return hdi_fail(HD_ERROR_OPTION,
                        "settings: expected name=value at \"%.40s\"; put a value that holds blanks or commas "
                        "in quotes: name=\"...\"",
                        start);
    }
    s++;
    *value = to;
    if (*s == '"') {
        const char *end = strchr(s + 1, '"');
        if (end == NULL || (end[1] != '\0' && !option_is_separator(end[1]))) {
            return hdi_fail(HD_ERROR_OPTION, "settings: the quotes at \"%.40s\" %s", start,
                            end == NULL ? "are not closed" : "must hold the whole value");
        }
        memcpy(to, s + 1, (size_t)(end - s - 1));
        to += end - s - 1;
        s = end + 1;
    } else {
        while (*s != '\0' && !option_is_separator(*s)) {
            *to++ = *s++;
        }
    }
    *to = '\0';
    *name = copy;
    *at = s;
    return HD_OK;
}

static hd_status options_apply_settings(const char *settings, hdi_options *out)
{
    char *copy = malloc(strlen(settings) + 2);
    if (copy == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the options");
    }
    hd_status status;
    for (;;) {
        char *name, *value;
        status = option_next_setting(&settings, copy, &name, &value);
        if (status != HD_OK || name == NULL) {
            break;
        }
        const struct former *f = option_former(name);
        int index = option_index(f != NULL ? f->now : name);
        if (index < COUNT) {
            status = option_set(out, &(setting){&table[index], f, name, value, HD_OPTION_FROM_SETTINGS});
        } else if (!option_is_gone(name)) {
            status = option_fail_unknown(name);
        }
        if (status != HD_OK) {
            break;
        }
    }
    free(copy);
    return status;
}

static hd_status options_parse(const char *settings, bool environment, hdi_options *out)
{
    hdi_options options;
    memset(&options, 0, sizeof options);
    hd_status status = HD_OK;
    for (int i = 0; i < COUNT && status == HD_OK; i++) {
        const hdi_option_row *row = &table[i].row;
        status =
            option_set(&options, &(setting){&table[i], NULL, row->name, row->default_text, HD_OPTION_FROM_DEFAULT});
    }
    for (int i = 0; environment && i < FORMER && status == HD_OK; i++) {
        const struct former *f = &former_options[i];
        const char *value = secure_getenv(f->environment);
        if (value != NULL && value[0] != '\0') {
            const entry *e = &table[option_index(f->now)];
            status = option_set(&options, &(setting){e, f, f->environment, value, HD_OPTION_FROM_ENVIRONMENT});
        }
    }
    for (int i = 0; environment && i < COUNT && status == HD_OK; i++) {
        /* an empty variable counts as not set */
        const char *value = secure_getenv(table[i].row.environment);
        if (value != NULL && value[0] != '\0') {
            const char *name = table[i].row.environment;
            status = option_set(&options, &(setting){&table[i], NULL, name, value, HD_OPTION_FROM_ENVIRONMENT});
        }
    }
    if (status == HD_OK && settings != NULL) {
        status = options_apply_settings(settings, &options);
    }
    if (status != HD_OK) {
        hdi_options_release(&options);
        return status;
    }
    *out = options;
    return HD_OK;
}

hd_status hdi_options_parse(const char *settings, hdi_options *out)
{
    return options_parse(settings, true, out);
}

hd_status hdi_options_parse_settings(const char *settings, hdi_options *out)
{
    return options_parse(settings, false, out);
}

void hdi_options_release(hdi_options *options)
{
    for (int i = 0; i < COUNT; i++) {
        free(options->text[i]);
    }
    memset(options, 0, sizeof *options);
}

bool hdi_options_format(const hdi_options *options, char *out, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < COUNT; i++) {
        const char *text = options->text[i];
        if (strcmp(table[i].row.name, "worker") == 0) {
            continue;
        }
        if (strchr(text, '"')) {
            return false;
        }
        int n = snprintf(out + used, bytes - used, "%s=\"%s\" ", table[i].row.name, text);
        if (n < 0 || (size_t)n >= bytes - used) {
            return false;
        }
        used += (size_t)n;
    }
    return true;
}

/* ---- variables of the environment that are no options ---- */

/* Names that begin like the variables of options, but are none: variables of the tool, and of the
 * tests and scripts around it. A name that ends with _ stands for all names with that prefix. */
static const char *const known[] = {
    "HEDDLE_INCLUDE_DIR",
    "HEDDLE_CCFLAGS", /* variables of heddle.mk, which make exports */
    "HEDDLE_DEPENDS",
    "HEDDLE_BUILD",
    "HEDDLE_AROUND_ROUNDS",
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
    "HEDDLE_REFUSED_ROUNDS",
    "HEDDLE_SEED",
    "HEDDLE_SHARED_LIBRARY",
    "HEDDLE_SOURCE",
    "HEDDLE_STRESS_SECONDS",
    "HEDDLE_SWEEP_SECONDS",
    "HEDDLE_TEST_",
    "HEDDLE_TOOL",
};

static bool option_is_known(const char *name)
{
    for (int i = 0; hdi_option_row_at(i) != NULL; i++) {
        if (strcmp(name, hdi_option_row_at(i)->environment) == 0) {
            return true;
        }
    }
    for (int i = 0; i < FORMER; i++) {
        if (strcmp(name, former_options[i].environment) == 0) {
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

bool hdi_option_is_unknown(const char *variable, char name[HDI_OPTION_NAME], const hdi_option_row **meant)
{
    size_t n = strcspn(variable, "=");
    *meant = NULL;
    if (n >= NAME_BYTES || strncmp(variable, prefix, PREFIX_BYTES) != 0 || variable[n] == '\0' ||
        variable[n + 1] == '\0') {
        return false;
    }
    memcpy(name, variable, n);
    name[n] = '\0';
    if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != n || option_is_known(name)) {
        return false;
    }
    *meant = option_nearest(name + PREFIX_BYTES);
    return true;
}

size_t hdi_option_unknown_variables(char **environment, char *out, size_t room)
{
    static const char end[] = ": ignored. HEDDLE_ENVIRONMENT_CHECK=off hides this line.\n";
    char name[NAME_BYTES];
    size_t length = 0;
    int found = 0, left_out = 0;
    for (char **variable = environment; variable != NULL && *variable != NULL; variable++) {
        const hdi_option_row *row;
        if (!hdi_option_is_unknown(*variable, name, &row)) {
            continue;
        }
        char hint[NAME_BYTES + 32] = "";
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
        /* if a pipe is full, the line is dropped */
        hdi_write_quietly(STDERR_FILENO, line, length, hdi_clock_ns());
    }
}
