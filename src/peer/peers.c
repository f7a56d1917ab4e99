/* peers.c - the table of results of pairs of devices, and the ways to get a result.
 *
 * A result comes from the first of three sources that can give one:
 * 1. The driver's own report, which costs nothing.
 * 2. The result files.
 * 3. The test, whose results go into the table and into files.
 *
 * To use sources 2 and 3, a thread needs the turn. The thread marks the pairs that it asks about,
 * so that other threads wait for the results of these pairs.
 *
 * Threads, locks, blocking, and guarantees: see peers.h.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "engine/engine.h"
#include "peer/part.h"
#include "peer/peers.h"
#include "peer/test.h"
#include "process/spawn.h"
#include "worker/workers.h"

#define HOST_MEMORY "256M" /* memory of each host device during a test */

typedef struct entry {
    hd_peer_info info; /* verdict UNKNOWN: no result */
    /* The last refusal to map the memory in this process. Verdict REFUSED: the refusal counts, even
     * if the test found no fault. Verdict UNKNOWN: nothing was refused, or the refusal may be
     * temporary. */
    hd_peer_info refused;
    bool fleeting; /* for an inconclusive result: another test may soon find a verdict */
    bool asked;    /* the thread with the turn is about to get a result */
} entry;

struct hdi_peers {
    hdi_mutex lock;
    pthread_cond_t changed; /* an entry or the turn changed */
    bool turn_taken;
    pthread_t turn_owner;
    int n_waiting;      /* threads that wait for the turn and need a result now */
    _Atomic bool ended; /* hd_close: no test begins or goes on, and no thread waits for one */
    /* Constant from here to `cache`. Paths are absolute, since the application may change its
     * folder. */
    char program[PATH_MAX]; /* "": none */
    /* the message that explains why there is no program */
    char why_none[sizeof(hd_error)];
    const char *worker;                         /* the worker program; "": none */
    char cache[PATH_MAX];                       /* the value of the option; a path is absolute */
    entry of[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* under lock; by device and owner */
};

/* Finds the test program and the folder of results. */
static void peers_find_places(hd_runtime *rt)
{
    struct hdi_peers *peers = hdi_peer_of(rt)->peers;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    if (hdi_program_find(HDI_PROBE_NAME, "probe", rt->options.probe, "a test of peer access", peers->program,
                         sizeof peers->program) != HD_OK) {
        /* hd_open does not fail for lack of the program; all pairs are then inconclusive */
        peers->program[0] = 0;
        snprintf(peers->why_none, sizeof peers->why_none, "%s", attempt.error.message);
    }
    hdi_attempt_end(&attempt);
    const char *cache = rt->options.cache;
    char here[PATH_MAX] = "";
    bool relative = cache[0] && cache[0] != '/' && strcmp(cache, "none") != 0;
    if (relative && !getcwd(here, sizeof here)) {
        relative = false;
        cache = "none";
    }
    int n = snprintf(peers->cache, sizeof peers->cache, "%s%s%s", here, relative ? "/" : "", cache);
    if (n < 0 || (size_t)n >= sizeof peers->cache) {
        strcpy(peers->cache, "none");
    }
}

static hd_status peers_create(hd_runtime *rt)
{
    hdi_peer_of(rt)->peers = calloc(1, sizeof *hdi_peer_of(rt)->peers);
    if (!hdi_peer_of(rt)->peers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    /* the worker program, which tests use, too */
    hdi_peer_of(rt)->peers->worker = hdi_worker_program(rt);
    peers_find_places(rt);
    hdi_mutex_init(&hdi_peer_of(rt)->peers->lock, HDI_RANK_PEERS);
    pthread_cond_init(&hdi_peer_of(rt)->peers->changed, NULL);
    return HD_OK;
}

static void peers_release(hd_runtime *rt)
{
    if (hdi_peer_of(rt)->peers) {
        pthread_cond_destroy(&hdi_peer_of(rt)->peers->changed);
        hdi_mutex_destroy(&hdi_peer_of(rt)->peers->lock);
        free(hdi_peer_of(rt)->peers);
        hdi_peer_of(rt)->peers = NULL;
    }
}

const hdi_lifetime hdi_peers_lifetime = {.create = peers_create, .release = peers_release};

void hdi_peers_end(hd_runtime *rt)
{
    struct hdi_peers *peers = hdi_peer_of(rt)->peers;
    hdi_mutex_lock(&peers->lock);
    atomic_store_explicit(&peers->ended, true, memory_order_relaxed);
    pthread_cond_broadcast(&peers->changed);
    hdi_mutex_unlock(&peers->lock);
}

static bool peers_are_ended(const struct hdi_peers *peers)
{
    return atomic_load_explicit(&peers->ended, memory_order_relaxed);
}

const char *hdi_peers_program(const hd_runtime *rt)
{
    return ((const hdi_peer_part *)rt)->peers->program;
}

/* The present result of a pair. The caller holds the lock. */
static hd_peer_info peers_knowledge(const struct hdi_peers *peers, int device, int owner)
{
    const entry *e = &peers->of[device][owner];
    if (e->refused.verdict != HD_PEER_UNKNOWN) {
        return e->refused;
    }
    return e->info.verdict != HD_PEER_UNKNOWN ? e->info : hdi_peer_blank();
}

static bool peers_verdict_is_good(hd_peer_verdict verdict)
{
    return verdict == HD_PEER_USABLE || verdict == HD_PEER_SLOW;
}

/* ---- results without a test ---- */

/* If the driver's own report decides the result, sets *out to it. False: the report does not decide
 * it. */
static bool peers_driver_decides(const hd_runtime *rt, int device, int owner, hd_peer_info *out)
{
    *out = hdi_peer_blank();
    if (device == owner) {
        out->verdict = HD_PEER_USABLE;
        out->atomics = true;
        return true;
    }
    if (hdi_peers_offered(rt, device, owner)) {
        return false;
    }
    out->verdict = HD_PEER_REFUSED;
    snprintf(out->reason, sizeof out->reason, "%s",
             rt->devices[device]->facts.peers >> owner & 1
                 ? "the driver reports that the devices can be peers, but that access is not supported between them"
                 : "the driver reports no peer access between them");
    return true;
}

bool hdi_peers_known(hd_runtime *rt, int device, int owner, hd_peer_info *out)
{
    bool known = true;
    if (!peers_driver_decides(rt, device, owner, out)) {
        hdi_mutex_lock(&hdi_peer_of(rt)->peers->lock);
        *out = peers_knowledge(hdi_peer_of(rt)->peers, device, owner);
        known = out->verdict != HD_PEER_UNKNOWN &&
                !(out->verdict == HD_PEER_INCONCLUSIVE && hdi_peer_of(rt)->peers->of[device][owner].fleeting);
        hdi_mutex_unlock(&hdi_peer_of(rt)->peers->lock);
    }
    return known;
}

/* ---- results ---- */

/* Updates hdi_device.peer_access after a result of the pair. It then states that the pair is used,
 * or not used, or that the next use looks the result up. */
static void peers_apply(hd_runtime *rt, int device, int owner, hd_peer_verdict verdict)
{
    if (rt->options.peers != HDI_PEERS_VERIFY) {
        return; /* with these options, results matter only to functions that ask for them */
    }
    _Atomic uint8_t *reach = &rt->devices[device]->peer_access[owner];
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    uint8_t before = atomic_load_explicit(reach, memory_order_relaxed), after = before;
    if (verdict == HD_PEER_CORRUPT) {
        after = HDI_PEERS_NO;
    } else if (peers_verdict_is_good(verdict) && before == HDI_PEERS_NO) {
        after = HDI_PEERS_UNKNOWN;
    } else if (verdict == HD_PEER_SLOW && before == HDI_PEERS_YES) {
        after = HDI_PEERS_SLOW;
    } else if (verdict == HD_PEER_USABLE && before == HDI_PEERS_SLOW) {
        after = HDI_PEERS_YES;
    } else if (verdict == HD_PEER_USABLE && before == HDI_PEERS_SLOW_ASK) {
        after = HDI_PEERS_UNKNOWN;
    }
    /* if nothing changes, another thread's HDI_PEERS_SOUGHT stays */
    if (after != before) {
        atomic_store_explicit(reach, after, memory_order_release);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
}

static bool peers_verdict_is_known(hd_peer_verdict verdict)
{
    return verdict != HD_PEER_UNKNOWN && verdict != HD_PEER_INCONCLUSIVE;
}

/* Stores a result, unless it is inconclusive and a better one exists. */
static void peers_settle(hd_runtime *rt, int device, int owner, const hd_peer_info *info, bool fleeting)
{
    struct hdi_peers *peers = hdi_peer_of(rt)->peers;
    hdi_mutex_lock(&peers->lock);
    entry *e = &peers->of[device][owner];
    if (peers_verdict_is_known(info->verdict) || !peers_verdict_is_known(e->info.verdict)) {
        e->info = *info;
        e->fleeting = fleeting;
    }
    e->refused = hdi_peer_blank(); /* try mapping again */
    e->asked = false;
    pthread_cond_broadcast(&peers->changed);
    hdi_mutex_unlock(&peers->lock);
    peers_apply(rt, device, owner, info->verdict);
}

void hdi_peers_refuse(hd_runtime *rt, int device, int owner, int code, const char *call, bool for_good)
{
    entry *e = &hdi_peer_of(rt)->peers->of[device][owner];
    hdi_mutex_lock(&hdi_peer_of(rt)->peers->lock);
    e->refused = hdi_peer_blank();
    e->refused.verdict = for_good ? HD_PEER_REFUSED : HD_PEER_UNKNOWN;
    e->refused.driver_code = code > 0 ? code : 0;
    snprintf(e->refused.reason, sizeof e->refused.reason, "the driver does not map the memory: %s%s%s%s", call,
             call[0] ? ": " : "", hdi_driver_code_name(code),
             code == HDCU_ERROR_TOO_MANY_PEERS ? " (a device can use the memory of eight others at a time)" : "");
    hdi_mutex_unlock(&hdi_peer_of(rt)->peers->lock);
}

int hdi_peers_obstacle(hd_runtime *rt, int device, int owner, char out[HD_PEER_REASON_BYTES])
{
    hdi_mutex_lock(&hdi_peer_of(rt)->peers->lock);
    const hd_peer_info *refused = &hdi_peer_of(rt)->peers->of[device][owner].refused;
    int code = refused->driver_code;
    memcpy(out, refused->reason, HD_PEER_REASON_BYTES);
    hdi_mutex_unlock(&hdi_peer_of(rt)->peers->lock);
    return code;
}

void hdi_peers_forget(hd_runtime *rt, int device)
{
    hdi_mutex_lock(&hdi_peer_of(rt)->peers->lock);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_peer_of(rt)->peers->of[i][device].refused = hdi_peer_blank();
        hdi_peer_of(rt)->peers->of[device][i].refused = hdi_peer_blank();
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->peers->lock);
}

/* ---- getting results ---- */

/* The state of one turn. */
typedef struct inquiry {
    hd_runtime *rt;
    bool has_folder;
    char folder[PATH_MAX];
    int lock; /* the lock file; -1: none */
    hdi_pair *left;
    int n_left; /* pairs without a result yet */
    hdi_result_machine machine;
    hdi_result_key key;
    /* called with each result; may be NULL */
    void (*tell)(void *context, int device, int owner, const hd_peer_info *info);
    void *context;
} inquiry;

static bool peers_make_key(inquiry *q, int device, int owner)
{
    hd_runtime *rt = q->rt;
    const hdi_facts *d = &rt->devices[device]->facts, *o = &rt->devices[owner]->facts;
    const hdi_result_facts facts = {
        .boot = q->machine.boot,
        .kernel = q->machine.kernel,
        .driver = q->machine.driver,
        .program = q->machine.program,
        .provider = rt->provider->name,
        .placement = rt->is_process ? "process" : "thread",
        .faults = rt->provider->is_host ? rt->options.host_corrupt : "",
        .device_bus = d->bus_id,
        .owner_bus = o->bus_id,
        .device_uuid = d->uuid,
        .owner_uuid = o->uuid,
    };
    return hdi_result_key_make(&facts, &q->key);
}

/* Sets the facts that all results of this runtime depend on. */
static void peers_prepare(inquiry *q)
{
    hd_runtime *rt = q->rt;
    hdi_result_machine_read(rt->provider->version_file, rt->driver_version, hdi_peer_of(rt)->peers->program,
                            &q->machine);
    /* Without a boot id, nothing shows whether the machine was restarted, so no result file is
     * used. */
    q->has_folder =
        q->machine.boot[0] && hdi_results_folder(hdi_peer_of(rt)->peers->cache, q->folder, sizeof q->folder);
}

static void peers_tell(inquiry *q, int device, int owner, const hd_peer_info *info, bool fleeting)
{
    peers_settle(q->rt, device, owner, info, fleeting);
    if (q->tell) {
        q->tell(q->context, device, owner, info);
    }
}

/* Takes the pairs with a result of an earlier process out of the list. True: none is left. */
static bool peers_recall(void *context)
{
    inquiry *q = context;
    int left = 0;
    for (int i = 0; i < q->n_left; i++) {
        hd_peer_info info;
        int device = q->left[i].device, owner = q->left[i].owner;
        if (q->has_folder && peers_make_key(q, device, owner) && hdi_result_load(q->folder, &q->key, &info)) {
            hdi_peer_name_devices(&info, device, owner);
            peers_tell(q, device, owner, &info, false);
        } else {
            q->left[left++] = q->left[i];
        }
    }
    q->n_left = left;
    return left == 0;
}

static void peers_tested(void *context, const hdi_pair *pair, const hd_peer_info *found, bool fleeting)
{
    inquiry *q = context;
    if (q->has_folder && peers_make_key(q, pair->device, pair->owner)) {
        hdi_result_save(q->folder, &q->key, found);
        hdi_results_extend(q->lock);
    }
    hd_peer_info info = *found;
    hdi_peer_name_devices(&info, pair->device, pair->owner);
    peers_tell(q, pair->device, pair->owner, &info, fleeting);
}

/* Makes the settings for the test, which must use memory as this runtime does. Omits the faults in
 * the program's option `fault`, except for host_corrupt. */
static bool peers_make_settings(hd_runtime *rt, char *out, size_t bytes)
{
    const hdi_options *o = &rt->options;
    const char *worker = hdi_peer_of(rt)->peers->worker;
    if (strchr(worker, '"') || strchr(o->host_corrupt, '"')) {
        return false;
    }
    int n = snprintf(out, bytes,
                     "driver=%s placement=%s peers=trust cache=none worker=\"%s\" worker_timeout=%lld "
                     "host_devices=%lld host_memory=" HOST_MEMORY " host_peers=%s host_corrupt=\"%s\"",
                     rt->provider->name, rt->is_process ? "process" : "thread", worker, (long long)o->peer_timeout,
                     (long long)o->host_devices, HDI_OPTION_TEXT(o, host_peers),
                     rt->provider->is_host ? o->host_corrupt : "");
    return n > 0 && (size_t)n < bytes;
}

static void peers_test(inquiry *q)
{
    hd_runtime *rt = q->rt;
    hdi_pair *pairs = q->left;
    int n = q->n_left;
    char *settings = malloc(8192);
    int ordinals[HDI_DEVICES_MAX];
    uint8_t uuids[HDI_DEVICES_MAX][16];
    for (int i = 0; i < rt->n_devices; i++) {
        ordinals[i] = rt->devices[i]->ordinal;
        memcpy(uuids[i], rt->devices[i]->facts.uuid, sizeof uuids[i]);
    }
    /* the text after the call's name */
    const char *none = strchr(hdi_peer_of(rt)->peers->why_none, ':');
    hd_peer_info why_not = hdi_peer_inconclusive("%s", none ? none + 2 : "out of host memory");
    bool has_program = hdi_peer_of(rt)->peers->program[0] != 0;
    if (has_program && settings && !peers_make_settings(rt, settings, 8192)) {
        why_not = hdi_peer_inconclusive("the options worker and host_corrupt cannot be handed to the test");
    } else if (has_program && settings) {
        const hdi_test t = {.program = hdi_peer_of(rt)->peers->program,
                            .settings = settings,
                            .ordinals = ordinals,
                            .uuids = (const uint8_t(*)[16])uuids,
                            .limit_ms = rt->options.peer_timeout,
                            .slow_margin = rt->provider->peer_slow_margin,
                            .settled = peers_tested,
                            .context = q,
                            .ended = &hdi_peer_of(rt)->peers->ended};
        hdi_test_pairs(&t, pairs, n);
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        peers_tell(q, pairs[i].device, pairs[i].owner, &why_not, !settings);
    }
    free(settings);
}

/* Gets results for marked pairs. The caller holds the turn, but no locks. `again`: runs the test
 * even for pairs that have results. */
static void peers_find_out(hd_runtime *rt, hdi_pair *pairs, int n, bool again,
                           void (*tell_whom)(void *context, int device, int owner, const hd_peer_info *info),
                           void *context)
{
    inquiry *q = malloc(sizeof *q);
    if (!q) {
        hd_peer_info info = hdi_peer_inconclusive("there is no memory for the test");
        for (int i = 0; i < n; i++) {
            peers_settle(rt, pairs[i].device, pairs[i].owner, &info, true);
            if (tell_whom) {
                tell_whom(context, pairs[i].device, pairs[i].owner, &info);
            }
        }
        return;
    }
    memset(q, 0, sizeof *q);
    q->rt = rt;
    q->tell = tell_whom;
    q->context = context;
    q->left = pairs;
    q->n_left = n;
    q->lock = -1;
    peers_prepare(q);
    if (again || !peers_recall(q)) {
        /* Another process may hold the lock, and be about to get these results. So this thread
         * waits for the lock. */
        q->lock = !q->has_folder ? -1
                                 : hdi_results_lock(q->folder, rt->options.peer_timeout * 1000000,
                                                    again ? NULL : peers_recall, q, &hdi_peer_of(rt)->peers->ended);
        if (q->n_left > 0) {
            peers_test(q);
        }
        hdi_results_unlock(q->lock);
    }
    free(q);
}

/* ---- turns ---- */

/* True if a pair needs a result now. The caller holds the lock. */
static bool peers_pair_is_wanted(hd_runtime *rt, int device, int owner, bool inconclusive_too)
{
    const entry *e = &hdi_peer_of(rt)->peers->of[device][owner];
    return e->info.verdict == HD_PEER_UNKNOWN ||
           ((inconclusive_too || e->fleeting) && e->info.verdict == HD_PEER_INCONCLUSIVE);
}

/* Waits for the turn and takes it. The caller holds the lock, which is released during the wait.
 * `later`: lets threads that need a result now go first. False: the runtime is being closed. */
static bool peers_take_turn(struct hdi_peers *peers, bool later)
{
    peers->n_waiting += !later;
    while ((peers->turn_taken || (later && peers->n_waiting > 0)) && !peers_are_ended(peers)) {
        hdi_mutex_wait(&peers->lock, &peers->changed);
    }
    peers->n_waiting -= !later;
    if (peers_are_ended(peers)) {
        return false;
    }
    peers->turn_taken = true;
    peers->turn_owner = pthread_self();
    return true;
}

/* True if the calling thread holds the turn, as in a progress callback. The caller holds the
 * lock. */
static bool peers_has_turn(const struct hdi_peers *peers)
{
    return peers->turn_taken && pthread_equal(peers->turn_owner, pthread_self());
}

static void peers_give_turn(struct hdi_peers *peers)
{
    hdi_mutex_lock(&peers->lock);
    peers->turn_taken = false;
    pthread_cond_broadcast(&peers->changed);
    hdi_mutex_unlock(&peers->lock);
}

static void peers_ask_pair(hd_runtime *rt, int device, int owner, bool inconclusive_too, bool later, hd_peer_info *out)
{
    if (peers_driver_decides(rt, device, owner, out)) {
        return;
    }
    struct hdi_peers *peers = hdi_peer_of(rt)->peers;
    entry *e = &peers->of[device][owner];
    hdi_mutex_lock(&peers->lock);
    bool waited = peers_has_turn(peers), own = waited;
    while (e->asked && !own && !peers_are_ended(peers)) { /* another thread's result serves, too */
        waited = true;
        hdi_mutex_wait(&peers->lock, &peers->changed);
    }
    if (!own && peers_pair_is_wanted(rt, device, owner, inconclusive_too && !waited) && peers_take_turn(peers, later)) {
        hdi_pair pairs[2];
        int n = 0;
        if (peers_pair_is_wanted(rt, device, owner, inconclusive_too && !waited)) {
            pairs[n++] = (hdi_pair){.device = device, .owner = owner};
            if (hdi_peers_offered(rt, owner, device) && peers_pair_is_wanted(rt, owner, device, inconclusive_too)) {
                pairs[n++] = (hdi_pair){.device = owner, .owner = device};
            }
        }
        for (int i = 0; i < n; i++) {
            peers->of[pairs[i].device][pairs[i].owner].asked = true;
        }
        hdi_mutex_unlock(&peers->lock);
        if (n > 0) {
            peers_find_out(rt, pairs, n, false, NULL, NULL);
        }
        peers_give_turn(peers);
        hdi_mutex_lock(&peers->lock);
    }
    *out = peers_knowledge(peers, device, owner);
    hdi_mutex_unlock(&peers->lock);
}

void hdi_peers_ask(hd_runtime *rt, int device, int owner, bool later, hd_peer_info *out)
{
    /* a launch may call this function, and a launch does not itself hold off cancellation of its
     * thread */
    HDI_UNCANCELLED;
    peers_ask_pair(rt, device, owner, false, later, out);
}

/* ---- public functions ---- */

/* The status of a call that waited for a test or made one: the call fails if the runtime is being
 * closed. */
static hd_status peers_check_end(hd_runtime *rt)
{
    return peers_are_ended(hdi_peer_of(rt)->peers) ? hdi_fail(HD_ERROR_HANDLE, "the runtime was closed meanwhile")
                                                   : HD_OK;
}

static hd_status peers_check_pair(const hd_runtime *rt, int device, int owner)
{
    if (device < 0 || device >= rt->n_devices || owner < 0 || owner >= rt->n_devices) {
        return hdi_fail(HD_ERROR_ARGUMENT, "device is %d and owner is %d; the runtime's devices are 0 to %d", device,
                        owner, rt->n_devices - 1);
    }
    return HD_OK;
}

hd_status hd_peer_check(hd_runtime *rt, int device, int owner, hd_peer_info *out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_peer_info, out);
    if (status) {
        return status;
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    status = peers_check_pair(rt, device, owner);
    if (!status) {
        hd_peer_info info;
        peers_ask_pair(rt, device, owner, true, false, &info);
        status = peers_check_end(rt);
        if (!status) {
            HDI_SIZED_OUT(hd_peer_info, out, &info);
        }
    }
    return status;
}

typedef struct progress {
    hd_peer_progress call;
    void *context;
    int done, total;
} progress;

static void peers_report(void *context, int device, int owner, const hd_peer_info *info)
{
    progress *p = context;
    p->done++;
    if (p->call) {
        HDI_SIZED_TOLD(hd_peer_info) told = {.known = *info};
        told.known.size = sizeof told.known;
        hdi_apart apart = hdi_presence_apart();
        p->call(p->context, device, owner, &told.known, p->done, p->total);
        hdi_presence_together(apart);
    }
}

hd_status hd_peers_check(hd_runtime *rt, unsigned flags, hd_peer_progress call, void *context)
{
    HDI_INSIDE(rt);
    if (flags & ~(unsigned)HD_PEERS_AGAIN) {
        return hdi_fail(HD_ERROR_ARGUMENT, "flags 0x%x, of which only 0x%x is known", flags, (unsigned)HD_PEERS_AGAIN);
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    int total = rt->n_devices * (rt->n_devices - 1);
    hdi_pair *pairs = malloc(((size_t)total + 1) * sizeof *pairs);
    if (!pairs) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for %d pairs", total);
    }
    struct hdi_peers *peers = hdi_peer_of(rt)->peers;
    bool again = (flags & HD_PEERS_AGAIN) != 0;
    progress p = {call, context, 0, total};
    int n = 0;
    hdi_mutex_lock(&peers->lock);
    bool nested = peers_has_turn(peers);
    bool ours = !nested && peers_take_turn(peers, false);
    hdi_mutex_unlock(&peers->lock);
    if (!ours) {
        free(pairs);
        return nested ? hdi_fail(HD_ERROR_ARGUMENT, "called from its own progress callback") : peers_check_end(rt);
    }
    for (int i = 0; i < rt->n_devices; i++) {
        for (int j = 0; j < rt->n_devices; j++) {
            hd_peer_info info;
            if (i == j) {
                continue;
            }
            bool known = peers_driver_decides(rt, i, j, &info);
            if (!known) {
                hdi_mutex_lock(&peers->lock);
                known = !again && !peers_pair_is_wanted(rt, i, j, true);
                info = peers_knowledge(peers, i, j);
                peers->of[i][j].asked = !known;
                hdi_mutex_unlock(&peers->lock);
            }
            if (known) {
                peers_report(&p, i, j, &info);
            } else {
                pairs[n++] = (hdi_pair){.device = i, .owner = j};
            }
        }
    }
    if (n > 0) {
        peers_find_out(rt, pairs, n, again, peers_report, &p);
    }
    peers_give_turn(peers);
    free(pairs);
    return peers_check_end(rt);
}
