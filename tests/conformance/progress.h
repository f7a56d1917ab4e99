/* progress.h - the model of dependencies: places with cells, gates that the test holds, and work
 * that depends on a held gate.
 *
 * A place is a buffer of eight cells. All words of a cell are the same small whole number, as a
 * float. The model knows the content of each cell after all submitted work. For each cell it also
 * stores, as sets of bits, the gates on which the last writer and the readers since then depend.
 * The rules are those of heddle/buffer.h and heddle/lane.h. A use waits for the last writer; a
 * write also waits for the readers since then. Work in a lane of the program waits for earlier work
 * of the lane. Nothing else is a reason to wait. Unified memory moves in chunks, so a use covers
 * whole chunks. A box also uses the bytes between its rows.
 *
 * A gate is a kernel, a claim, or a function of the program that continues when the test lets it.
 * The test waits at once for work that depends on no held gate, with a limit that only a failure
 * reaches. Callers make the calls that block until then; they are threads of the traffic.
 *
 * Threads: each traffic belongs to one thread, with its places, lanes and gates. Its callers use
 * only the data of their jobs.
 * Locks: one per traffic, which its callers use.
 * Always: an operation never conflicts with an unfinished job of a caller, so the order of all uses
 * is known.
 */
#ifndef CONFORMANCE_PROGRESS_H
#define CONFORMANCE_PROGRESS_H

#include <math.h>
#include <semaphore.h>
#include "foreign.h"
#include "progress_kernel.h"

enum {
    cells = 8,
    small_cell = 256,
    chunk_cell = 16384, /* a chunk of unified memory is four of them */
    large_cell = 1 << 19,
    most_devices = 3,
    most_places = 24,
    most_lanes = 6,
    most_gates = 64,
    most_traffics = 3,
    most_callers = 4,
    most_uses = 4,
    log_rows = 4096
};
#define LARGEST 4096.0f /* in any cell, so that sums and products stay exact */

/* ---- places and gates ---- */

typedef uint64_t gates; /* a set */

typedef enum place_kind { PLAIN, PIECE, KEEPS, PINNED, OWN_PINNED, OWN_DEVICE, UNIFIED } place_kind;

typedef struct place {
    place_kind kind;
    hd_buffer *buffer;
    int device; /* -1: pinned */
    size_t cell;
    int unit; /* cells that are always used together */
    bool touched;
    float value[cells];
    gates writer[cells], readers[cells];
    int reading[cells], writing[cells]; /* by jobs of callers */
    gates saving;                       /* of the last hd_buffer_save */
    void *memory;                       /* of the program itself */
    uint64_t address;
} place;

typedef struct use {
    place *p;
    int first, count;
    hd_access access;
} use;

typedef enum gate_kind { BY_KERNEL, BY_CLAIM, BY_HOST_CALL, BY_LANE_CALL, BY_STREAM, GATE_KINDS } gate_kind;

typedef struct barrier {
    gate_kind kind;
    gates needs; /* other gates, from its begin on */
    hd_ticket ticket;
    uint32_t *flag;
    hd_claim *claim;
    bool begun;  /* a claim or a call: the program may use its bytes */
    bool writes; /* and the program adds `c` to them at the end */
    use used;
    float c;
    sem_t begins, open;
    unsigned long long at; /* the bytes that a call in a lane fills */
    uint32_t word;
    size_t count;
} barrier;

typedef struct pending {
    hd_ticket ticket;
    gates mask;
    int row;
} pending;

typedef enum job_kind { JOB_READ, JOB_WRITE, JOB_READ_BOX, JOB_WRITE_BOX, JOB_TENSOR_READ, JOB_TENSOR_WRITE } job_kind;

typedef struct job {
    job_kind kind;
    hd_buffer *buffer;
    size_t offset, cell;
    int n, step; /* cells, and the step from one to the next */
    float values[cells];
    uint8_t *data;
    hd_status status;
    char message[512];
} job;

typedef struct caller {
    struct traffic *t;
    pthread_t thread;
    bool wanted, done, busy; /* `busy` belongs to the traffic */
    job job;
    use used;
    gates mask;
    int row;
} caller;

typedef struct traffic {
    pthread_t thread;
    int number;
    conf_random random;
    int operations, gates_most;
    place places[most_places];
    int n_places, n_small; /* the first ones have small cells */
    bool large;            /* true: all places are used */
    hd_lane *lanes[most_lanes];
    gates lane_mask[most_lanes], stream_mask[most_devices];
    int lane_blocked[most_lanes]; /* operations since the lane was last free */
    int n_lanes;
    hd_buffer *flags;
    uint32_t *flag_words;
    void *streams[most_devices];
    barrier of[most_gates];
    int n_gates;
    gates held, freed; /* gates whose work may use memory that was freed in this graph */
    pending *pending;
    int n_pending, room;
    pthread_mutex_t lock;
    pthread_cond_t wish, answer;
    bool stop;
    caller callers[most_callers];
    int n_host_calls, n_claims;
    char log[log_rows][100];
    int logged;
    uint64_t waited, direct; /* finished while gates were held: operations, calls */
} traffic;

enum {
    /* work in front of held work, in its lane of the program: the test waits for it first */
    WITHOUT_FRONT = 1,
    WITHOUT_UNIFIED = 2,  /* unified memory */
    WITHOUT_RENEWED = 4,  /* lanes that are destroyed */
    WITHOUT_TURNED = 8,   /* copies of elements, and reads and writes of tensors */
    WITHOUT_STREAMED = 16 /* claims of unified memory on streams */
};

static struct {
    hd_runtime *runtime;
    hd_kernel *hold;
    bool host, is_process, is_inline;
    int devices;
    uint64_t peers[most_devices];
    foreign driver;
    traffic traffics[most_traffics];
    uint64_t seed;
    int graph;
    /* sets: kinds of gates, and parts to leave out, to narrow a failure down */
    uint64_t gate_kinds, without;
} w;

/* ---- log, failures ---- */

__attribute__((format(printf, 2, 3))) static int progress_note(traffic *t, const char *format, ...)
{
    int row = t->logged < log_rows - 1 ? t->logged++ : log_rows - 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->log[row], sizeof t->log[row], format, arguments);
    va_end(arguments);
    return row;
}

/* Ends the program: prints the operations of the traffic, the held gates, and the failure. */
__attribute__((format(printf, 3, 4))) static void progress_fail(traffic *t, int row, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "what the traffic %d did, gates that are held: %016llx\n", t->number, (unsigned long long)t->held);
    for (int i = t->logged > 200 ? t->logged - 200 : 0; i < t->logged; i++) {
        fprintf(stderr, "  %c%4d  %s\n", i == row ? '>' : ' ', i, t->log[i]);
    }
    conf_fail_at(__FILE__, __LINE__, "HEDDLE_SEED=%llu, graph %d, operation %d (%s): %s", (unsigned long long)w.seed,
                 w.graph, row, row >= 0 ? t->log[row] : "", text);
}

static void progress_ok(traffic *t, int row, hd_status status)
{
    if (status != HD_OK) {
        progress_fail(t, row, "%s: %s", hd_status_name(status), hd_message());
    }
}

static const char *progress_place_name(const place *p)
{
    static const char *const names[] = {"plain", "piece", "keeps", "pinned", "own pinned", "own device", "unified"};
    return names[p->kind];
}

/* ---- the rules ---- */

static size_t place_bytes(const place *p)
{
    return p->cell * cells;
}

static bool place_is_host(const place *p)
{
    return p->kind == PINNED || p->kind == OWN_PINNED || p->kind == UNIFIED;
}

/* Returns the use as the library sees it: in whole chunks. */
static use use_in_units(const use *u)
{
    int first = u->first / u->p->unit * u->p->unit;
    int end = (u->first + u->count + u->p->unit - 1) / u->p->unit * u->p->unit;
    return (use){u->p, first, end - first, u->access};
}

/* True if a job of a caller conflicts with the uses: then their order is open. */
static bool uses_meet_a_job(const use *uses, int n)
{
    bool meet = false;
    for (int i = 0; i < n; i++) {
        use u = use_in_units(&uses[i]);
        for (int c = u.first; c < u.first + u.count; c++) {
            meet |= u.p->writing[c] > 0 || (u.p->reading[c] > 0 && u.access != HD_READ);
        }
    }
    return meet;
}

/* Returns the held gates on which an operation with these uses depends. */
static gates uses_wait_for(const traffic *t, const use *uses, int n)
{
    gates mask = 0;
    for (int i = 0; i < n; i++) {
        use u = use_in_units(&uses[i]);
        for (int c = u.first; c < u.first + u.count; c++) {
            mask |= u.p->writer[c] | (u.access == HD_READ ? 0 : u.p->readers[c]);
        }
    }
    return mask & t->held;
}

static void uses_note(const use *uses, int n, gates mask)
{
    for (int i = 0; i < n; i++) {
        use u = use_in_units(&uses[i]);
        for (int c = u.first; c < u.first + u.count; c++) {
            if (u.access != HD_READ) {
                u.p->writer[c] = mask;
                u.p->readers[c] = 0;
                u.p->touched = true;
            } else {
                u.p->readers[c] |= mask;
            }
        }
    }
}

static void uses_of_job(const use *of, int by)
{
    use u = use_in_units(of);
    for (int c = u.first; c < u.first + u.count; c++) {
        *(u.access == HD_READ ? &u.p->reading[c] : &u.p->writing[c]) += by;
    }
}

/* ---- callers ---- */

static hd_box job_box(const job *j, bool out)
{
    size_t far = j->cell * (size_t)j->step;
    return (hd_box){.size = sizeof(hd_box),
                    .row = j->cell,
                    .dims = 1,
                    .count = {(size_t)j->n},
                    .dst_stride = {out ? j->cell : far},
                    .src_stride = {out ? far : j->cell}};
}

/* Makes each cell a matrix; its rows are the columns of the program's matrix. */
static hd_status job_tensor(const job *j, hd_tensor *out)
{
    const uint64_t shape[3] = {(uint64_t)j->n, 8, j->cell / 32};
    hd_status status = hd_tensor_make(j->buffer, j->offset, HD_TYPE_F32, 3, shape, out);
    return status ? status : hd_tensor_transpose(out, 1, 2, out);
}

static hd_status job_make_call(job *j)
{
    size_t bytes = j->cell * (size_t)j->n;
    hd_tensor tensor;
    hd_box box = job_box(j, j->kind == JOB_READ_BOX);
    hd_status status;
    switch (j->kind) {
    case JOB_READ:
        return hd_read(j->buffer, j->offset, j->data, bytes);
    case JOB_WRITE:
        return hd_write(j->buffer, j->offset, j->data, bytes);
    case JOB_READ_BOX:
        return hd_read_box(j->buffer, j->offset, j->data, &box);
    case JOB_WRITE_BOX:
        return hd_write_box(j->buffer, j->offset, j->data, &box);
    case JOB_TENSOR_READ:
        status = job_tensor(j, &tensor);
        return status ? status : hd_tensor_read(&tensor, j->data);
    default:
        status = job_tensor(j, &tensor);
        return status ? status : hd_tensor_write(&tensor, j->data);
    }
}

static bool job_reads(const job *j)
{
    return j->kind == JOB_READ || j->kind == JOB_READ_BOX || j->kind == JOB_TENSOR_READ;
}

static void *caller_work(void *argument)
{
    caller *c = argument;
    traffic *t = c->t;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (!c->wanted || c->done) {
            pthread_cond_wait(&t->wish, &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        c->job.status = job_make_call(&c->job);
        snprintf(c->job.message, sizeof c->job.message, "%s", c->job.status == HD_OK ? "" : hd_message());
        pthread_mutex_lock(&t->lock);
        c->done = true;
        pthread_cond_broadcast(&t->answer);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Checks that the job read the content that the model expects. Frees its data. */
static void job_check(traffic *t, job *j, int row)
{
    for (int c = 0; c < j->n && job_reads(j); c++) {
        const float *got = (const float *)(const void *)(j->data + (size_t)c * j->cell);
        for (size_t i = 0; i < j->cell / 4; i++) {
            if (got[i] != j->values[c]) {
                progress_fail(t, row, "cell %d of those read has %g in word %zu, not %g", c, (double)got[i], i,
                              (double)j->values[c]);
            }
        }
    }
    free(j->data);
    j->data = NULL;
}

static caller *caller_that_is_free(traffic *t)
{
    caller *found = NULL;
    for (int i = 0; i < most_callers && found == NULL; i++) {
        found = t->callers[i].busy ? NULL : &t->callers[i];
    }
    return found;
}

static void caller_begin(caller *c, const job *j, const use *used, gates mask, int row)
{
    traffic *t = c->t;
    c->busy = true;
    c->job = *j;
    c->used = *used;
    c->mask = mask;
    c->row = row;
    uses_of_job(used, 1);
    pthread_mutex_lock(&t->lock);
    c->wanted = true;
    c->done = false;
    pthread_cond_broadcast(&t->wish);
    pthread_mutex_unlock(&t->lock);
}

/* Takes the result of the call if it returned. It must return once it depends on no held gate. */
static void caller_settle(caller *c)
{
    traffic *t = c->t;
    bool must = (c->mask & t->held) == 0;
    int64_t limit = conf_now() + progress_limit();
    struct timespec until = {limit / CONF_SECOND, limit % CONF_SECOND};
    int late = 0;
    pthread_mutex_lock(&t->lock);
    while (must && !c->done && late == 0) {
        late = pthread_cond_timedwait(&t->answer, &t->lock, &until);
    }
    bool done = c->done;
    if (done) {
        c->wanted = false;
    }
    pthread_mutex_unlock(&t->lock);
    if (must && !done) {
        progress_fail(t, c->row, "the call of another thread has not returned, and depends on no held gate");
    }
    if (done) {
        if (c->job.status != HD_OK) {
            progress_fail(t, c->row, "%s: %s", hd_status_name(c->job.status), c->job.message);
        }
        uses_of_job(&c->used, -1);
        if (!job_reads(&c->job)) {
            uses_note(&c->used, 1, c->mask & t->held);
        }
        job_check(t, &c->job, c->row);
        c->busy = false;
    }
}

static void callers_start(traffic *t)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wish, NULL);
    pthread_cond_init(&t->answer, &attributes);
    pthread_condattr_destroy(&attributes);
    t->stop = false;
    for (int i = 0; i < most_callers; i++) {
        t->callers[i] = (caller){.t = t};
        CONF_EQUAL(pthread_create(&t->callers[i].thread, NULL, caller_work, &t->callers[i]), 0);
    }
}

static void callers_stop(traffic *t)
{
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->wish);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < most_callers; i++) {
        pthread_join(t->callers[i].thread, NULL);
    }
    pthread_cond_destroy(&t->wish);
    pthread_cond_destroy(&t->answer);
    pthread_mutex_destroy(&t->lock);
}

/* ---- pending work ---- */

static void pending_add(traffic *t, hd_ticket ticket, gates mask, int row)
{
    if (t->n_pending == t->room) {
        t->room = t->room ? 2 * t->room : 256;
        t->pending = realloc(t->pending, (size_t)t->room * sizeof *t->pending);
        CONF_TRUE(t->pending != NULL);
    }
    t->pending[t->n_pending++] = (pending){ticket, mask, row};
}

/* Waits for all work that depends on no held gate. Checks that held work is not done. */
static void traffic_settle(traffic *t)
{
    int kept = 0;
    for (int i = 0; i < t->n_pending; i++) {
        pending *p = &t->pending[i];
        if (p->mask & t->held) {
            t->pending[kept++] = *p;
            continue;
        }
        hd_status status = hd_wait(p->ticket, progress_limit());
        if (status != HD_OK) {
            progress_fail(t, p->row, "it depends on no held gate, and is not done: %s", hd_message());
        }
        t->waited += t->held != 0;
    }
    t->n_pending = kept;
    for (int i = 0; i < most_callers; i++) {
        if (t->callers[i].busy) {
            caller_settle(&t->callers[i]);
        }
    }
    for (int g = 0; g < t->n_gates; g++) {
        if ((t->held >> g & 1) && hd_done(t->of[g].ticket)) {
            progress_fail(t, -1, "gate %d is held, and what it holds is done", g);
        }
    }
}

#endif
