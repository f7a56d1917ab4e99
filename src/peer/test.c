/* test.c - makes verdicts from the records of heddle-probe, and runs that program.
 *
 * Threads, locks, blocking, and guarantees: see test.h.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/lock.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "peer/test.h"
#include "process/spawn.h"

#define END_NS 5000000000 /* time for a process to end after its last record, or after a kill */
/* the same limit if the results are no longer needed: it is shorter, since hd_close waits for this
 * end */
#define LEAVE_NS 2000000000
/* the time between two checks whether the process ended, on systems without pidfd */
#define END_SLEEP_NS 1000000
/* the time between checks whether this process was stopped, and whether *ended is set */
#define LOOK_MS 25
#define HELD_UP_NS 1000000000
#define LINGERING_MAX 64

#define RATE_MOST 1e16

#define STEP_BIT(step) (1u << (step))
#define STEPS_NEEDED                                                                                                   \
    (STEP_BIT(HDI_STEP_COPY_TO) | STEP_BIT(HDI_STEP_STORE) | STEP_BIT(HDI_STEP_COPY_FROM) | STEP_BIT(HDI_STEP_LOAD))

/* ---- verdicts ---- */

hd_peer_info hdi_peer_blank(void)
{
    hd_peer_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    return info;
}

hd_peer_info hdi_peer_inconclusive(const char *format, ...)
{
    hd_peer_info info = hdi_peer_blank();
    info.verdict = HD_PEER_INCONCLUSIVE;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(info.reason, sizeof info.reason, format, arguments);
    va_end(arguments);
    return info;
}

void hdi_peer_name_devices(hd_peer_info *info, int device, int owner)
{
    char said[sizeof info->reason];
    size_t n = 0;
    for (const char *p = info->reason; *p && n < sizeof said - 12;) {
        bool is_device = strncmp(p, HDI_THE_DEVICE, strlen(HDI_THE_DEVICE)) == 0;
        bool is_owner = strncmp(p, HDI_THE_OWNER, strlen(HDI_THE_OWNER)) == 0;
        if (is_device || is_owner) {
            n += (size_t)sprintf(said + n, "%d", is_device ? device : owner);
            p += strlen(is_device ? HDI_THE_DEVICE : HDI_THE_OWNER);
        } else {
            said[n++] = *p++;
        }
    }
    said[n] = 0;
    memcpy(info->reason, said, n + 1);
}

void hdi_peer_parser_begin(hdi_peer_parser *h, const hdi_pair *pairs, int n, double slow_margin)
{
    memset(h, 0, sizeof *h);
    h->slow_margin = slow_margin;
    h->pairs = pairs;
    h->n = n;
    h->current = -1;
    h->info = hdi_peer_blank();
}

/* ---- verdicts: in words ---- */

const char *hd_peer_verdict_text(hd_peer_verdict verdict)
{
    switch (verdict) {
    case HD_PEER_USABLE:
        return "usable";
    case HD_PEER_SLOW:
        return "slow";
    case HD_PEER_REFUSED:
        return "refused";
    case HD_PEER_CORRUPT:
        return "corrupt";
    case HD_PEER_INCONCLUSIVE:
        return "inconclusive";
    default:
        return "unknown";
    }
}

/* Describes the bytes or counts that are wrong. */
static void peer_test_describe_bytes(const hdi_probe_record *step, char *out, size_t bytes)
{
    static const struct {
        const char *what, *where;
    } words[HDI_STEPS] = {
        [HDI_STEP_COPY_TO] = {"a copy of", "into"},
        [HDI_STEP_STORE] = {"a kernel's stores of", "into"},
        [HDI_STEP_COPY_FROM] = {"a copy of", "from"},
        [HDI_STEP_LOAD] = {"a kernel's loads of", "from"},
    };
    if (step->step == HDI_STEP_COUNT) {
        snprintf(out, bytes,
                 "atomic operations by device " HDI_THE_DEVICE " in memory of device " HDI_THE_OWNER " do not count");
    } else {
        snprintf(out, bytes, "%s %llu bytes by device " HDI_THE_DEVICE " %s memory of device " HDI_THE_OWNER,
                 words[step->step].what, (unsigned long long)step->bytes, words[step->step].where);
    }
}

/* Describes the program's action in a step. */
static void peer_test_describe_step(const hdi_probe_record *step, char *out, size_t bytes)
{
    unsigned long long n = step->bytes;
    switch (step->kind ? (hdi_step)step->step : HDI_STEP_OPEN) {
    case HDI_STEP_PREPARE:
        snprintf(out, bytes, "memory on both devices was prepared");
        break;
    case HDI_STEP_GRANT:
        snprintf(out, bytes, "memory of device " HDI_THE_OWNER " was made accessible to device " HDI_THE_DEVICE);
        break;
    case HDI_STEP_COPY_TO:
        snprintf(out, bytes, "device " HDI_THE_DEVICE " copied %llu bytes into memory of device " HDI_THE_OWNER, n);
        break;
    case HDI_STEP_STORE:
        snprintf(out, bytes,
                 "a kernel of device " HDI_THE_DEVICE " stored %llu bytes into memory of device " HDI_THE_OWNER, n);
        break;
    case HDI_STEP_COPY_FROM:
        snprintf(out, bytes, "device " HDI_THE_DEVICE " copied %llu bytes from memory of device " HDI_THE_OWNER, n);
        break;
    case HDI_STEP_LOAD:
        snprintf(out, bytes,
                 "a kernel of device " HDI_THE_DEVICE " loaded %llu bytes from memory of device " HDI_THE_OWNER, n);
        break;
    case HDI_STEP_COUNT:
        snprintf(out, bytes, "kernels of device " HDI_THE_DEVICE " counted in memory of device " HDI_THE_OWNER);
        break;
    case HDI_STEP_TIME_DIRECT:
        snprintf(out, bytes, "copies by device " HDI_THE_DEVICE " into memory of device " HDI_THE_OWNER " were timed");
        break;
    case HDI_STEP_TIME_STAGED:
        snprintf(out, bytes, "copies through pinned memory were timed");
        break;
    default:
        snprintf(out, bytes, "the devices were opened");
        break;
    }
}

static void peer_test_conclude(hdi_peer_parser *h, hd_peer_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void peer_test_conclude(hdi_peer_parser *h, hd_peer_verdict verdict, const char *format, ...)
{
    h->decided = true;
    h->info.verdict = verdict;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(h->info.reason, sizeof h->info.reason, format, arguments);
    va_end(arguments);
}

/* Copies the text of a record, which comes from another process and may contain anything. */
static void peer_test_clean_text(const hdi_probe_record *record, char *out)
{
    memcpy(out, record->text, sizeof record->text);
    out[sizeof record->text - 1] = 0;
    for (char *p = out; *p; p++) {
        *p = isprint((unsigned char)*p) ? *p : '?';
    }
}

/* ---- verdicts: records ---- */

static hdi_parsed peer_test_begin_pair(hdi_peer_parser *h, const hdi_probe_record *r)
{
    int next = h->current + 1;
    if (h->in_pair || next >= h->n || r->device != h->pairs[next].device_at || r->owner != h->pairs[next].owner_at) {
        return HDI_PARSED_MALFORMED;
    }
    h->current = next;
    h->in_pair = true;
    h->risky = h->decided = h->untimed = false;
    h->steps = 0;
    h->step.kind = 0;
    h->info = hdi_peer_blank();
    return HDI_PARSED_PAIR;
}

static hdi_parsed peer_test_begin_step(hdi_peer_parser *h, const hdi_probe_record *r)
{
    bool opens = r->step == HDI_STEP_OPEN;
    if (r->step == 0 || r->step >= HDI_STEPS || opens != !h->in_pair || (opens && h->current >= 0)) {
        return HDI_PARSED_MALFORMED;
    }
    h->step = *r;
    h->steps |= STEP_BIT(r->step);
    h->risky |= r->step >= HDI_STEP_GRANT;
    return HDI_PARSED_MORE;
}

static hdi_parsed peer_test_take_wrong(hdi_peer_parser *h, const hdi_probe_record *r)
{
    bool counts = h->step.step == HDI_STEP_COUNT;
    if (h->step.step < HDI_STEP_COPY_TO || h->step.step > HDI_STEP_COUNT ||
        counts != (r->kind == HDI_PROBE_RECORD_MISCOUNT)) {
        return HDI_PARSED_MALFORMED;
    }
    char what[128];
    peer_test_describe_bytes(&h->step, what, sizeof what);
    long long at = r->at;
    if (counts) {
        peer_test_conclude(h, HD_PEER_CORRUPT, "%s: counter %lld is %llu instead of %llu", what, at,
                           (unsigned long long)r->found, (unsigned long long)r->expected);
    } else if (r->kind == HDI_PROBE_RECORD_WRONG) {
        peer_test_conclude(h, HD_PEER_CORRUPT,
                           "%s did not arrive: first wrong byte %lld, found 0x%02x instead of 0x%02x", what, at,
                           (unsigned)(r->found & 0xff), (unsigned)(r->expected & 0xff));
    } else {
        peer_test_conclude(h, HD_PEER_CORRUPT,
                           "%s also changed bytes beside them: byte %lld, found 0x%02x instead of 0x%02x", what, at,
                           (unsigned)(r->found & 0xff), (unsigned)(r->expected & 0xff));
    }
    return HDI_PARSED_MORE;
}

/* True if a failed call means that its step ended the device. If the record contains a code of the
 * driver, this code decides. For example, a lack of memory is no fault of the pair. */
static bool peer_test_is_loss(const hdi_probe_record *r)
{
    if (r->code > 0 && r->status != HD_ERROR_DEVICE_LOST) {
        return hdi_driver_code_is_fatal(r->code);
    }
    return r->status == HD_ERROR_FAILED || r->status == HD_ERROR_LANE_FAILED || r->status == HD_ERROR_DEVICE_LOST;
}

static hdi_parsed peer_test_take_failed(hdi_peer_parser *h, const hdi_probe_record *r)
{
    char text[sizeof r->text], what[128];
    peer_test_clean_text(r, text);
    peer_test_describe_step(&h->step, what, sizeof what);
    bool loss = peer_test_is_loss(r);
    bool timing = h->step.step == HDI_STEP_TIME_DIRECT || h->step.step == HDI_STEP_TIME_STAGED;
    if (timing && !loss) {
        h->untimed = true; /* the pair gets its verdict without rates */
        return HDI_PARSED_MORE;
    }
    h->info.driver_code = r->code > 0 ? r->code : 0;
    bool guilty = h->risky && loss && h->step.step != HDI_STEP_TIME_STAGED;
    peer_test_conclude(h, guilty ? HD_PEER_CORRUPT : HD_PEER_INCONCLUSIVE, "the test failed while %s: %s", what, text);
    h->failed_open = !h->in_pair;
    return HDI_PARSED_MORE;
}

static hdi_parsed peer_test_take_refused(hdi_peer_parser *h, const hdi_probe_record *r)
{
    if (h->step.step != HDI_STEP_GRANT || r->code <= 0) {
        return HDI_PARSED_MALFORMED;
    }
    char text[sizeof r->text];
    peer_test_clean_text(r, text);
    h->info.driver_code = r->code;
    peer_test_conclude(h, HD_PEER_REFUSED, "the driver refuses it: %s%s%s", text, text[0] ? ": " : "",
                       hdi_driver_code_name(r->code));
    return HDI_PARSED_MORE;
}

static hdi_parsed peer_test_take_rates(hdi_peer_parser *h, const hdi_probe_record *r)
{
    if (!(r->direct >= 0 && r->direct < RATE_MOST && r->staged >= 0 && r->staged < RATE_MOST)) {
        return HDI_PARSED_MALFORMED;
    }
    h->info.direct_bytes_per_s = r->direct;
    h->info.staged_bytes_per_s = r->staged;
    return HDI_PARSED_MORE;
}

static hdi_parsed peer_test_end_pair(hdi_peer_parser *h)
{
    if (!h->decided && (h->steps & STEPS_NEEDED) != STEPS_NEEDED) {
        return HDI_PARSED_MALFORMED;
    }
    const double direct = h->info.direct_bytes_per_s, staged = h->info.staged_bytes_per_s;
    if (h->decided) {
        h->info.atomics = h->info.atomics && h->info.verdict != HD_PEER_CORRUPT;
    } else if (direct > 0 && staged > h->slow_margin * direct) {
        peer_test_conclude(h, HD_PEER_SLOW, "bytes arrive, but at %.3g GB/s, and through pinned memory at %.3g GB/s",
                           direct / 1e9, staged / 1e9);
    } else {
        peer_test_conclude(h, HD_PEER_USABLE, "%s", "");
    }
    h->in_pair = false;
    return HDI_PARSED_RESULT;
}

hdi_parsed hdi_peer_parser_take(hdi_peer_parser *h, const hdi_probe_record *r)
{
    if (r->magic != HDI_PROBE_MAGIC || r->version != HDI_PROBE_VERSION || h->ended || h->failed_open) {
        return HDI_PARSED_MALFORMED;
    }
    /* after a verdict only the end of the pair may follow */
    bool over = h->in_pair && h->decided;
    if (over ? r->kind != HDI_PROBE_RECORD_PAIR_END
             : !h->in_pair && r->kind > HDI_PROBE_RECORD_STEP && r->kind != HDI_PROBE_RECORD_END) {
        return r->kind == HDI_PROBE_RECORD_FAILED && h->current < 0 ? peer_test_take_failed(h, r)
                                                                    : HDI_PARSED_MALFORMED;
    }
    switch (r->kind) {
    case HDI_PROBE_RECORD_PAIR:
        return peer_test_begin_pair(h, r);
    case HDI_PROBE_RECORD_STEP:
        return peer_test_begin_step(h, r);
    case HDI_PROBE_RECORD_WRONG:
    case HDI_PROBE_RECORD_BESIDE:
    case HDI_PROBE_RECORD_MISCOUNT:
        return peer_test_take_wrong(h, r);
    case HDI_PROBE_RECORD_FAILED:
        return peer_test_take_failed(h, r);
    case HDI_PROBE_RECORD_REFUSED:
        return peer_test_take_refused(h, r);
    case HDI_PROBE_RECORD_COUNTS:
        h->info.atomics = h->step.step == HDI_STEP_COUNT;
        return h->info.atomics ? HDI_PARSED_MORE : HDI_PARSED_MALFORMED;
    case HDI_PROBE_RECORD_RATES:
        return peer_test_take_rates(h, r);
    case HDI_PROBE_RECORD_PAIR_END:
        return peer_test_end_pair(h);
    case HDI_PROBE_RECORD_END:
        h->ended = !h->in_pair && h->current == h->n - 1;
        return h->ended ? HDI_PARSED_END : HDI_PARSED_MALFORMED;
    default:
        return HDI_PARSED_MALFORMED;
    }
}

/* ---- verdicts: the end ---- */

bool hdi_peer_parser_end(hdi_peer_parser *h, hdi_ending ending, int detail)
{
    if ((h->current >= 0 && !h->in_pair) || (h->decided && (h->in_pair || h->failed_open))) {
        bool open = h->in_pair || h->failed_open;
        h->in_pair = false;
        return open;
    }
    if (h->in_pair && h->untimed) { /* the program may end here */
        peer_test_conclude(h, HD_PEER_USABLE, "%s", "");
        h->in_pair = false;
        return true;
    }
    char what[128], how[64];
    peer_test_describe_step(&h->step, what, sizeof what);
    switch (ending) {
    case HDI_ENDING_EXIT:
        snprintf(how, sizeof how, "ended with status %d", detail);
        break;
    case HDI_ENDING_SIGNAL:
        snprintf(how, sizeof how, "was killed by signal %d", detail);
        break;
    case HDI_ENDING_SILENT:
        snprintf(how, sizeof how, "hung (for %d ms)", detail);
        break;
    case HDI_ENDING_MALFORMED:
        snprintf(how, sizeof how, "sent what is not of this version of Heddle");
        break;
    default:
        snprintf(how, sizeof how, "ended, it is not known how,");
        break;
    }
    bool own = ending != HDI_ENDING_MALFORMED && (ending != HDI_ENDING_SIGNAL || hdi_signal_is_crash(detail));
    bool guilty = h->in_pair && h->risky && h->step.step != HDI_STEP_TIME_STAGED && own;
    peer_test_conclude(h, guilty ? HD_PEER_CORRUPT : HD_PEER_INCONCLUSIVE, "the test %s while %s", how, what);
    h->in_pair = false;
    return true;
}

/* ---- processes that did not end in time: each later test reaps those that ended ---- */

static hdi_mutex lingering_lock = HDI_MUTEX_INIT(LINGERING);
static hdi_process lingering[LINGERING_MAX];
static int n_lingering;

static void peer_test_close_process(hdi_process *process)
{
    if (process->pidfd >= 0) {
        close(process->pidfd);
    }
    *process = (hdi_process){0, -1};
}

/* True: the process ended, or is no longer a child of this process (then si_pid is 0). */
static bool peer_test_process_ended(const hdi_process *process, siginfo_t *info)
{
    return !hdi_process_look(process, info) || (info->si_pid == process->pid && info->si_code != CLD_STOPPED &&
                                                info->si_code != CLD_CONTINUED && info->si_code != CLD_TRAPPED);
}

static void peer_test_reap_lingering(hdi_process *also)
{
    hdi_mutex_lock(&lingering_lock);
    for (int i = n_lingering - 1; i >= 0; i--) {
        siginfo_t info;
        if (peer_test_process_ended(&lingering[i], &info)) {
            peer_test_close_process(&lingering[i]);
            lingering[i] = lingering[--n_lingering];
        }
    }
    if (also && n_lingering < LINGERING_MAX) {
        lingering[n_lingering++] = *also;
        *also = (hdi_process){0, -1};
    }
    hdi_mutex_unlock(&lingering_lock);
}

/* Waits for the end of the process. False: it did not end. */
static bool peer_test_await_end(const hdi_process *process, int64_t deadline, siginfo_t *info)
{
    while (!peer_test_process_ended(process, info)) {
        int64_t left = deadline - hdi_clock_ns();
        if (left <= 0) {
            return false;
        }
        if (process->pidfd >= 0) {
            struct pollfd p = {.fd = process->pidfd, .events = POLLIN};
            poll(&p, 1, (int)(left / 1000000) + 1);
        } else {
            hdi_sleep_for(END_SLEEP_NS);
        }
    }
    return true;
}

/* ---- one run ---- */

typedef struct run {
    const hdi_test *test;
    hdi_pair *pairs;
    bool *is_settled;
    hdi_peer_parser parser;
    hdi_process process;
    int pipe;
    unsigned char bytes[sizeof(hdi_probe_record)]; /* the bytes of an incomplete record */
    size_t n_bytes;
} run;

static void peer_test_settle(run *r, int index)
{
    hd_peer_info info = r->parser.info;
    r->is_settled[index] = true;
    r->test->settled(r->test->context, &r->pairs[index], &info, false);
}

static bool peer_test_is_ended(const hdi_test *test)
{
    return test->ended && atomic_load_explicit(test->ended, memory_order_relaxed);
}

/* Gives the result `info` to all pairs that are not settled yet. `is_settled` NULL: no pair is
 * settled. */
static void peer_test_give_up(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled,
                              const hd_peer_info *info, bool fleeting)
{
    for (int i = 0; i < n; i++) {
        if (!is_settled || !is_settled[i]) {
            test->settled(test->context, &pairs[i], info, fleeting);
        }
        if (is_settled) {
            is_settled[i] = true;
        }
    }
}

static void peer_test_not_started(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled, int error)
{
    bool fleeting = error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
    hd_peer_info info = hdi_peer_inconclusive("the program " HDI_PROBE_NAME " cannot be started: %s", strerror(error));
    peer_test_give_up(test, pairs, n, is_settled, &info, fleeting);
}

static void peer_test_not_wanted(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled)
{
    hd_peer_info info = hdi_peer_inconclusive("the runtime was closed before the test was over");
    peer_test_give_up(test, pairs, n, is_settled, &info, true);
}

/* Writes the UUIDs of the devices. */
static void peer_test_make_names(const hdi_test *test, const int *devices, int n_devices,
                                 char out[HDI_TEST_DEVICES * 32 + 1])
{
    char *at = out;
    for (int i = 0; i < n_devices; i++) {
        for (int k = 0; k < 16; k++) {
            at += sprintf(at, "%02x", test->uuids[devices[i]][k]);
        }
    }
}

/* Writes the devices into the settings ("0:2:5"), and the list of pairs ("0>1,1>0"). False: too
 * long. */
static bool peer_test_make_arguments(const hdi_test *test, const hdi_pair *pairs, int n, const int *devices,
                                     int n_devices, char *settings, size_t settings_bytes, char *list,
                                     size_t list_bytes)
{
    int used = snprintf(settings, settings_bytes, "%s devices=", test->settings);
    for (int i = 0; i < n_devices && used < (int)settings_bytes; i++) {
        used +=
            snprintf(settings + used, settings_bytes - (size_t)used, "%s%d", i ? ":" : "", test->ordinals[devices[i]]);
    }
    int listed = 0;
    for (int i = 0; i < n && listed < (int)list_bytes; i++) {
        listed += snprintf(list + listed, list_bytes - (size_t)listed, "%s%d>%d", i ? "," : "", pairs[i].device_at,
                           pairs[i].owner_at);
    }
    return used < (int)settings_bytes && listed < (int)list_bytes;
}

/* Returns errno. */
static int peer_test_start(run *r, char *settings, char *list, char *names)
{
    int ends[2];
    if (hdi_descriptor_pipe(ends) != 0) {
        return errno;
    }
    int e = hdi_spawn_lift(&ends[1]) ? 0 : errno;
    if (!e) {
        char name[] = HDI_PROBE_NAME;
        char *arguments[] = {name, settings, list, names, NULL};
        e = hdi_spawn(r->test->program, arguments, &ends[1], 1, false, &r->process);
    }
    close(ends[1]);
    if (e) {
        close(ends[0]);
    } else {
        r->pipe = ends[0];
        fcntl(r->pipe, F_SETFL, O_NONBLOCK);
    }
    return e;
}

/* Completes the record in r->bytes. False: the pipe is empty now; *closed: nothing more will
 * come. */
static bool peer_test_complete_record(run *r, bool *closed)
{
    *closed = false;
    while (r->n_bytes < sizeof r->bytes) { /* the condition shows the compiler that the bytes fit */
        ssize_t n = read(r->pipe, r->bytes + r->n_bytes, sizeof r->bytes - r->n_bytes);
        if (n > 0) {
            r->n_bytes += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            *closed = n == 0 || errno != EAGAIN;
            return false;
        }
    }
    r->n_bytes = 0;
    return true;
}

/* Reads everything in the pipe now. HDI_PARSED_MORE: more may come later. *closed: nothing more
 * will come. A new pair gets a new deadline. */
static hdi_parsed peer_test_listen_now(run *r, int64_t *deadline, bool *closed)
{
    while (peer_test_complete_record(r, closed)) {
        hdi_probe_record record;
        memcpy(&record, r->bytes, sizeof record);
        hdi_parsed parsed = hdi_peer_parser_take(&r->parser, &record);
        if (parsed == HDI_PARSED_RESULT) {
            peer_test_settle(r, r->parser.current);
        }
        if (parsed == HDI_PARSED_PAIR) {
            *deadline = hdi_deadline(r->test->limit_ms * 1000000);
        }
        if (parsed == HDI_PARSED_MALFORMED || parsed == HDI_PARSED_END || hdi_clock_ns() > *deadline) {
            return parsed; /* the deadline also ends a program that never stops sending */
        }
    }
    return HDI_PARSED_MORE;
}

/* Reads until the program sent everything, ended, or takes too long for a pair. Time in which this
 * process did not read does not count against the limit: perhaps it was stopped, or its progress
 * callback is slow. */
static hdi_ending peer_test_listen_all(run *r)
{
    int64_t deadline = hdi_deadline(r->test->limit_ms * 1000000), looked = hdi_clock_ns();
    for (;;) {
        /* poll comes before read, so everything that an ended program wrote is read. */
        struct pollfd polled[2] = {{.fd = r->pipe, .events = POLLIN}, {.fd = r->process.pidfd, .events = POLLIN}};
        if (peer_test_is_ended(r->test)) {
            return HDI_ENDING_UNWANTED;
        }
        int64_t left = deadline - hdi_clock_ns();
        int64_t ms = left <= 0 ? 0 : left / 1000000 + 1;
        int ready = poll(polled, 2, ms > LOOK_MS ? LOOK_MS : (int)ms);
        bool gone = ready > 0 && polled[1].revents, closed;
        int64_t now = hdi_clock_ns();
        /* LOOK_MS of each such gap still counts, so that the wait ends on any machine */
        if (now - looked > HELD_UP_NS) {
            deadline += now - looked - LOOK_MS * 1000000;
        }
        looked = now;
        /* the wait is limited, in case another process holds the pipe open */
        int64_t rest = hdi_deadline(END_NS);
        hdi_parsed parsed = peer_test_listen_now(r, gone ? &rest : &deadline, &closed);
        if (parsed == HDI_PARSED_MALFORMED) {
            return HDI_ENDING_MALFORMED;
        }
        if (parsed == HDI_PARSED_END || closed || gone) {
            return HDI_ENDING_EXIT;
        }
        now = hdi_clock_ns();
        if (now > deadline && now - looked <= HELD_UP_NS) {
            return HDI_ENDING_SILENT;
        }
    }
}

/* Ends the process, from which nothing more is read, and settles its pairs. */
static void peer_test_finish(run *r, hdi_ending ending)
{
    int detail = (int)r->test->limit_ms;
    siginfo_t info = {0};
    bool ended = false;
    if (ending == HDI_ENDING_EXIT) {
        ended = peer_test_await_end(&r->process, hdi_deadline(END_NS), &info);
        ending = !ended                       ? HDI_ENDING_GONE
                 : info.si_pid == 0           ? HDI_ENDING_GONE
                 : info.si_code == CLD_EXITED ? HDI_ENDING_EXIT
                                              : HDI_ENDING_SIGNAL;
        detail = info.si_status;
    }
    if (!ended) {
        hdi_process_kill(&r->process);
        ended =
            peer_test_await_end(&r->process, hdi_deadline(ending == HDI_ENDING_UNWANTED ? LEAVE_NS : END_NS), &info);
    }
    if (!ended) {
        peer_test_reap_lingering(&r->process);
    }
    peer_test_close_process(&r->process);
    close(r->pipe);
    if (ending == HDI_ENDING_UNWANTED) {
        peer_test_not_wanted(r->test, r->pairs, r->parser.n, r->is_settled);
    } else if (hdi_peer_parser_end(&r->parser, ending, detail)) {
        for (int i = 0; i < r->parser.n; i++) {
            if (!r->is_settled[i] && (r->parser.current == i || r->parser.current < 0)) {
                peer_test_settle(r, i);
            }
        }
    }
}

/* The arguments of a process, which are too large for the stacks of some threads. */
typedef struct texts {
    char settings[16384], list[4096], names[HDI_TEST_DEVICES * 32 + 1];
} texts;

/* Returns errno. */
static int peer_test_start_for(run *r, int n, const int *devices, int n_devices)
{
    texts *t = malloc(sizeof *t);
    if (t == NULL) {
        return ENOMEM;
    }
    t->names[0] = 0;
    peer_test_make_names(r->test, devices, n_devices, t->names);
    int e = peer_test_make_arguments(r->test, r->pairs, n, devices, n_devices, t->settings, sizeof t->settings, t->list,
                                     sizeof t->list)
                ? peer_test_start(r, t->settings, t->list, t->names)
                : E2BIG;
    free(t);
    return e;
}

/* Runs one process for the pairs. False, only with `together`: the process did not reach the first
 * pair, so no pair gets a result. */
static bool peer_test_run_once(const hdi_test *test, hdi_pair *pairs, int n, const int *devices, int n_devices,
                               bool together, bool *is_settled)
{
    run r = {.test = test, .pairs = pairs, .is_settled = is_settled, .process = {0, -1}, .pipe = -1};
    hdi_peer_parser_begin(&r.parser, pairs, n, test->slow_margin);
    int e = peer_test_start_for(&r, n, devices, n_devices);
    if (e) {
        peer_test_not_started(test, pairs, n, is_settled, e);
        return true;
    }
    hdi_ending ending = peer_test_listen_all(&r);
    if (together && r.parser.current < 0 && ending != HDI_ENDING_UNWANTED) {
        r.parser.n = 0; /* no pair gets a result here */
        peer_test_finish(&r, ending);
        return false;
    }
    peer_test_finish(&r, ending);
    return true;
}

/* ---- many pairs ---- */

static int peer_test_position_of(int *devices, int *n, int device, int most)
{
    for (int i = 0; i < *n; i++) {
        if (devices[i] == device) {
            return i;
        }
    }
    if (*n == most) {
        return -1;
    }
    devices[*n] = device;
    return (*n)++;
}

/* Chooses pairs that together use no more than `most` devices, and moves them to the front of the
 * array. Returns the number of these pairs. */
static int peer_test_gather(hdi_pair *pairs, int n, int most, int *devices, int *n_devices)
{
    int gathered = 0;
    *n_devices = 0;
    for (int i = 0; i < n; i++) {
        int before = *n_devices;
        int device_at = peer_test_position_of(devices, n_devices, pairs[i].device, most);
        int owner_at = device_at < 0 ? -1 : peer_test_position_of(devices, n_devices, pairs[i].owner, most);
        if (owner_at < 0) {
            *n_devices = before;
            continue;
        }
        hdi_pair pair = {pairs[i].device, pairs[i].owner, device_at, owner_at};
        memmove(&pairs[gathered + 1], &pairs[gathered], (size_t)(i - gathered) * sizeof *pairs);
        pairs[gathered++] = pair;
    }
    return gathered;
}

void hdi_test_pairs(const hdi_test *test, hdi_pair *pairs, int n)
{
    peer_test_reap_lingering(NULL);
    bool *is_settled = calloc((size_t)n + 1, sizeof *is_settled);
    int most = HDI_TEST_DEVICES;
    while (n > 0) {
        int devices[HDI_TEST_DEVICES], n_devices;
        int now = peer_test_gather(pairs, n, most, devices, &n_devices);
        if (!is_settled) {
            peer_test_not_started(test, pairs, n, NULL, ENOMEM);
            return;
        }
        memset(is_settled, 0, (size_t)n * sizeof *is_settled);
        if (peer_test_is_ended(test)) {
            peer_test_not_wanted(test, pairs, n, is_settled);
            break;
        }
        if (!peer_test_run_once(test, pairs, now, devices, n_devices, n_devices > 2, is_settled)) {
            /* perhaps one of the devices keeps the process from opening the others, so from now on
             * each process tests only two devices */
            most = 2;
            continue;
        }
        /* If a pair ended the program, another process tests the pairs behind it. */
        int left = 0;
        for (int i = 0; i < n; i++) {
            if (!is_settled[i]) {
                pairs[left++] = pairs[i];
            }
        }
        n = left;
    }
    free(is_settled);
}
