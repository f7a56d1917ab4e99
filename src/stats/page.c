/* page.c - publishes a runtime's figures (page.h), and reads those of other processes: finds their
 * pages through /proc and prints them.
 *
 * Threads: any.
 * Locks: a mutex per page, held while figures are collected; none for reading.
 * Blocking: waits for that mutex, and for the locks of report.c. A reader needs some milliseconds
 * if a page is published again and again.
 * Always: the report that `published` names is complete. That report stays unchanged until the
 * second publication after it begins. Only the process that opened the runtime writes. No data of
 * another process is trusted. The process may end at any time. Its page may contain anything, be
 * cut off, or be no page. So pages are read, not mapped, and every number and text of a report is
 * checked before use.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/presence.h"
#include "base/shm.h"
#include "base/wait.h"
#include "stats/page.h"
#include "stats/part.h"

/* ---- publishing ---- */

#define WALK_SHARE 1000

struct hdi_memory_page {
    hdi_shm shm;
    hdi_mutex lock;
    pid_t owner;
    int64_t next_walk; /* clock: when holders may be collected again */
    int64_t walked;    /* clock: when holders were last collected */
};

static hd_status page_create(hd_runtime *rt)
{
    hdi_buffer_of(rt)->on_tick = hdi_page_publish;
    return HD_OK;
}

static hd_status page_ready(hd_runtime *rt)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    struct hdi_memory_page *page = calloc(1, sizeof *page);
    if (page && hdi_shm_create(HDI_PAGE_NAME, sizeof(hdi_page), &page->shm)) {
        free(page);
        page = NULL;
    }
    hdi_attempt_end(&attempt);
    if (page) {
        hdi_mutex_init(&page->lock, HDI_RANK_STATS_PAGE);
        page->owner = getpid();
        hdi_stats_of(rt)->memory_page = page;
        hdi_page_publish(rt);
    }
    return HD_OK; /* this is no failure, because only other processes lack the figures */
}

static void page_release(hd_runtime *rt)
{
    if (hdi_stats_of(rt)->memory_page) {
        hdi_shm_release(&hdi_stats_of(rt)->memory_page->shm);
        hdi_mutex_destroy(&hdi_stats_of(rt)->memory_page->lock);
        free(hdi_stats_of(rt)->memory_page);
        hdi_stats_of(rt)->memory_page = NULL;
    }
}

const hdi_lifetime hdi_page_lifetime = {.create = page_create, .ready = page_ready, .release = page_release};

/* Copies the lanes and holders, which are not collected each time. */
static void page_copy_holders(hdi_report *to, const hdi_report *from)
{
    for (uint32_t i = 0; i < from->n_devices; i++) {
        hdi_report_device *d = &to->devices[i];
        const hdi_report_device *s = &from->devices[i];
        d->n_lanes = s->n_lanes;
        d->n_holders = s->n_holders;
        memcpy(d->lanes, s->lanes, sizeof d->lanes);
        memcpy(d->holders, s->holders, sizeof d->holders);
        d->other_lanes = s->other_lanes;
        d->other_lanes_bytes = s->other_lanes_bytes;
        d->other_holders = s->other_holders;
        d->others_bytes = s->others_bytes;
        d->others_count = s->others_count;
    }
}

/* Makes later stores become visible after all earlier stores. The thread sanitizer does not support
 * fences. */
static void page_end_of_stores(void)
{
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_release);
#endif
}

/* Publishes a report. True if it collected holders again. The lock is held. */
static bool page_publish_held(hd_runtime *rt, struct hdi_memory_page *page)
{
    hdi_page *shared = page->shm.base;
    uint64_t published = atomic_load_explicit(&shared->published, memory_order_relaxed);
    /* The next report overwrites the report before the last one. A reader that still copies that
     * report detects this by `published`. So no store to the report may become visible before the
     * last store to `published`. */
    page_end_of_stores();
    const hdi_report *last = &shared->reports[published % 2];
    hdi_report *next = &shared->reports[(published + 1) % 2];
    int64_t begin = hdi_clock_ns();
    bool walk = begin >= page->next_walk;
    if (!walk) {
        page_copy_holders(next, last);
    }
    /* Without memory for the holders the rest of the report is valid. */
    hdi_report_collect(rt, walk, next);
    next->holders_age_ns = walk ? 0 : (uint64_t)(begin - page->walked);
    if (walk) {
        page->walked = begin;
        int64_t end = hdi_clock_ns();
        page->next_walk = end + WALK_SHARE * (end - begin);
    }
    /* Pairs with the reader's loads of `published` before and after it copies: a report that
     * `published` names is complete. */
    atomic_store_explicit(&shared->published, published + 1, memory_order_release);
    if (atomic_load_explicit(&shared->magic, memory_order_relaxed) != HDI_PAGE_MAGIC) {
        shared->version = HDI_PAGE_VERSION;
        shared->bytes = sizeof *shared;
        /* release: a process that reads the magic finds a complete page */
        atomic_store_explicit(&shared->magic, HDI_PAGE_MAGIC, memory_order_release);
    }
    return walk;
}

bool hdi_page_publish(hd_runtime *rt)
{
    struct hdi_memory_page *page = hdi_stats_of(rt)->memory_page;
    if (!page || page->owner != getpid()) {
        return true;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&page->lock);
    bool current = page_publish_held(rt, page);
    hdi_mutex_unlock(&page->lock);
    hdi_attempt_end(&attempt);
    return current;
}

/* ---- reading ---- */

#define LINK "/memfd:" HDI_PAGE_NAME " "
#define TRIES 50       /* tries for one page; two publications during one read are rare */
#define PAGES_MOST 256 /* the most pages of one process, as it may open this many runtimes */

/* The reports that were found, by rising process and descriptor. */
typedef struct found {
    hdi_report *reports;
    size_t n, room;
    /* The errno of a lack of memory or descriptors, if this lack perhaps hid a page; 0: no such
     * lack. */
    int short_of;
} found;

/* Notes an error that may have hidden a page. */
static void page_note_error(found *f, int code)
{
    if (code == ENOMEM || code == EMFILE || code == ENFILE) {
        f->short_of = code;
    }
}

/* ---- reading: checks of a report ---- */

static bool page_text_ends(const char *text, size_t room)
{
    return memchr(text, 0, room) != NULL;
}

static bool page_device_is_sane(const hdi_report_device *d)
{
    bool sane = d->device >= HD_DEVICE_HOST && d->device < HDI_DEVICES_MAX && d->n_lanes <= HDI_REPORT_LANES &&
                d->n_holders <= HDI_REPORT_HOLDERS && page_text_ends(d->name, sizeof d->name);
    for (uint32_t i = 0; sane && i < d->n_holders; i++) {
        sane = page_text_ends(d->holders[i].label, sizeof d->holders[i].label) &&
               page_text_ends(d->holders[i].site, sizeof d->holders[i].site);
    }
    return sane;
}

bool hdi_report_is_sane(const hdi_report *r)
{
    bool sane = r->pid > 0 && r->n_devices <= HDI_DEVICES_MAX + 1 && r->n_findings <= HDI_REPORT_FINDINGS &&
                r->n_claims <= HDI_REPORT_CLAIMS && page_text_ends(r->version, sizeof r->version) &&
                page_text_ends(r->driver, sizeof r->driver) && page_text_ends(r->placement, sizeof r->placement) &&
                page_text_ends(r->program, sizeof r->program);
    for (uint32_t i = 0; sane && i < r->n_devices; i++) {
        sane = page_device_is_sane(&r->devices[i]);
    }
    for (uint32_t i = 0; sane && i < r->n_findings; i++) {
        sane = page_text_ends(r->finding[i].text, sizeof r->finding[i].text);
    }
    for (uint32_t i = 0; sane && i < r->n_claims; i++) {
        sane = page_text_ends(r->claim[i], sizeof r->claim[i]);
    }
    return sane;
}

/* ---- reading: one page ---- */

static bool page_read_at(int descriptor, size_t offset, void *out, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pread(descriptor, (char *)out + at, bytes - at, (off_t)(offset + at));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false; /* the file became shorter */
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Reads the complete report. */
static bool page_read(int descriptor, hdi_report *out)
{
    struct stat facts;
    struct {
        uint64_t magic;
        uint32_t version, bytes;
    } head;
    _Static_assert(offsetof(hdi_page, published) == sizeof head, "the head is the page's beginning");
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != (off_t)sizeof(hdi_page) ||
        !page_read_at(descriptor, 0, &head, sizeof head) || head.magic != HDI_PAGE_MAGIC ||
        head.version != HDI_PAGE_VERSION || head.bytes != sizeof(hdi_page)) {
        return false;
    }
    /* Each read is a system call, so the reads happen in this order. */
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = 0, after = 0;
        if (!page_read_at(descriptor, offsetof(hdi_page, published), &before, sizeof before)) {
            return false;
        }
        size_t at = offsetof(hdi_page, reports) + before % 2 * sizeof(hdi_report);
        if (!page_read_at(descriptor, at, out, sizeof *out)) {
            return false;
        }
        if (!page_read_at(descriptor, offsetof(hdi_page, published), &after, sizeof after)) {
            return false;
        }
        if (before == after) {
            return hdi_report_is_sane(out);
        }
        hdi_sleep_for(1000000);
    }
    return false;
}

/* ---- reading: one process ---- */

/* Reads the line of /proc/PID/status that begins with `key`. Returns 0 or errno; ENODATA: no such
 * line. */
static int page_status_line(int pid, const char *key, char line[512])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = hdi_descriptor_text(path);
    if (!file) {
        return errno;
    }
    int code = ENODATA;
    while (code && fgets(line, 512, file)) {
        code = strncmp(line, key, strlen(key)) == 0 ? 0 : ENODATA;
    }
    fclose(file);
    return code;
}

/* True if the process carries this number in one of its namespaces. A child of fork() shows its
 * parent's page, too. The child has another number, so the page is not counted twice. */
static bool page_process_has_number(found *f, int pid, int64_t number)
{
    static const char key[] = "NSpid:";
    char line[512];
    if (number == pid) {
        return true;
    }
    int code = page_status_line(pid, key, line);
    if (code) {
        page_note_error(f, code);
        return false;
    }
    for (char *at = line + sizeof key - 1, *end = at;; at = end) {
        long long value = strtoll(at, &end, 10);
        if (end == at || value == number) {
            return end != at;
        }
    }
}

/* True if the process is ending. Such a process first loses its memory, and then refuses access to
 * all but root. */
static bool page_process_has_ended(int pid)
{
    char line[512];
    int code = page_status_line(pid, "VmSize:", line);
    return code == ENODATA || code == ENOENT || code == ESRCH;
}

static hdi_report *page_next_place(found *f)
{
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 4;
        hdi_report *more = realloc(f->reports, room * sizeof *more);
        if (!more) {
            f->short_of = ENOMEM;
            return NULL;
        }
        f->reports = more;
        f->room = room;
    }
    return &f->reports[f->n];
}

/* Adds the report of a descriptor, if it is a page that was not seen before. */
static void page_look_at_file(found *f, int pid, const char *path, ino_t *seen, size_t *n_seen)
{
    struct stat facts;
    int descriptor = hdi_descriptor_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (descriptor < 0) {
        page_note_error(f, errno);
    }
    bool fresh = descriptor >= 0 && fstat(descriptor, &facts) == 0 && *n_seen < PAGES_MOST;
    for (size_t i = 0; fresh && i < *n_seen; i++) {
        fresh = seen[i] != facts.st_ino;
    }
    hdi_report *place = fresh ? page_next_place(f) : NULL;
    if (place && page_read(descriptor, place) && page_process_has_number(f, pid, place->pid)) {
        seen[(*n_seen)++] = facts.st_ino;
        place->pid = pid; /* the number of the process in this namespace */
        f->n++;
    }
    if (descriptor >= 0) {
        close(descriptor);
    }
}

/* Adds the reports of a process. Returns 0, or errno. */
static int page_look_into_process(found *f, int pid)
{
    char path[64];
    ino_t seen[PAGES_MOST];
    size_t n_seen = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = hdi_descriptor_folder(path);
    if (!directory) {
        int code = errno;
        page_note_error(f, code);
        return code;
    }
    for (struct dirent *entry; (entry = readdir(directory)) && !f->short_of;) {
        char name[320], link[64];
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        ssize_t n = readlink(name, link, sizeof link - 1);
        link[n > 0 ? n : 0] = 0;
        if (strncmp(link, LINK, strlen(LINK)) == 0) {
            page_look_at_file(f, pid, name, seen, &n_seen);
        }
    }
    closedir(directory);
    return 0;
}

/* ---- reading: all processes ---- */

static int page_compare_numbers(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The processes of this user, by number. The caller frees the list. */
static int *page_list_processes(found *f, size_t *n)
{
    DIR *proc = hdi_descriptor_folder("/proc");
    if (!proc) {
        page_note_error(f, errno);
    }
    int *list = NULL;
    size_t room = 0;
    *n = 0;
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[64];
        struct stat facts;
        char *end;
        long pid = isdigit((unsigned char)entry->d_name[0]) ? strtol(entry->d_name, &end, 10) : 0;
        snprintf(path, sizeof path, "/proc/%ld", pid);
        if (pid <= 0 || pid > INT32_MAX || *end || stat(path, &facts) != 0 || facts.st_uid != geteuid()) {
            continue;
        }
        if (*n == room) {
            room = room ? 2 * room : 64;
            int *more = realloc(list, room * sizeof *more);
            if (!more) {
                f->short_of = ENOMEM;
                break;
            }
            list = more;
        }
        list[(*n)++] = (int)pid;
    }
    if (proc) {
        closedir(proc);
    }
    if (list) {
        qsort(list, *n, sizeof *list, page_compare_numbers);
    }
    return list;
}

static void page_find_all(found *f)
{
    size_t n = 0;
    int *list = page_list_processes(f, &n);
    for (size_t i = 0; i < n && !f->short_of; i++) {
        page_look_into_process(f, list[i]); /* a process that refuses access is skipped */
    }
    free(list);
}

static hd_status page_find_one(found *f, int pid)
{
    int code = page_look_into_process(f, pid);
    if (f->short_of) {
        return HD_OK; /* the caller fails with a message */
    }
    if (code == ENOENT || code == ESRCH || (code == EACCES && page_process_has_ended(pid))) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "there is no process %d", pid);
    }
    if (code) {
        return hdi_fail(HD_ERROR_SYSTEM, "process %d cannot be looked into: %s", pid, strerror(code));
    }
    if (f->n == 0) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "process %d has no runtime of this version of Heddle open", pid);
    }
    return HD_OK;
}

hd_status hd_memory_report_of(int pid, hd_report_format format, char *out, size_t room, size_t *needed)
{
    HDI_UNCANCELLED;
    HDI_CALL();
    if ((format != HD_REPORT_TEXT && format != HD_REPORT_JSON) || (!out && room) || pid < 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s",
                        pid < 0        ? "the process id is negative"
                        : !out && room ? "out is null"
                                       : "no such format");
    }
    found f = {0};
    char *text = NULL;
    size_t length = 0;
    hd_status status = HD_OK;
    if (pid) {
        status = page_find_one(&f, pid);
    } else {
        page_find_all(&f);
    }
    if (f.short_of) {
        status = hdi_fail(f.short_of == ENOMEM ? HD_ERROR_HOST_MEMORY : HD_ERROR_SYSTEM,
                          "not everything could be looked at: %s", strerror(f.short_of));
    }
    if (!status) {
        status = hdi_reports_write(f.reports, f.n, format, &text, &length);
    }
    if (!status) {
        hdi_report_hand_out(text, length, out, room, needed);
    }
    free(text);
    free(f.reports);
    return status;
}
