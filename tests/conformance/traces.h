/* traces.h - reads a trace file for tests: all its records, and those of a type or an operation.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a file begins with TRACE, and the type of each record is known, or the case fails.
 */
#ifndef CONFORMANCE_TRACES_H
#define CONFORMANCE_TRACES_H

#include "folder.h"
#include "record/format.h"
#include "record/record.h"

#include <pthread.h>

static char file_path[128];

CONF_UNUSED static const char *in_folder(const char *name)
{
    snprintf(file_path, sizeof file_path, "%s/%s", folder, name);
    return file_path;
}

typedef struct content {
    hdi_record *records;
    size_t n;
} content;

CONF_UNUSED static content read_file(const char *file)
{
    FILE *in = fopen(file, "rb");
    CONF_TRUE(in != NULL);
    CONF_EQUAL(fseek(in, 0, SEEK_END), 0);
    long size = ftell(in);
    CONF_TRUE(size > 0);
    rewind(in);
    content c = {.records = conf_memory((size_t)size), .n = (size_t)size / sizeof(hdi_record)};
    CONF_EQUAL(fread(c.records, sizeof(hdi_record), c.n, in), c.n);
    fclose(in);
    CONF_EQUAL(c.records[0].type, HDI_RECORD_TRACE);
    CONF_TRUE(c.records[0].trace.magic == HDI_RECORD_MAGIC);
    for (size_t i = 0; i < c.n; i++) {
        CONF_TRUE(c.records[i].type > HDI_RECORD_NONE && c.records[i].type < HDI_RECORD_TYPES);
    }
    return c;
}

CONF_UNUSED static size_t count(const content *c, uint8_t type)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        n += c->records[i].type == type;
    }
    return n;
}

/* Returns the next record of that type, from number `from` on; NULL if none is left. */
CONF_UNUSED static const hdi_record *next(const content *c, uint8_t type, size_t *from)
{
    for (; *from < c->n; (*from)++) {
        if (c->records[*from].type == type) {
            return &c->records[(*from)++];
        }
    }
    return NULL;
}

CONF_UNUSED static uint32_t global(hd_lane *lane)
{
    return (uint32_t)(hd_lane_device(lane) * HDI_RECORD_LANES + hd_lane_number(lane));
}

/* Returns the record of that type that covers an operation; NULL if none does. Records of the type
 * contain a lane, `before` and `position`. */
CONF_UNUSED static const hdi_record *covering(const content *c, uint8_t type, hd_ticket ticket)
{
    size_t at = 0;
    for (const hdi_record *r; (r = next(c, type, &at)) != NULL;) {
        if (r->issue.lane == global(ticket.lane) && r->issue.before < ticket.sequence &&
            ticket.sequence <= r->issue.position) {
            return r;
        }
    }
    return NULL;
}

/* Threads that use all rings of a runtime, so that every other thread shares one. */
typedef struct ring_users {
    hd_runtime *runtime;
    pthread_barrier_t barrier; /* all have their rings, then: they may end */
    pthread_t threads[HDI_RECORD_OWN_RINGS];
} ring_users;

CONF_UNUSED static void *use_ring(void *context)
{
    ring_users *u = context;
    CONF_OK(hd_range_push(u->runtime, "a ring"));
    CONF_OK(hd_range_pop(u->runtime));
    pthread_barrier_wait(&u->barrier);
    pthread_barrier_wait(&u->barrier);
    return NULL;
}

/* The calling thread must not have recorded anything in this runtime. */
CONF_UNUSED static void use_all_rings(ring_users *u, hd_runtime *runtime)
{
    u->runtime = runtime;
    CONF_EQUAL(pthread_barrier_init(&u->barrier, NULL, HDI_RECORD_OWN_RINGS + 1), 0);
    CONF_OK(hd_trace_start(runtime, in_folder("rings"), NULL));
    for (int i = 0; i < HDI_RECORD_OWN_RINGS; i++) {
        CONF_EQUAL(pthread_create(&u->threads[i], NULL, use_ring, u), 0);
    }
    pthread_barrier_wait(&u->barrier);
    CONF_OK(hd_trace_stop(runtime, NULL));
}

CONF_UNUSED static void give_all_rings(ring_users *u)
{
    pthread_barrier_wait(&u->barrier);
    for (int i = 0; i < HDI_RECORD_OWN_RINGS; i++) {
        pthread_join(u->threads[i], NULL);
    }
    pthread_barrier_destroy(&u->barrier);
}

#endif
