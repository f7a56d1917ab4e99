/* activities.c - see activities.h for threads, locks and invariants. */
#include "engine/activities.h"
#include <stdio.h>
#include <stdlib.h>
#include "engine/stream.h"
#include "record/record.h"

static hdi_activities *activities_of_engine(hdi_engine *engine)
{
    /* pairs with the release store in hdi_engine_activities_begin */
    return atomic_load_explicit(&engine->recording.activities, memory_order_acquire);
}

bool hdi_engine_activities_begin(hdi_engine *engine, char why[HDI_ACTIVITIES_WHY_BYTES])
{
    const hd_runtime *rt = engine->device->runtime;
    hdi_activities *a = activities_of_engine(engine);
    if (!a && (a = calloc(1, sizeof *a)) != NULL) {
        a->ordinal = engine->device->ordinal;
        atomic_store_explicit(&engine->recording.activities, a, memory_order_release);
    }
    if (!a) {
        snprintf(why, HDI_ACTIVITIES_WHY_BYTES, "there is no memory for what CUPTI reports");
        return false;
    }
    return hdi_activities_begin(a, rt->driver, rt->options.cupti, why);
}

void hdi_engine_activities_end(hdi_engine *engine)
{
    hdi_activities *a = activities_of_engine(engine);
    if (a) {
        hdi_activities_end(a, engine->device->runtime->driver);
    }
}

/* ---- recording ---- */

/* True if the name was recorded in this session. */
static bool activities_find_name(const hdi_recording *r, const hdi_activity_name *name)
{
    uint32_t word = name->index / 64;
    return r->named && word < r->named_words && r->named[word] >> name->index % 64 & 1;
}

/* Marks the name as recorded. If there is no memory for the mark, the engine records the name
 * again, which is harmless. */
static void activities_mark_name(hdi_recording *r, const hdi_activity_name *name)
{
    uint32_t word = name->index / 64;
    if (!r->named || word >= r->named_words) {
        uint32_t words = 2 * word + 16;
        uint64_t *named = realloc(r->named, words * sizeof *named);
        if (!named) {
            return;
        }
        memset(named + r->named_words, 0, (words - r->named_words) * sizeof *named);
        r->named = named;
        r->named_words = words;
    }
    r->named[word] |= (uint64_t)1 << name->index % 64;
}

/* Returns the runtime's index of the device with this ordinal in the driver. HDI_RECORD_NO_DEVICE:
 * the host, or a device that the runtime does not use. */
static uint32_t activities_device_index(const hd_runtime *rt, uint32_t ordinal)
{
    for (int i = 0; ordinal != HDI_ACTIVITY_HOST && i < rt->n_devices; i++) {
        if ((uint32_t)rt->devices[i]->ordinal == ordinal) {
            return (uint32_t)i;
        }
    }
    return HDI_RECORD_NO_DEVICE;
}

static void activities_record_one(hdi_engine *engine, hdi_activity *activity)
{
    const hd_runtime *rt = engine->device->runtime;
    hdi_record_ring *ring = engine->device->channel.records;
    hdi_record *r = &activity->record;
    r->device = (uint8_t)engine->device->index;
    if (r->kind != HDI_RECORD_ACTIVITY_KERNEL) {
        r->activity.src = activities_device_index(rt, r->activity.src);
        r->activity.dst = activities_device_index(rt, r->activity.dst);
    }
    hdi_record all[1 + HDI_RECORD_TEXTS_MOST];
    bool names = activity->name && !activities_find_name(&engine->recording, activity->name);
    uint32_t n = hdi_record_with_text(all, r, names ? activity->name->text : NULL);
    if (hdi_ring_put_all(ring, all, n) && names) {
        activities_mark_name(&engine->recording, activity->name);
    }
}

void hdi_engine_activities_take(hdi_engine *engine)
{
    hdi_activities *a = activities_of_engine(engine);
    if (!a || !hdi_activities_any(a)) {
        return;
    }
    hdi_recording *recording = &engine->recording;
    hdi_activities_batch batch = hdi_activities_take(a);
    if (batch.session != recording->named_in) {
        if (recording->named) {
            memset(recording->named, 0, recording->named_words * sizeof *recording->named);
        }
        recording->named_in = batch.session;
    }
    for (uint32_t i = 0; i < batch.n; i++) {
        activities_record_one(engine, &batch.at[i]);
    }
    free(batch.at);
    atomic_fetch_add_explicit(&engine->device->channel.records->dropped, batch.dropped, memory_order_relaxed);
}

void hdi_engine_activities_release(hdi_engine *engine, bool driver_usable)
{
    hdi_activities *a = activities_of_engine(engine);
    if (a) {
        if (driver_usable) {
            hdi_activities_end(a, engine->device->runtime->driver);
        }
        hdi_activities_forget(a);
        free(a);
    }
    free(engine->recording.named);
}
