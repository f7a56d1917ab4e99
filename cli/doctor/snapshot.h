/* snapshot.h - the facts of a machine for `heddle doctor`: an ordered list of keys and values, and
 * its JSON.
 *
 * Keys are, for example, "system.kernel", "gpu.0.mig" or "pair.0.1.read". Devices are numbered in
 * the order of their bus ids. A fact that could not be read is listed as missing, with the reason.
 * The JSON is one object: "heddle_snapshot": 1, then "facts" and "missing", whose values are texts
 * and whole numbers. Other members, such as "source", are for people.
 *
 * Threads: one at a time. Locks: none.
 * Always: no fact identifies an owner. A hash replaces each UUID in a value. A key has at most one
 * value. Values are one line of text.
 */
#ifndef CLI_DOCTOR_SNAPSHOT_H
#define CLI_DOCTOR_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    DOCTOR_KEY_BYTES = 80,
    DOCTOR_VALUE_BYTES = 512,
    DOCTOR_FACTS_MAX = 60000,
    DOCTOR_GPUS_MAX = 64,
    DOCTOR_ERROR_BYTES = 200,
    DOCTOR_FILE_MAX = 16 << 20,
    DOCTOR_UUID_BYTES = 36
};

/* The reason for facts that a user without privileges cannot read. */
#define DOCTOR_ROOT "only root can read it"

/* The reason for facts that the device does not support. A rule that needs such a fact counts as
 * answered, and finds nothing. */
#define DOCTOR_UNSUPPORTED "the device does not have it"

/* NVML's report on a device that belongs to other users: NVML counts the device, and the device
 * works, but this process cannot use it. */
#define DOCTOR_NOT_ALLOWED "the user may not read it"

/* The reason for missing facts of the bus about a device that only NVML or CUDA lists. */
#define DOCTOR_NOT_ON_BUS                                                                                              \
    "/sys does not list this device, only NVML or CUDA does (run heddle doctor outside of the container)"

typedef struct doctor_fact {
    char *key;
    char *value;  /* NULL: missing */
    char *reason; /* why the fact is missing, else NULL */
} doctor_fact;

typedef struct doctor_snapshot {
    doctor_fact *list;
    size_t n, room;
    /* a hash table by key: each entry is 1 + a position in the list, or 0 */
    size_t *index, buckets;
} doctor_snapshot;

/* True if the text begins with a UUID in its usual form, with dashes. */
bool doctor_is_uuid(const char *text);

/* A zeroed snapshot is empty. */
void doctor_release(doctor_snapshot *s);

/* Each of these functions sets a fact. The first value of a key stays; a value replaces a
 * reason. */
void doctor_put(doctor_snapshot *s, const char *value, const char *key, ...) __attribute__((format(printf, 3, 4)));
void doctor_put_number(doctor_snapshot *s, long long value, const char *key, ...) __attribute__((format(printf, 3, 4)));
void doctor_miss(doctor_snapshot *s, const char *reason, const char *key, ...) __attribute__((format(printf, 3, 4)));

/* Returns the fact with this key. NULL: the snapshot does not contain the key. */
const doctor_fact *doctor_find(const doctor_snapshot *s, const char *key);

/* The number of devices. */
int doctor_gpus(const doctor_snapshot *s);

/* Sets all facts of another snapshot. */
void doctor_add_all(doctor_snapshot *s, const doctor_snapshot *other);

/* Writes the whole document. */
void doctor_write(const doctor_snapshot *s, FILE *out);

/* Reads a document into an empty snapshot. False: it is invalid. Then `error` is one line, and
 * the snapshot stays empty. */
bool doctor_read(doctor_snapshot *s, const char *text, size_t bytes, char error[DOCTOR_ERROR_BYTES]);

#endif
