/* heddle/mpi/open.h - part of heddle/mpi.h: the begin and the end of the link, and the share of a
 * rank in the devices of its machine.
 *
 * Threads: any.
 * Locks: as operation.h and progress.h describe.
 * Blocking: hd_mpi_close waits for operations, hd_mpi_runtime_open for the other ranks.
 */
#ifndef HEDDLE_MPI_OPEN_H
#define HEDDLE_MPI_OPEN_H

#include <heddle/mpi/call.h>

HD_BEGIN_DECLS

/* Refuses calls before MPI_Init_thread and after MPI_Finalize. */
static inline hd_status hdmpi_mpi_check(const char *call)
{
    int begun = 0, over = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    return begun && !over
               ? HD_OK
               : hdmpi_fail(HD_ERROR_UNSUPPORTED, call,
                            over ? "MPI was finalized" : "MPI is not initialized; call MPI_Init_thread first", 0);
}

/* ---- the share of a rank ---- */

/* Calls hd_open with `more` behind the settings. */
static inline hd_status hdmpi_open_with(const char *call, const char *settings, const char *more, hd_runtime **out)
{
    hd_options options;
    char *text = (char *)malloc(strlen(settings) + strlen(more) + 1);
    if (!text) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "no memory", 0);
    }
    strcpy(text, settings);
    strcat(text, more);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.settings = text;
    const hd_status status = hd_open(&options, out);
    free(text);
    return status;
}

/* The number of devices that a runtime would open; -1: hd_open failed, and reports the failure. */
static inline int hdmpi_devices_count(const char *call, const char *settings)
{
    hd_runtime *runtime = NULL;
    /* this runtime leaves no trace and no report */
    if (hdmpi_open_with(call, settings, " trace=\"\" stats=0", &runtime) != HD_OK) {
        return -1;
    }
    hd_device_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    int n = hd_device_count(runtime);
    if (hd_device_get_info(runtime, 0, &info) == HD_OK && info.is_host) {
        n = 0; /* every rank opens host devices of its own */
    }
    hd_close(runtime);
    return n;
}

/* True if the program or its user told which devices to open. */
static inline int hdmpi_devices_are_chosen(const char *settings)
{
    const char *of_user = getenv("HEDDLE_DEVICES");
    int found = of_user && *of_user && strcmp(of_user, "all") != 0;
    for (const char *at = settings; !found && (at = strstr(at, "devices=")) != NULL; at++) {
        found = at == settings || strchr(" ,", at[-1]) != NULL; /* not host_devices */
    }
    return found;
}

/* A number for the set of GPUs that this rank sees, from 0 on; 0: it sees none. Launchers such as
 * Slurm may show different GPUs to each rank. */
static inline int hdmpi_visible_devices(const char *settings)
{
    const char *const of_user = getenv("HEDDLE_DRIVER");
    void (*entry)(void) = NULL;
    int (*init)(unsigned) = NULL;
    int (*count)(int *) = NULL;
    int (*identify)(unsigned char *, int) = NULL;
    int n = 0;
    uint32_t hash = 2166136261u;
    if ((of_user && strcmp(of_user, "host") == 0) || strstr(settings, "driver=host") ||
        hd_driver_entry("nvidia", "cuInit", &entry)) {
        return 0;
    }
    memcpy(&init, &entry, sizeof init);
    if (hd_driver_entry("nvidia", "cuDeviceGetCount", &entry)) {
        return 0;
    }
    memcpy(&count, &entry, sizeof count);
    if (hd_driver_entry("nvidia", "cuDeviceGetUuid", &entry)) {
        return 0;
    }
    memcpy(&identify, &entry, sizeof identify);
    if (init(0) || count(&n)) {
        return 0;
    }
    for (int i = 0; i < n; i++) {
        unsigned char uuid[16] = {0};
        hash = identify(uuid, i) ? hash : hdmpi_hash(hash, uuid, sizeof uuid);
    }
    return n ? (int)(hash >> 1) : 0;
}

static inline void hdmpi_place_choose(hd_mpi_place *p, int devices)
{
    const int from = (int)((long long)p->rank * devices / p->ranks);
    const int until = (int)((long long)(p->rank + 1) * devices / p->ranks);
    p->first = from;
    p->devices = until > from ? until - from : 1;
    p->shared = 1;
    if (devices < p->ranks) {
        int same = 0;
        for (int r = 0; r < p->ranks; r++) {
            same += (int)((long long)r * devices / p->ranks) == from;
        }
        p->shared = same;
    }
}

/* Chooses this rank's share of the devices. The ranks of a machine that see the same devices divide
 * them. *devices: how many these are; 0: the rank opens the devices that its settings name. With
 * `alone`, this rank takes no share, but the others still wait for its call. Returns the code of
 * MPI. */
static inline int hdmpi_share_choose(const char *call, const char *settings, MPI_Comm local, int alone, hd_mpi_place *p,
                                     int *devices)
{
    MPI_Comm alike;
    hd_mpi_place among = *p;
    int code = MPI_Comm_split(local, alone ? MPI_UNDEFINED : hdmpi_visible_devices(settings), 0, &alike);
    if (code != MPI_SUCCESS || alone) {
        return code;
    }
    MPI_Comm_rank(alike, &among.rank);
    MPI_Comm_size(alike, &among.ranks);
    if (among.ranks > 1 && among.rank == 0) {
        /* if this fails, hd_open fails again on each rank */
        *devices = hdmpi_devices_count(call, settings);
    }
    code = MPI_Bcast(devices, 1, MPI_INT, 0, alike);
    MPI_Comm_free(&alike);
    if (*devices > 0) {
        hdmpi_place_choose(&among, *devices);
        p->first = among.first;
        p->devices = among.devices;
        p->shared = among.shared;
    }
    return code;
}

/* Opens a rank's share of the devices of the machine; with `devices` 0, the devices that the
 * settings name. */
static inline hd_status hdmpi_share_open(const char *call, const char *settings, int devices, const hd_mpi_place *p,
                                         hd_runtime **out)
{
    char more[512];
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t length = (size_t)snprintf(more, sizeof more, " trace_rank=%d", rank);
    if (devices > 0) {
        length += (size_t)snprintf(more + length, 32, " devices=\"%d", p->first);
        for (int i = 1; i < p->devices && i < 64; i++) {
            length += (size_t)snprintf(more + length, 8, ",%d", p->first + i);
        }
        strcpy(more + length, "\"");
    }
    return hdmpi_open_with(call, settings, more, out);
}

/* All ranks tell whether they failed, and whether they write a trace (*traced: any rank does). A
 * rank that failed returns its own failure. If another rank failed, the call fails with the status
 * of the first one. */
static inline hd_status hdmpi_ranks_agree(const char *call, MPI_Comm comm, hd_status mine, int *traced)
{
    int rank = 0, ranks = 1;
    long long own[2], all[2] = {0, 0};
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    /* most for the first rank */
    own[0] = mine ? (long long)(ranks - rank) * 1024 - (long long)mine : 0;
    own[1] = *traced;
    const int code = MPI_Allreduce(own, all, 2, MPI_LONG_LONG, MPI_MAX, comm);
    *traced = all[1] != 0;
    if (mine || code != MPI_SUCCESS) {
        return mine ? mine : hdmpi_fail_mpi(call, "the agreement of the ranks", code);
    }
    if (all[0]) {
        char text[160];
        const hd_status status = (hd_status)(0 - (int)(all[0] % 1024));
        snprintf(text, sizeof text, "%s: rank %lld failed with %s; its own message tells why", call,
                 ranks - all[0] / 1024, hd_status_name(status));
        return hd_error_set(status, text);
    }
    return HD_OK;
}

/* The ranks of a machine choose their shares, and this rank opens its own. `status`: not HD_OK if
 * this rank only takes part, since the others wait for it. */
static inline hd_status hdmpi_share_open_together(const char *call, MPI_Comm comm, const char *settings,
                                                  hd_status status, hd_runtime **out, hd_mpi_place *p)
{
    MPI_Comm local;
    int devices = 0;
    int code = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    if (code == MPI_SUCCESS) {
        MPI_Comm_rank(local, &p->rank);
        MPI_Comm_size(local, &p->ranks);
        p->shared = 1;
        if (p->ranks > 1) {
            code = hdmpi_share_choose(call, settings, local, status || hdmpi_devices_are_chosen(settings), p, &devices);
        }
        MPI_Comm_free(&local);
    }
    if (code != MPI_SUCCESS) {
        return status ? status : hdmpi_fail_mpi(call, "dividing the devices", code);
    }
    return status ? status : hdmpi_share_open(call, settings, devices, p, out);
}

static inline hd_status hd_mpi_runtime_open(MPI_Comm comm, const char *settings, hd_runtime **out, hd_mpi_place *place)
{
    static const char call[] = "hd_mpi_runtime_open";
    hd_runtime *runtime = NULL;
    hd_mpi_place p;
    memset(&p, 0, sizeof p);
    hd_status status = hdmpi_mpi_check(call);
    if (status) {
        return status;
    }
    if (comm == MPI_COMM_NULL) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the communicator is MPI_COMM_NULL; pass one of this rank", 0);
    }
    status = out ? HD_OK : hdmpi_fail(HD_ERROR_ARGUMENT, call, "out is null; pass the address of a pointer", 0);
    status = hdmpi_share_open_together(call, comm, settings ? settings : "", status, &runtime, &p);
    int traced = !status && hd_trace_active(runtime);
    status = hdmpi_ranks_agree(call, comm, status, &traced);
    if (!status && traced) {
        const int code = hdmpi_clock_tell(comm, runtime, NULL);
        status = code == MPI_SUCCESS ? HD_OK : hdmpi_fail_mpi(call, "a message for the clock", code);
    }
    if (status) {
        hd_close(runtime);
        return status;
    }
    if (place) {
        p.devices = hd_device_count(runtime);
        *place = p;
    }
    *out = runtime;
    return HD_OK;
}

/* ---- the link ---- */

static inline hd_status hdmpi_options_check(const hd_mpi_options *options, hd_mpi_options *o)
{
    static const char call[] = "hd_mpi_open";
    int level = 0;
    memset(o, 0, sizeof *o);
    if (options) {
        if (options->size < offsetof(hd_mpi_options, timeout_ns) || options->size > sizeof *o) {
            return hdmpi_fail(HD_ERROR_ARGUMENT, call, "options.size is %lld; set it to sizeof(hd_mpi_options)",
                              (long long)options->size);
        }
        memcpy(o, options, options->size);
    }
    o->piece_bytes = o->piece_bytes ? o->piece_bytes : HDMPI_PIECE_BYTES;
    if (o->piece_bytes < HDMPI_PIECE_LEAST || o->piece_bytes > INT_MAX / 2 || o->timeout_ns < 0) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call,
                          o->timeout_ns < 0 ? "timeout_ns is %lld; it must not be negative"
                                            : "piece_bytes is %lld; it must be between 4096 and 1 GiB",
                          o->timeout_ns < 0 ? (long long)o->timeout_ns : (long long)o->piece_bytes);
    }
    const hd_status status = hdmpi_mpi_check(call);
    if (status) {
        return status;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) {
        return hdmpi_fail(HD_ERROR_UNSUPPORTED, call,
                          level == MPI_THREAD_FUNNELED
                              ? "MPI provides MPI_THREAD_FUNNELED; ask MPI_Init_thread for MPI_THREAD_MULTIPLE"
                              : "MPI provides MPI_THREAD_SINGLE; ask MPI_Init_thread for MPI_THREAD_MULTIPLE",
                          0);
    }
    if (level == MPI_THREAD_SERIALIZED && !o->lock) {
        return hdmpi_fail(
            HD_ERROR_UNSUPPORTED, call,
            "MPI provides MPI_THREAD_SERIALIZED; pass the lock that your calls of MPI hold (options.lock)", 0);
    }
    return HD_OK;
}

static inline void hdmpi_release(hd_mpi *m)
{
    hdmpi_temporaries_free(m, 1);
    hdmpi_tracer_release(m);
    hdmpi_slots_free(m);
    if (m->direct_keyval != MPI_KEYVAL_INVALID && !hdmpi_link_is_finalized(m)) {
        MPI_Comm_free_keyval(&m->direct_keyval); /* tables stay until their communicators end */
    }
    free(m->request);
    free(m->of_request);
    free(m->piece_of_request);
    free(m->indices);
    free(m->statuses);
    pthread_mutex_lock(&m->lock);
    m->is_left = m->makes_slots; /* that thread may still wait for memory */
    const int left = m->is_left;
    pthread_mutex_unlock(&m->lock);
    if (!left) {
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
}

static inline hd_status hd_mpi_open(hd_runtime *runtime, const hd_mpi_options *options, hd_mpi **out)
{
    static const char call[] = "hd_mpi_open";
    hd_mpi_options o;
    hd_runtime_info info;
    if (!out) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "out is null", 0);
    }
    hd_status status = hdmpi_options_check(options, &o);
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    status = status ? status : hd_runtime_get_info(runtime, &info);
    if (status) {
        return status;
    }
    hd_mpi *m = (hd_mpi *)calloc(1, sizeof *m);
    if (!m) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "no memory", 0);
    }
    m->runtime = runtime;
    m->waker = hdmpi_waker_get();
    m->of_program = o.lock;
    m->timeout_ns = o.timeout_ns;
    m->piece_bytes = m->slots[1].bytes = o.piece_bytes;
    m->slots[0].bytes = o.piece_bytes < HDMPI_SLOT_SMALL ? o.piece_bytes : HDMPI_SLOT_SMALL;
    m->slots[0].kept = HDMPI_SMALL_SLOTS_KEPT;
    m->slots[1].kept = m->slots[2].kept = HDMPI_SLOTS_KEPT;
    hd_memory_stats pinned;
    memset(&pinned, 0, sizeof pinned);
    pinned.size = sizeof pinned;
    hd_memory_get_stats(runtime, HD_DEVICE_HOST, &pinned);
    m->held_most = pinned.limit_bytes / 4;
    m->slot_bytes_most = pinned.limit_bytes / 4 * 3;
    m->is_inline = strcmp(info.placement, "inline") == 0;
    m->last = &m->first;
    m->keyval = m->direct_keyval = MPI_KEYVAL_INVALID;
    pthread_mutex_init(&m->lock, NULL);
    m->tag_most = 32767; /* the least that MPI guarantees */
    int *most = NULL, found = 0;
    hdmpi_lock(m);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    if (found) {
        m->tag_most = *most;
    }
    hdmpi_unlock(m);
    status = hdmpi_link_add(call, m);
    if (!status && pthread_create(&m->thread, NULL, hdmpi_thread, m)) {
        status = hdmpi_fail(HD_ERROR_SYSTEM, call, "the progress thread cannot be started", 0);
        hdmpi_link_remove(m);
    }
    if (status) {
        hdmpi_release(m);
        return status;
    }
    *out = m;
    return HD_OK;
}

/* Names an operation that did not end. */
static inline hd_status hdmpi_fail_unfinished(const hd_mpi *m)
{
    static const char *const names[] = {"send to",   "receive from", "broadcast from", "reduction to",
                                        "reduction", "gathering",    "exchange",       "barrier"};
    const hdmpi_operation *o = m->first;
    const int receives = o->kind == HDMPI_RECEIVE;
    char text[256], where[64] = "", rank[16], tag[16];
    if (o->kind <= HDMPI_RECEIVE) {
        snprintf(where, sizeof where, " rank %s, tag %s,",
                 hdmpi_number_text(o->peer, receives && o->peer == MPI_ANY_SOURCE, rank),
                 hdmpi_number_text(o->tag, receives && o->tag == MPI_ANY_TAG, tag));
    } else if (o->kind <= HDMPI_REDUCE) {
        snprintf(where, sizeof where, " rank %d", o->peer);
    }
    snprintf(text, sizeof text,
             "hd_mpi_close: %zu operations did not end; the first one is a %s%s of %zu bytes, and %s", m->operations,
             names[o->kind], where, o->in.present ? o->in.bytes : o->out.bytes,
             !o->ready   ? "its bytes are not ready"
             : o->posted ? "its message is under way"
                         : "waits for its turn");
    return hd_error_set(HD_ERROR_TIMEOUT, text);
}

static inline hd_status hd_mpi_close(hd_mpi *m, int64_t timeout_ns)
{
    static const char call[] = "hd_mpi_close";
    if (!m) {
        return HD_OK;
    }
    if (timeout_ns < HD_FOREVER) {
        return hdmpi_fail_limit(call, timeout_ns);
    }
    hd_status status = hdmpi_link_check(call, m);
    if (status) {
        return status;
    }
    const int64_t begin = hdmpi_now();
    const hd_ticket none = {NULL, 0};
    int cancelled = 0;
    for (;;) {
        int moved = 0;
        hdmpi_lock(m);
        hdmpi_progress(m, &moved);
        const size_t left = m->operations;
        const int64_t waited = hdmpi_now() - begin;
        if (left && !cancelled && timeout_ns >= 0 && waited >= timeout_ns) {
            status = hdmpi_fail_unfinished(m);
            for (hdmpi_operation *o = m->first; o; o = o->next) {
                o->ready = 1; /* an operation whose bytes are not ready ends, too */
                hdmpi_operation_cancel(o, "the time limit of hd_mpi_close passed");
            }
            cancelled = 1;
            moved = 1;
        }
        hdmpi_unlock(m);
        /* a second is enough for MPI to cancel receives */
        if (!left || (cancelled && waited >= timeout_ns + 1000000000)) {
            break;
        }
        if (!moved) {
            hdmpi_pause(none, HDMPI_SLEEP_LEAST);
        }
    }
    pthread_mutex_lock(&m->waker->lock);
    m->ending = 1;
    pthread_mutex_unlock(&m->waker->lock);
    hdmpi_wake(m->waker);
    pthread_join(m->thread, NULL);
    /* MPI still uses the memory of these operations, so their slots and all temporary memory
     * stay */
    m->temporaries = m->first ? NULL : m->temporaries;
    hdmpi_operations_abandon(m, HD_ERROR_TIMEOUT, "the time limit of hd_mpi_close passed");
    hdmpi_link_remove(m);
    const int finalized = hdmpi_link_is_finalized(m);
    hdmpi_release(m);
    return finalized
               ? hdmpi_fail(HD_ERROR_UNSUPPORTED, call, "MPI was finalized; call MPI_Finalize after hd_mpi_close", 0)
               : status;
}

HD_END_DECLS
#endif
