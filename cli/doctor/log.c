/* log.c - facts from the kernel log about devices: Xid errors, IOMMU faults, windows without room,
 * and the driver's own lines.
 *
 * Threads: one at a time. Locks: none.
 * Always: this file reads only lines about listed devices and lines of the driver. A line that it
 * keeps names no program and no user.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/doctor/collect.h"

enum {
    XIDS_MAX = 16,
    FAILED_MAX = 16,
    LOG_RECORD = 8192,
    LINE_KEPT = 200,
    BAR_LAST = 5,
    WINDOW = 14,
    WINDOW_PREFETCH = 15
};

/* A window (a base address register, or a window of a bridge) that got no room. */
typedef struct failed {
    char of[SYSTEM_BUS_ID];
    long number;
} failed;

typedef struct of_device {
    long xid[XIDS_MAX];
    int xids;
    long faults; /* by the IOMMU */
    failed window[FAILED_MAX];
    int windows;
    char window_line[LINE_KEPT];
    char line[LINE_KEPT]; /* line of the driver about this device; "": none */
} of_device;

typedef struct log_facts {
    const doctor_buses *buses;
    const system_chain *chains;
    of_device device[DOCTOR_GPUS_MAX];
    char line[LINE_KEPT]; /* line of the driver about no device */
} log_facts;

/* True if the text names the device: as "0000:3b:00.0", or as "3b:00.0" for a device in the first
 * domain. If `whole` is false, the text may lack the number of the device's function (".0"). */
static bool doctor_log_text_names_device(const char *text, const char *bus_id, bool whole)
{
    const char *brief = strchr(bus_id, ':') + 1;
    size_t domain = (size_t)(brief - bus_id), length = whole ? strlen(brief) : strcspn(brief, ".");
    for (const char *at = text; *at; at++) {
        if (strncasecmp(at, brief, length) != 0 || isxdigit((unsigned char)at[length])) {
            continue;
        }
        bool more = at > text && (isxdigit((unsigned char)at[-1]) || at[-1] == ':') &&
                    !(at - text >= 4 && strncmp(at - 4, "PCI:", 4) == 0);
        if (more ? (size_t)(at - text) >= domain && strncasecmp(at - domain, bus_id, domain) == 0
                 : strncmp(bus_id, "0000:", 5) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- Xid errors ---- */

static void doctor_log_add_xid(of_device *d, long number)
{
    for (int i = 0; i < d->xids; i++) {
        if (d->xid[i] == number) {
            return;
        }
    }
    if (d->xids < XIDS_MAX) {
        d->xid[d->xids++] = number;
    }
}

/* "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus." */
static void doctor_log_read_xid(log_facts *l, const char *record)
{
    const char *at = strstr(record, "NVRM: Xid (PCI:");
    const char *close = at ? strstr(at, "): ") : NULL;
    if (!close) {
        return;
    }
    at += strlen("NVRM: Xid (PCI:");
    for (int i = 0; i < l->buses->n; i++) {
        size_t length = strcspn(l->buses->id[i], "."); /* the log omits the function's number */
        if ((size_t)(close - at) >= length && strncasecmp(at, l->buses->id[i], length) == 0) {
            doctor_log_add_xid(&l->device[i], strtol(close + 3, NULL, 10));
        }
    }
}

/* ---- the IOMMU ---- */

/* Intel: "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xf000 [fault reason
 * 0x05]". AMD: "nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010
 * address=0xf000 flags=0x0020]". */
static void doctor_log_read_fault(log_facts *l, const char *record)
{
    if (!(strstr(record, "DMAR:") && strstr(record, "fault addr")) && !strstr(record, "IO_PAGE_FAULT")) {
        return;
    }
    for (int i = 0; i < l->buses->n; i++) {
        l->device[i].faults += doctor_log_text_names_device(record, l->buses->id[i], true);
    }
}

/* ---- windows ---- */

/* Of a device: "BAR 1: no space for [mem size 0x800000000 64bit pref]", or "BAR 1 [mem size
 * 0x800000000]: can't assign". Of a bridge: "bridge window [mem size 0x1000]: can't assign".
 * Older kernels call a bridge window BAR 14, or BAR 15 for prefetchable memory. -1: the line is of
 * another kind. */
static long doctor_log_register_of(const char *record, bool bridge)
{
    const char *bar = strstr(record, ": BAR ");
    long number = bar ? strtol(bar + strlen(": BAR "), NULL, 10) : -1;
    if (!strstr(record, "[mem ")) {
        return -1;
    }
    if (bridge) {
        return number >= WINDOW && number <= WINDOW_PREFETCH ? number
               : !bar && strstr(record, ": bridge window")   ? (strstr(record, " pref]") ? WINDOW_PREFETCH : WINDOW)
                                                             : -1;
    }
    return number <= BAR_LAST ? number : -1;
}

/* Notes that a window got no room, or got room later: the kernel tries several ways, and only the
 * last result counts. */
static void doctor_log_note_window(of_device *d, const char *of, long number, bool fails, const char *record)
{
    int i = 0;
    while (i < d->windows && (d->window[i].number != number || strcmp(d->window[i].of, of) != 0)) {
        i++;
    }
    if (fails && i < FAILED_MAX) {
        d->windows += i == d->windows;
        snprintf(d->window[i].of, sizeof(d->window[i].of), "%s", of);
        d->window[i].number = number;
        snprintf(d->window_line, sizeof(d->window_line), "%s", record);
    } else if (!fails && i < d->windows) {
        d->window[i] = d->window[--d->windows];
    }
}

static void doctor_log_read_window(log_facts *l, const char *record)
{
    bool fails = strstr(record, "no space") || strstr(record, "failed to assign") || strstr(record, "can't assign");
    const char *pci = strstr(record, "pci ");
    if (!pci || (!fails && !strstr(record, "assigned")) || strstr(record, "VF BAR")) {
        return;
    }
    for (int i = 0; i < l->buses->n; i++) {
        const system_chain *chain = &l->chains[i];
        long number = doctor_log_register_of(record, false);
        if (number >= 0 && doctor_log_text_names_device(pci, l->buses->id[i], true)) {
            doctor_log_note_window(&l->device[i], l->buses->id[i], number, fails, pci);
        }
        number = doctor_log_register_of(record, true);
        for (int k = 0; k < chain->n && number >= 0; k++) {
            if (doctor_log_text_names_device(pci, chain->bridge[k], true)) {
                doctor_log_note_window(&l->device[i], chain->bridge[k], number, fails, pci);
            }
        }
    }
}

/* ---- the driver ---- */

/* True for a line that reports a failure. The driver's internal checks do not count, because they
 * are for its developers. */
static bool doctor_log_is_failure(const char *record)
{
    static const char *const words[] = {"fail",       "invalid",  "is 0M",       "not supported", "requires",
                                        "fallen off", "mismatch", "not respond", "unable to",     "No NVIDIA"};
    if (strstr(record, "NVRM: Xid") || strstr(record, "nvAssert") || strstr(record, "nvCheck")) {
        return false;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasestr(record, words[i])) {
            return true;
        }
    }
    return false;
}

/* Copies the line without "NVRM: ". A newline inside a record appears as \x0a. */
static void doctor_log_keep_line(char out[LINE_KEPT], const char *text)
{
    size_t used = 0;
    if (out[0]) {
        return; /* keep the first failure, since it causes the others */
    }
    while (*text && used + 1 < LINE_KEPT) {
        size_t skip = strncmp(text, "\\x0a", 4) == 0 ? 4 : strncmp(text, "NVRM: ", 6) == 0 ? 6 : 0;
        if (skip == 4) {
            out[used++] = ' ';
        }
        if (skip) {
            text += skip;
        } else {
            out[used++] = *text++;
        }
    }
    out[used] = 0;
}

/* "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1459)", "NVRM: BAR1 is 0M @ 0x0
 * (PCI:0000:3b:00.0)". */
static void doctor_log_read_driver(log_facts *l, const char *record)
{
    const char *at = strstr(record, "NVRM: ");
    bool of_one = false;
    if (!at || !doctor_log_is_failure(record)) {
        return;
    }
    for (int i = 0; i < l->buses->n; i++) {
        if (doctor_log_text_names_device(at, l->buses->id[i], false)) {
            doctor_log_keep_line(l->device[i].line, at);
            of_one = true;
        }
    }
    if (!of_one) {
        doctor_log_keep_line(l->line, at);
    }
}

/* ---- all ---- */

static void doctor_log_put_device(const of_device *d, int i, doctor_snapshot *s)
{
    char text[XIDS_MAX * 8] = "none";
    size_t used = 0;
    for (int k = 0; k < d->xids; k++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%ld", k ? ", " : "", d->xid[k] % 100000);
    }
    doctor_put(s, text, "gpu.%d.xid", i);
    doctor_put_number(s, d->faults, "gpu.%d.iommu_faults", i);
    doctor_put(s, d->windows ? d->window_line : "no", "gpu.%d.window_failed", i);
    doctor_put(s, d->line[0] ? d->line : "none", "gpu.%d.driver_log", i);
}

static void doctor_log_miss_all(const doctor_buses *buses, doctor_snapshot *s)
{
    static const char *const keys[] = {"xid", "iommu_faults", "window_failed", "driver_log"};
    for (int i = 0; i < buses->n; i++) {
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            doctor_miss(s, doctor_unreadable(), "gpu.%d.%s", i, keys[k]);
        }
    }
    doctor_miss(s, doctor_unreadable(), "driver.log");
}

static void doctor_log_read_record(log_facts *l, char *record)
{
    char *rest = record;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        doctor_log_read_xid(l, line);
        doctor_log_read_fault(l, line);
        doctor_log_read_window(l, line);
        doctor_log_read_driver(l, line);
    }
}

/* A read of /dev/kmsg returns one record, or EPIPE if records were lost in between. In tests
 * /dev/kmsg is a file of lines. */
void doctor_read_log(const char *root, const doctor_buses *buses, const system_chain *chains, doctor_snapshot *s)
{
    static log_facts l;
    char path[SYSTEM_PATH_BYTES], record[LOG_RECORD + 1];
    memset(&l, 0, sizeof(l));
    l.buses = buses;
    l.chains = chains;
    snprintf(path, sizeof(path), "%s/dev/kmsg", root);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd >= 0 ? read(fd, record, LOG_RECORD) : -1;
    if (fd < 0 || (got < 0 && errno != EAGAIN && errno != EPIPE)) {
        doctor_log_miss_all(buses, s);
    } else {
        while (got > 0 || (got < 0 && errno == EPIPE)) {
            record[got > 0 ? got : 0] = 0;
            doctor_log_read_record(&l, record);
            got = read(fd, record, LOG_RECORD);
        }
        for (int i = 0; i < buses->n; i++) {
            doctor_log_put_device(&l.device[i], i, s);
        }
        doctor_put(s, l.line[0] ? l.line : "none", "driver.log");
    }
    if (fd >= 0) {
        close(fd);
    }
}
