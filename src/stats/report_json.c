/* report_json.c - figures about memory as JSON.
 *
 * Threads: any. Locks: none; the figures are the caller's. Blocking: never.
 * Always: a text that fills its array is read no further.
 */
#include <string.h>
#include "stats/report.h"

static void put_integer(hdi_json *j, const char *key, uint64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, (int64_t)(value > INT64_MAX ? INT64_MAX : value));
}

/* Writes a text that may fill its array; null where it is empty. */
static void put_text(hdi_json *j, const char *key, const char *text, size_t room)
{
    char copy[HDI_FINDING_BYTES];
    size_t length = strnlen(text, room < sizeof copy ? room : sizeof copy - 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    hdi_json_key(j, key);
    hdi_json_string(j, length ? copy : NULL);
}

static void put_device_number(hdi_json *j, int device)
{
    hdi_json_key(j, "device");
    hdi_json_integer(j, device);
}

static void put_device(hdi_json *j, const hdi_report_device *d)
{
    hdi_json_object(j);
    put_device_number(j, d->device);
    hdi_json_key(j, "pinned");
    hdi_json_bool(j, d->device == HD_DEVICE_HOST);
    put_text(j, "name", d->name, sizeof d->name);
    hdi_json_key(j, "lost");
    hdi_json_bool(j, d->lost != 0);
#define PUT_FIGURE(field) put_integer(j, #field, d->stats.field);
    HDI_STATS_MAP(PUT_FIGURE)
#undef PUT_FIGURE
    hdi_json_key(j, "lanes");
    hdi_json_array(j);
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        hdi_json_object(j);
        hdi_json_key(j, "lane");
        hdi_json_integer(j, d->lanes[i].lane);
        put_integer(j, "cached_bytes", d->lanes[i].cached_bytes);
        put_integer(j, "cached_count", d->lanes[i].cached_count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    put_integer(j, "other_lanes", d->other_lanes);
    put_integer(j, "other_lanes_bytes", d->other_lanes_bytes);
    hdi_json_key(j, "holders");
    hdi_json_array(j);
    for (uint32_t i = 0; i < d->n_holders; i++) {
        hdi_json_object(j);
        put_text(j, "label", d->holders[i].label, sizeof d->holders[i].label);
        put_text(j, "call_site", d->holders[i].site, sizeof d->holders[i].site);
        put_integer(j, "bytes", d->holders[i].bytes);
        put_integer(j, "count", d->holders[i].count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    put_integer(j, "other_holders", d->other_holders);
    put_integer(j, "other_holders_bytes", d->others_bytes);
    put_integer(j, "other_holders_count", d->others_count);
    hdi_json_object_end(j);
}

static const char *kind_name(int kind)
{
    switch (kind) {
    case HD_FINDING_OVERRUN:
        return "overrun";
    case HD_FINDING_DOUBLE_FREE:
        return "double free";
    case HD_FINDING_USE_AFTER_FREE:
        return "use after free";
    default:
        return "unknown";
    }
}

static void put_findings(hdi_json *j, const hdi_report *r)
{
    put_integer(j, "findings_count", r->findings);
    hdi_json_key(j, "findings");
    hdi_json_array(j);
    for (uint32_t i = 0; i < r->n_findings; i++) {
        hdi_json_object(j);
        hdi_json_key(j, "kind");
        hdi_json_string(j, kind_name(r->finding[i].kind));
        put_device_number(j, r->finding[i].device);
        put_text(j, "message", r->finding[i].text, sizeof r->finding[i].text);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_leaks(hdi_json *j, const hdi_leaks *leaks)
{
    hdi_json_key(j, "leaks");
    hdi_json_array(j);
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        char site[HDI_SITE_BYTES];
        hdi_site_text(h->site, site);
        hdi_json_object(j);
        put_device_number(j, h->device);
        put_text(j, "label", h->label, sizeof h->label);
        put_text(j, "call_site", site, sizeof site);
        put_integer(j, "bytes", h->bytes);
        put_integer(j, "count", h->count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void hdi_report_put(hdi_json *j, const hdi_report *r, const hdi_leaks *leaks)
{
    char date[HDI_AMOUNT_BYTES];
    hdi_json_object(j);
    put_text(j, "heddle", r->version, sizeof r->version);
    hdi_json_key(j, "pid");
    hdi_json_integer(j, r->pid);
    put_text(j, "program", r->program, sizeof r->program);
    put_text(j, "date", hdi_date_text(r->time, date), sizeof date);
    put_text(j, "driver", r->driver, sizeof r->driver);
    put_text(j, "placement", r->placement, sizeof r->placement);
    hdi_json_key(j, "memory_debug");
    hdi_json_bool(j, r->debug != 0);
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        put_device(j, &r->devices[i]);
    }
    hdi_json_array_end(j);
    put_findings(j, r);
    if (leaks) {
        put_leaks(j, leaks);
    }
    hdi_json_object_end(j);
}
