/* snapshot.c - stores the facts of snapshot.h, hides data that identifies an owner, and writes and
 * reads the JSON.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/snapshot.h"

#include <ctype.h>
#include <heddle.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/json_read.h"
#include "cli/process.h"

enum { PLAIN_BYTES = 32, HASH_BYTES = 18, BUCKETS_FIRST = 256 };

/* ---- the table ---- */

static uint64_t doctor_snapshot_hash_text(const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    }
    return h;
}

/* Returns the key's slot in the index, or the free slot for it. */
static size_t doctor_snapshot_slot_of(const doctor_snapshot *s, const char *key)
{
    size_t at = (size_t)doctor_snapshot_hash_text(key, strlen(key)) & (s->buckets - 1);
    while (s->index[at] && strcmp(s->list[s->index[at] - 1].key, key) != 0) {
        at = (at + 1) & (s->buckets - 1);
    }
    return at;
}

static void doctor_snapshot_grow_index(doctor_snapshot *s)
{
    size_t room = s->room ? 2 * s->room : BUCKETS_FIRST / 2;
    doctor_fact *list = cli_allocate(room * sizeof(*list));
    if (s->n) {
        memcpy(list, s->list, s->n * sizeof(*list));
    }
    free(s->list);
    free(s->index);
    s->list = list;
    s->room = room;
    s->buckets = 2 * room;
    s->index = cli_allocate(s->buckets * sizeof(*s->index));
    memset(s->index, 0, s->buckets * sizeof(*s->index));
    for (size_t i = 0; i < s->n; i++) {
        s->index[doctor_snapshot_slot_of(s, s->list[i].key)] = i + 1;
    }
}

const doctor_fact *doctor_find(const doctor_snapshot *s, const char *key)
{
    size_t position = s->buckets ? s->index[doctor_snapshot_slot_of(s, key)] : 0;
    return position ? &s->list[position - 1] : NULL;
}

void doctor_release(doctor_snapshot *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->list[i].key);
        free(s->list[i].value);
        free(s->list[i].reason);
    }
    free(s->list);
    free(s->index);
    memset(s, 0, sizeof(*s));
}

/* ---- values ---- */

bool doctor_is_uuid(const char *at)
{
    for (int i = 0; i < DOCTOR_UUID_BYTES; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? at[i] != '-' : !isxdigit((unsigned char)at[i])) {
            return false;
        }
    }
    return true;
}

/* Returns the length of the UUID that begins here; 0: no UUID begins here. A UUID without dashes
 * counts only if no further hexadecimal digit stands next to it. */
static size_t doctor_snapshot_uuid_length(const char *at, bool first)
{
    size_t digits = strspn(at, "0123456789abcdefABCDEF");
    return doctor_is_uuid(at) ? DOCTOR_UUID_BYTES : first && digits == PLAIN_BYTES ? PLAIN_BYTES : 0;
}

/* Makes one line of at most DOCTOR_VALUE_BYTES, with a hash in place of each UUID. Delimiters
 * around the hash keep it separate from a UUID next to it. */
static char *doctor_snapshot_clean_value(const char *value)
{
    char text[DOCTOR_VALUE_BYTES];
    const char *begin = value;
    size_t used = 0;
    while (*value && used + HASH_BYTES + 1 < sizeof(text)) {
        size_t length = doctor_snapshot_uuid_length(value, value == begin || !isxdigit((unsigned char)value[-1]));
        if (length) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "#%016" PRIx64 "#",
                                     doctor_snapshot_hash_text(value, length));
            value += length;
        } else {
            text[used++] = isprint((unsigned char)*value) ? *value : '?';
            value++;
        }
    }
    text[used] = 0;
    return cli_format("%s", text);
}

static bool doctor_snapshot_is_key(const char *key)
{
    size_t length = strlen(key);
    return length > 0 && length < DOCTOR_KEY_BYTES &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == length;
}

/* Sets a fact, or the reason why it is missing; the other argument is NULL. */
static void doctor_snapshot_set_fact(doctor_snapshot *s, const char *key, const char *value, const char *reason)
{
    if (!doctor_snapshot_is_key(key) || (s->n == DOCTOR_FACTS_MAX && !doctor_find(s, key))) {
        return;
    }
    if (s->n == s->room) {
        doctor_snapshot_grow_index(s);
    }
    size_t slot = doctor_snapshot_slot_of(s, key);
    if (s->index[slot]) {
        doctor_fact *f = &s->list[s->index[slot] - 1];
        if (!f->value && value) {
            f->value = doctor_snapshot_clean_value(value);
            free(f->reason);
            f->reason = NULL;
        }
        return;
    }
    s->list[s->n++] = (doctor_fact){cli_format("%s", key), value ? doctor_snapshot_clean_value(value) : NULL,
                                    value ? NULL : doctor_snapshot_clean_value(reason)};
    s->index[slot] = s->n;
}

void doctor_put(doctor_snapshot *s, const char *value, const char *key, ...)
{
    char text[DOCTOR_KEY_BYTES];
    va_list arguments;
    va_start(arguments, key);
    vsnprintf(text, sizeof(text), key, arguments);
    va_end(arguments);
    doctor_snapshot_set_fact(s, text, value, NULL);
}

void doctor_put_number(doctor_snapshot *s, long long value, const char *key, ...)
{
    char whole[DOCTOR_KEY_BYTES], text[32];
    va_list arguments;
    va_start(arguments, key);
    vsnprintf(whole, sizeof(whole), key, arguments);
    va_end(arguments);
    snprintf(text, sizeof(text), "%lld", value);
    doctor_snapshot_set_fact(s, whole, text, NULL);
}

void doctor_miss(doctor_snapshot *s, const char *reason, const char *key, ...)
{
    char text[DOCTOR_KEY_BYTES];
    va_list arguments;
    va_start(arguments, key);
    vsnprintf(text, sizeof(text), key, arguments);
    va_end(arguments);
    doctor_snapshot_set_fact(s, text, NULL, reason);
}

void doctor_add_all(doctor_snapshot *s, const doctor_snapshot *other)
{
    for (size_t i = 0; i < other->n; i++) {
        doctor_snapshot_set_fact(s, other->list[i].key, other->list[i].value, other->list[i].reason);
    }
}

int doctor_gpus(const doctor_snapshot *s)
{
    const doctor_fact *f = doctor_find(s, "gpus");
    long n = f && f->value ? strtol(f->value, NULL, 10) : 0;
    return n < 0 ? 0 : n > DOCTOR_GPUS_MAX ? DOCTOR_GPUS_MAX : (int)n;
}

/* ---- JSON ---- */

/* True if the text is a whole number in its usual form. */
static bool doctor_snapshot_is_whole_number(const char *text, long long *out)
{
    char again[32];
    *out = strtoll(text, NULL, 10);
    snprintf(again, sizeof(again), "%lld", *out);
    return strcmp(text, again) == 0;
}

static bool doctor_snapshot_is_count(const char *text)
{
    long long n;
    return doctor_snapshot_is_whole_number(text, &n) && n >= 0 && n <= DOCTOR_GPUS_MAX;
}

void doctor_write(const doctor_snapshot *s, FILE *out)
{
    hdi_json j;
    long long number;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    hdi_json_key(&j, "heddle_snapshot");
    hdi_json_integer(&j, 1);
    hdi_json_key(&j, "version");
    hdi_json_string(&j, hd_version());
    for (int missing = 0; missing < 2; missing++) {
        hdi_json_key(&j, missing ? "missing" : "facts");
        hdi_json_object(&j);
        for (size_t i = 0; i < s->n; i++) {
            const doctor_fact *f = &s->list[i];
            const char *text = missing ? f->reason : f->value;
            if (text) {
                hdi_json_key(&j, f->key);
                (void)(!missing && doctor_snapshot_is_whole_number(text, &number) ? hdi_json_integer(&j, number)
                                                                                  : hdi_json_string(&j, text));
            }
        }
        hdi_json_object_end(&j);
    }
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}

/* Reads "facts" or "missing". */
static bool doctor_snapshot_read_members(doctor_snapshot *s, const hdi_json_value *object, bool missing, char *error)
{
    if (object && object->kind != HDI_JSON_OBJECT) {
        snprintf(error, DOCTOR_ERROR_BYTES, "line %d: \"%s\" is no object", object->line,
                 missing ? "missing" : "facts");
        return false;
    }
    for (const hdi_json_value *v = object ? object->first : NULL; v; v = v->next) {
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)v->integer);
        const char *text = v->is_integer && !missing ? number : v->text;
        const char *wrong = !doctor_snapshot_is_key(v->key)      ? "is no name of a fact"
                            : doctor_find(s, v->key)             ? "is there twice"
                            : !text                              ? "is neither text nor a whole number"
                            : s->n == DOCTOR_FACTS_MAX           ? "is one fact too many"
                            : strlen(text) >= DOCTOR_VALUE_BYTES ? "is too long"
                                                                 : NULL;
        if (wrong) {
            snprintf(error, DOCTOR_ERROR_BYTES, "line %d: \"%.60s\" %s", v->line,
                     doctor_snapshot_is_key(v->key) ? v->key : "", wrong);
            return false;
        }
        if (strcmp(v->key, "gpus") == 0 && !missing && !doctor_snapshot_is_count(text)) {
            snprintf(error, DOCTOR_ERROR_BYTES, "line %d: \"gpus\" is no number of devices from 0 to %d", v->line,
                     DOCTOR_GPUS_MAX);
            return false;
        }
        doctor_snapshot_set_fact(s, v->key, missing ? NULL : text, missing ? text : NULL);
    }
    return true;
}

bool doctor_read(doctor_snapshot *s, const char *text, size_t bytes, char error[DOCTOR_ERROR_BYTES])
{
    hdi_json_tree tree;
    error[0] = 0;
    if (!hdi_json_read(text, bytes, &tree)) {
        snprintf(error, DOCTOR_ERROR_BYTES, "%s", tree.error);
        return false;
    }
    const hdi_json_value *format = hdi_json_member(tree.root, "heddle_snapshot");
    const hdi_json_value *facts = hdi_json_member(tree.root, "facts");
    bool good = false;
    if (!format || !format->is_integer) {
        snprintf(error, DOCTOR_ERROR_BYTES, "it is no snapshot: \"heddle_snapshot\" is not in it");
    } else if (format->integer != 1) {
        snprintf(error, DOCTOR_ERROR_BYTES, "line %d: a snapshot of form %lld; this tool reads form 1", format->line,
                 (long long)format->integer);
    } else if (!facts) {
        snprintf(error, DOCTOR_ERROR_BYTES, "it has no \"facts\"");
    } else {
        good = doctor_snapshot_read_members(s, facts, false, error) &&
               doctor_snapshot_read_members(s, hdi_json_member(tree.root, "missing"), true, error);
    }
    hdi_json_release(&tree);
    if (!good) {
        doctor_release(s);
    }
    return good;
}
