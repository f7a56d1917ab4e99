/* test.c - runs heddle-probe and reads its records.
 *
 * Threads, locks, blocking, and what always holds: see test.h.
 */
#include "peer/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/lock.h"
#include "base/wait.h"
#include "process/spawn.h"

#define END_NS 5000000000    /* time for a process to end after its last record, or after it was killed */
#define LEAVE_NS 2000000000  /* the same where the results are not needed any more: hd_close waits for it */
#define END_SLEEP_NS 1000000 /* between checks for its end, on kernels without pidfd */
#define LOOK_MS 25           /* between checks whether this process was stopped, and whether *ended is set */
#define HELD_UP_NS 1000000000
#define LINGERING_MAX 64

/* ---- processes that did not end in time: each later test reaps those that have ended ---- */

static hdi_mutex lingering_lock = HDI_MUTEX_INIT(LINGERING);
static hdi_process lingering[LINGERING_MAX];
static int n_lingering;

static void close_process(hdi_process *process)
{
    if (process->pidfd >= 0) {
        close(process->pidfd);
    }
    *process = (hdi_process){0, -1};
}

/* True: the process has ended, or is no child of this process any more (then si_pid is 0). */
static bool has_ended(const hdi_process *process, siginfo_t *info)
{
    return !hdi_process_look(process, info) || (info->si_pid == process->pid && info->si_code != CLD_STOPPED &&
                                                info->si_code != CLD_CONTINUED && info->si_code != CLD_TRAPPED);
}

static void reap_lingering(hdi_process *also)
{
    hdi_mutex_lock(&lingering_lock);
    for (int i = n_lingering - 1; i >= 0; i--) {
        siginfo_t info;
        if (has_ended(&lingering[i], &info)) {
            close_process(&lingering[i]);
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
static bool await_end(const hdi_process *process, int64_t deadline, siginfo_t *info)
{
    while (!has_ended(process, info)) {
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
    unsigned char bytes[sizeof(hdi_record)]; /* of a record that is not complete */
    size_t n_bytes;
} run;

static void settle(run *r, int index)
{
    hd_peer_info info = r->parser.info;
    r->is_settled[index] = true;
    r->test->settled(r->test->context, &r->pairs[index], &info, false);
}

static bool is_ended(const hdi_test *test)
{
    return test->ended && atomic_load_explicit(test->ended, memory_order_relaxed);
}

/* Gives all pairs that are not settled the result `info`. `is_settled` may be NULL. */
static void give_up(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled, const hd_peer_info *info,
                    bool fleeting)
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

static void not_started(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled, int error)
{
    bool fleeting = error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
    hd_peer_info info = hdi_peer_inconclusive("the program " HDI_PROBE_NAME " cannot be started: %s", strerror(error));
    give_up(test, pairs, n, is_settled, &info, fleeting);
}

static void not_wanted(const hdi_test *test, const hdi_pair *pairs, int n, bool *is_settled)
{
    hd_peer_info info = hdi_peer_inconclusive("the runtime was closed before the test was over");
    give_up(test, pairs, n, is_settled, &info, true);
}

/* Writes the UUIDs of the devices. */
static void make_names(const hdi_test *test, const int *devices, int n_devices, char out[HDI_TEST_DEVICES * 32 + 1])
{
    char *at = out;
    for (int i = 0; i < n_devices; i++) {
        for (int k = 0; k < 16; k++) {
            at += sprintf(at, "%02x", test->uuids[devices[i]][k]);
        }
    }
}

/* Writes the devices into the settings ("0:2:5"), and the list of pairs ("0>1,1>0"). False: too long. */
static bool make_arguments(const hdi_test *test, const hdi_pair *pairs, int n, const int *devices, int n_devices,
                           char *settings, size_t settings_bytes, char *list, size_t list_bytes)
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
static int start(run *r, char *settings, char *list, char *names)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    int e = hdi_spawn_lift(&ends[1]) ? 0 : errno;
    if (!e) {
        char name[] = HDI_PROBE_NAME;
        char *arguments[] = {name, settings, list, names, NULL};
        e = hdi_spawn(r->test->program, arguments, &ends[1], 1, &r->process);
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

/* Reads all that is in the pipe now. HDI_PARSED_MORE: there may be more later. *closed: there will be nothing more. A
 * new pair gets a new deadline. */
static hdi_parsed listen_now(run *r, int64_t *deadline, bool *closed)
{
    *closed = false;
    for (;;) {
        ssize_t n = read(r->pipe, r->bytes + r->n_bytes, sizeof r->bytes - r->n_bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            *closed = n == 0 || errno != EAGAIN;
            return HDI_PARSED_MORE;
        }
        r->n_bytes += (size_t)n;
        if (r->n_bytes < sizeof r->bytes) {
            continue;
        }
        hdi_record record;
        memcpy(&record, r->bytes, sizeof record);
        r->n_bytes = 0;
        hdi_parsed parsed = hdi_peer_parser_take(&r->parser, &record);
        if (parsed == HDI_PARSED_RESULT) {
            settle(r, r->parser.current);
        }
        if (parsed == HDI_PARSED_PAIR) {
            *deadline = hdi_deadline(r->test->limit_ms * 1000000);
        }
        if (parsed == HDI_PARSED_MALFORMED || parsed == HDI_PARSED_END || hdi_clock_ns() > *deadline) {
            return parsed; /* the deadline also ends a program that never stops sending */
        }
    }
}

/* Reads until the program has sent all, has ended, or has sent nothing for too long. Time in which this process did not
 * read does not count: it may have been stopped, or its progress callback may have taken long. */
static hdi_ending listen_all(run *r)
{
    int64_t deadline = hdi_deadline(r->test->limit_ms * 1000000), looked = hdi_clock_ns();
    for (;;) {
        /* poll comes before read, so all that an ended program has written is read. */
        struct pollfd polled[2] = {{.fd = r->pipe, .events = POLLIN}, {.fd = r->process.pidfd, .events = POLLIN}};
        if (is_ended(r->test)) {
            return HDI_ENDING_UNWANTED;
        }
        int64_t left = deadline - hdi_clock_ns();
        int64_t ms = left <= 0 ? 0 : left / 1000000 + 1;
        int ready = poll(polled, 2, ms > LOOK_MS ? LOOK_MS : (int)ms);
        bool gone = ready > 0 && polled[1].revents, closed;
        int64_t now = hdi_clock_ns();
        if (now - looked > HELD_UP_NS) { /* LOOK_MS of it does count, so that there is an end on any machine */
            deadline += now - looked - LOOK_MS * 1000000;
        }
        looked = now;
        int64_t rest = hdi_deadline(END_NS); /* a limit, in case another process holds the pipe open */
        hdi_parsed parsed = listen_now(r, gone ? &rest : &deadline, &closed);
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

/* Ends the process, which sends nothing more, and settles its pairs. */
static void finish(run *r, hdi_ending ending)
{
    int detail = (int)r->test->limit_ms;
    siginfo_t info = {0};
    bool ended = false;
    if (ending == HDI_ENDING_EXIT) {
        ended = await_end(&r->process, hdi_deadline(END_NS), &info);
        ending = !ended                       ? HDI_ENDING_GONE
                 : info.si_pid == 0           ? HDI_ENDING_GONE
                 : info.si_code == CLD_EXITED ? HDI_ENDING_EXIT
                                              : HDI_ENDING_SIGNAL;
        detail = info.si_status;
    }
    if (!ended) {
        hdi_process_kill(&r->process);
        ended = await_end(&r->process, hdi_deadline(ending == HDI_ENDING_UNWANTED ? LEAVE_NS : END_NS), &info);
    }
    if (!ended) {
        reap_lingering(&r->process);
    }
    close_process(&r->process);
    close(r->pipe);
    if (ending == HDI_ENDING_UNWANTED) {
        not_wanted(r->test, r->pairs, r->parser.n, r->is_settled);
    } else if (hdi_peer_parser_end(&r->parser, ending, detail)) {
        for (int i = 0; i < r->parser.n; i++) {
            if (!r->is_settled[i] && (r->parser.current == i || r->parser.current < 0)) {
                settle(r, i);
            }
        }
    }
}

/* Runs one process for the pairs. False: with `together`, it did not come as far as the first pair, so no pair has a
 * result. */
static bool run_once(const hdi_test *test, hdi_pair *pairs, int n, const int *devices, int n_devices, bool together,
                     bool *is_settled)
{
    char settings[16384], list[4096], names[HDI_TEST_DEVICES * 32 + 1] = "";
    run r = {.test = test, .pairs = pairs, .is_settled = is_settled, .process = {0, -1}, .pipe = -1};
    hdi_peer_parser_begin(&r.parser, pairs, n, test->slow_margin);
    make_names(test, devices, n_devices, names);
    int e = make_arguments(test, pairs, n, devices, n_devices, settings, sizeof settings, list, sizeof list)
                ? start(&r, settings, list, names)
                : E2BIG;
    if (e) {
        not_started(test, pairs, n, is_settled, e);
        return true;
    }
    hdi_ending ending = listen_all(&r);
    if (together && r.parser.current < 0 && ending != HDI_ENDING_UNWANTED) {
        r.parser.n = 0; /* no pair gets a result here */
        finish(&r, ending);
        return false;
    }
    finish(&r, ending);
    return true;
}

/* ---- many pairs ---- */

static int position_of(int *devices, int *n, int device, int most)
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

/* Moves pairs to the front that have no more than `most` devices between them. Returns how many. */
static int gather(hdi_pair *pairs, int n, int most, int *devices, int *n_devices)
{
    int gathered = 0;
    *n_devices = 0;
    for (int i = 0; i < n; i++) {
        int before = *n_devices;
        int device_at = position_of(devices, n_devices, pairs[i].device, most);
        int owner_at = device_at < 0 ? -1 : position_of(devices, n_devices, pairs[i].owner, most);
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
    reap_lingering(NULL);
    bool *is_settled = calloc((size_t)n + 1, sizeof *is_settled);
    int most = HDI_TEST_DEVICES;
    while (n > 0) {
        int devices[HDI_TEST_DEVICES], n_devices;
        int now = gather(pairs, n, most, devices, &n_devices);
        if (!is_settled) {
            not_started(test, pairs, n, NULL, ENOMEM);
            return;
        }
        memset(is_settled, 0, (size_t)n * sizeof *is_settled);
        if (is_ended(test)) {
            not_wanted(test, pairs, n, is_settled);
            break;
        }
        if (!run_once(test, pairs, now, devices, n_devices, n_devices > 2, is_settled)) {
            most = 2; /* one of the devices keeps the others from being opened, so from now on two at a time */
            continue;
        }
        /* Pairs behind the one that ended the program are left for another process. */
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
