/* progress_operations.h - the operations of the progress model: each makes one random call, and
 * notes its dependencies.
 *
 * A call that submits always returns, so the thread of the traffic makes it. That thread makes a
 * call that waits only if the call depends on no held gate. Otherwise a caller makes it.
 *
 * Threads: that of a traffic. Functions of the program run on threads of the library, and on those
 * of streams.
 * Locks: none.
 * Always: an operation that returns false was not made and changed nothing.
 */
#ifndef CONFORMANCE_PROGRESS_OPERATIONS_H
#define CONFORMANCE_PROGRESS_OPERATIONS_H

#include "progress.h"

/* ---- choices at random ---- */

enum {
    most_blocked = 12,
    most_host_calls = 16,
    most_claims = 44
}; /* in a lane; in a traffic: limits of docs and options */

static place *some_place(traffic *t)
{
    place *p;
    do {
        p = &t->places[conf_below(&t->random, (uint64_t)(t->large ? t->n_places : t->n_small))];
    } while (p->kind == UNIFIED && (w.without & WITHOUT_UNIFIED) != 0);
    return p;
}

static use some_use(traffic *t, place *p, hd_access access)
{
    int count = conf_chance(&t->random, 65) ? 1 : 1 + (int)conf_below(&t->random, cells);
    return (use){p, (int)conf_below(&t->random, (uint64_t)(cells - count + 1)), count, access};
}

static use whole_use(place *p, hd_access access)
{
    return (use){p, 0, cells, access};
}

static size_t use_offset(const use *u)
{
    return u->p->cell * (size_t)u->first;
}

static size_t use_bytes(const use *u)
{
    return u->p->cell * (size_t)u->count;
}

static bool uses_overlap(const use *a, const use *b)
{
    return a->p == b->p && a->first < b->first + b->count && b->first < a->first + a->count;
}

/* Chooses two uses of as many cells of one size, without a common byte. The operation writes
 * `to`. */
static bool some_pair(traffic *t, use *to, use *from)
{
    place *y = some_place(t), *x = some_place(t);
    *to = some_use(t, y, HD_WRITE);
    *from = some_use(t, x, HD_READ);
    int n = to->count < from->count ? to->count : from->count;
    to->count = from->count = n;
    return y->cell == x->cell && !uses_overlap(to, from);
}

static int some_lane(traffic *t)
{
    return (int)conf_below(&t->random, (uint64_t)t->n_lanes);
}

static bool lane_reaches(hd_lane *lane, const place *p)
{
    int device = hd_lane_device(lane);
    return p->device < 0 || p->device == device || (w.peers[device] >> p->device & 1) != 0;
}

/* True if one more operation fits into the lane, however long it is blocked. */
static bool lane_has_room(traffic *t, int lane)
{
    if ((t->lane_mask[lane] & t->held) == 0) {
        t->lane_blocked[lane] = 0;
    }
    if ((w.without & WITHOUT_FRONT) != 0) {
        return (t->lane_mask[lane] & t->held) == 0 && hd_lane_wait(t->lanes[lane], progress_limit()) == HD_OK;
    }
    return t->lane_blocked[lane] < most_blocked;
}

static float some_number(traffic *t)
{
    return (float)((int)conf_below(&t->random, 7) - 3);
}

static void use_set(const use *u, float value)
{
    for (int c = 0; c < u->count; c++) {
        u->p->value[u->first + c] = value;
    }
}

/* Sets the cells of `to` to those of `from`, plus `c`. */
static void use_set_from(const use *to, const use *from, float c)
{
    for (int i = 0; i < to->count; i++) {
        to->p->value[to->first + i] = from->p->value[from->first + i] + c;
    }
}

static bool use_is_small(const use *u)
{
    bool small = true;
    for (int c = 0; c < u->count; c++) {
        small = small && fabsf(u->p->value[u->first + c]) < LARGEST;
    }
    return small;
}

/* True if gates of this kind exist: streams, and functions on them, need the driver in this
 * process. */
static bool kind_is_used(gate_kind kind)
{
    return (w.gate_kinds >> kind & 1) != 0 && !(w.is_process && (kind == BY_LANE_CALL || kind == BY_STREAM));
}

/* Makes a gate that is held from now on. NULL: enough gates exist. */
static barrier *some_gate(traffic *t, gate_kind kind, unsigned percent, gates *bit)
{
    *bit = 0;
    if (t->n_gates >= t->gates_most || !conf_chance(&t->random, percent) || !kind_is_used(kind)) {
        return NULL;
    }
    barrier *b = &t->of[t->n_gates];
    *b = (barrier){.kind = kind};
    sem_init(&b->begins, 0, 0);
    sem_init(&b->open, 0, 0);
    b->flag = t->flag_words + 16 * t->n_gates;
    __atomic_store_n(b->flag, 0, __ATOMIC_RELEASE);
    *bit = (gates)1 << t->n_gates++;
    t->held |= *bit;
    return b;
}

/* Notes all effects of a call that submits. `bit`: of its own gate. Returns the gates on which it
 * depends. */
static gates operation_note(traffic *t, const use *uses, int n, int lane, gates bit)
{
    gates mask = uses_wait_for(t, uses, n) | bit;
    if (lane >= 0) {
        mask |= t->lane_mask[lane] & t->held;
        t->lane_mask[lane] = mask;
        t->lane_blocked[lane]++;
    }
    uses_note(uses, n, mask);
    return mask;
}

/* ---- launches ---- */

static bool do_launch(traffic *t)
{
    use u[3];
    int l = some_lane(t), n = 2;
    if (!some_pair(t, &u[0], &u[1]) || !lane_reaches(t->lanes[l], u[0].p) || !lane_reaches(t->lanes[l], u[1].p) ||
        !lane_has_room(t, l) || !use_is_small(&u[1])) {
        return false;
    }
    place *also = some_place(t);
    if (conf_chance(&t->random, 20) && lane_reaches(t->lanes[l], also)) {
        u[2] = some_use(t, also, HD_READ);
        n = uses_overlap(&u[2], &u[0]) ? 2 : 3;
    }
    if (uses_meet_a_job(u, n)) {
        return false;
    }
    gates bit;
    barrier *by = some_gate(t, BY_KERNEL, 25, &bit);
    uint64_t flag = by == NULL ? 0 : hd_buffer_address(t->flags) + 64 * (uint64_t)(by - t->of);
    float c = some_number(t);
    hd_arg args[] = {hd_u64(flag),
                     hd_out_range(u[0].p->buffer, use_offset(&u[0]), use_bytes(&u[0])),
                     hd_in_range(u[1].p->buffer, use_offset(&u[1]), use_bytes(&u[1])),
                     hd_f32(c),
                     hd_u64(use_bytes(&u[0]) / 4),
                     n < 3 ? hd_u64(0)
                           : hd_arg_implicit(hd_in_range(also->buffer, use_offset(&u[2]), use_bytes(&u[2])))};
    gates mask = operation_note(t, u, n, l, bit);
    int row = progress_note(t, "launch%s, lane %d, place %d [%d, %d) from place %d [%d, %d), on %016llx",
                            by == NULL ? "" : " that is held", l, (int)(u[0].p - t->places), u[0].first,
                            u[0].first + u[0].count, (int)(u[1].p - t->places), u[1].first, u[1].first + u[1].count,
                            (unsigned long long)mask);
    hd_ticket ticket;
    progress_ok(
        t, row,
        hd_launch(t->lanes[l], w.hold, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, n < 3 ? 5 : 6, &ticket));
    if (by != NULL) {
        by->needs = mask & ~bit;
        by->ticket = ticket;
    }
    use_set_from(&u[0], &u[1], c);
    pending_add(t, ticket, mask, row);
    return true;
}

static hd_tensor matrix_of(const use *u)
{
    hd_tensor tensor = {.buffer = NULL};
    const uint64_t shape[2] = {8, 8};
    CONF_OK(hd_tensor_make(u->p->buffer, use_offset(u), HD_TYPE_F32, 2, shape, &tensor));
    return tensor;
}

static bool do_matmul(traffic *t)
{
    use u[3];
    int l = some_lane(t);
    bool adds = conf_chance(&t->random, 40), fits = lane_has_room(t, l);
    for (int i = 0; i < 3; i++) {
        u[i] = some_use(t, some_place(t), i > 0 ? HD_READ : adds ? HD_READ_WRITE : HD_WRITE);
        u[i].count = 1;
        fits = fits && u[i].p->cell == small_cell && lane_reaches(t->lanes[l], u[i].p);
    }
    float *c = &u[0].p->value[u[0].first];
    float value = 8 * u[1].p->value[u[1].first] * u[2].p->value[u[2].first] + (adds ? *c : 0);
    if (!fits || uses_overlap(&u[0], &u[1]) || uses_overlap(&u[0], &u[2]) || fabsf(value) > LARGEST ||
        uses_meet_a_job(u, 3)) {
        return false;
    }
    gates mask = operation_note(t, u, 3, l, 0);
    int row = progress_note(t, "product, lane %d, place %d [%d], on %016llx", l, (int)(u[0].p - t->places), u[0].first,
                            (unsigned long long)mask);
    hd_tensor m[3] = {matrix_of(&u[0]), matrix_of(&u[1]), matrix_of(&u[2])};
    hd_ticket ticket;
    progress_ok(t, row, hd_tensor_matmul(t->lanes[l], &m[0], &m[1], &m[2], 1, adds ? 1 : 0, &ticket));
    *c = value;
    pending_add(t, ticket, mask, row);
    return true;
}

static bool do_lane_after(traffic *t)
{
    int l = some_lane(t);
    if (t->n_pending == 0 || !lane_has_room(t, l)) {
        return false;
    }
    pending after = t->pending[conf_below(&t->random, (uint64_t)t->n_pending)];
    gates mask = operation_note(t, NULL, 0, l, after.mask & t->held);
    int row = progress_note(t, "hd_lane_add_dependency, lane %d, operation %d, on %016llx", l, after.row,
                            (unsigned long long)mask);
    hd_ticket ticket;
    progress_ok(t, row, hd_lane_add_dependency(t->lanes[l], after.ticket, &ticket));
    pending_add(t, ticket, mask, row);
    return true;
}

/* The lane and all its work end. The new lane begins empty. */
static bool do_lane_renew(traffic *t)
{
    if ((w.without & WITHOUT_RENEWED) != 0) {
        return false;
    }
    int l = some_lane(t), row = progress_note(t, "lane %d is destroyed, and another one made", l);
    progress_ok(t, row, hd_lane_destroy(t->lanes[l]));
    progress_ok(t, row, hd_lane_create(w.runtime, (int)conf_below(&t->random, (uint64_t)w.devices), &t->lanes[l]));
    t->lane_mask[l] = 0;
    t->lane_blocked[l] = 0;
    return true;
}

/* ---- copies ---- */

static bool do_fill(traffic *t)
{
    use u = some_use(t, some_place(t), HD_WRITE);
    if (uses_meet_a_job(&u, 1)) {
        return false;
    }
    float value = some_number(t);
    gates mask = operation_note(t, &u, 1, -1, 0);
    int row = progress_note(t, "fill, place %d [%d, %d), on %016llx", (int)(u.p - t->places), u.first,
                            u.first + u.count, (unsigned long long)mask);
    hd_ticket ticket;
    progress_ok(t, row, hd_fill(u.p->buffer, use_offset(&u), conf_bits(value), use_bytes(&u), &ticket));
    use_set(&u, value);
    pending_add(t, ticket, mask, row);
    return true;
}

/* Copies by the route of the two places; now and then as elements of a transposed tensor. */
static bool do_copy(traffic *t)
{
    use u[2];
    if (!some_pair(t, &u[0], &u[1]) || uses_meet_a_job(u, 2)) {
        return false;
    }
    bool turned = conf_chance(&t->random, 25) && (w.without & WITHOUT_TURNED) == 0;
    gates mask = operation_note(t, u, 2, -1, 0);
    int row =
        progress_note(t, "copy%s, place %d [%d, %d) from place %d [%d, %d), on %016llx", turned ? " of elements" : "",
                      (int)(u[0].p - t->places), u[0].first, u[0].first + u[0].count, (int)(u[1].p - t->places),
                      u[1].first, u[1].first + u[1].count, (unsigned long long)mask);
    hd_ticket ticket;
    if (turned) {
        const uint64_t shape[3] = {(uint64_t)u[0].count, 8, u[0].p->cell / 32},
                       other[3] = {shape[0], shape[2], shape[1]};
        hd_tensor y, x;
        CONF_OK(hd_tensor_make(u[0].p->buffer, use_offset(&u[0]), HD_TYPE_F32, 3, shape, &y));
        CONF_OK(hd_tensor_make(u[1].p->buffer, use_offset(&u[1]), HD_TYPE_F32, 3, other, &x));
        CONF_OK(hd_tensor_transpose(&x, 1, 2, &x));
        progress_ok(t, row, hd_tensor_copy(&y, &x, &ticket));
    } else {
        progress_ok(
            t, row,
            hd_copy(u[0].p->buffer, use_offset(&u[0]), u[1].p->buffer, use_offset(&u[1]), use_bytes(&u[0]), &ticket));
    }
    use_set_from(&u[0], &u[1], 0);
    pending_add(t, ticket, mask, row);
    return true;
}

/* Copies adjacent cells to every second cell of the destination. */
static bool do_copy_box(traffic *t)
{
    place *y = some_place(t), *x = some_place(t);
    int n = 2 + (int)conf_below(&t->random, 3);
    use u[2] = {{y, (int)conf_below(&t->random, (uint64_t)(cells - 2 * n + 2)), 2 * n - 1, HD_READ_WRITE},
                {x, (int)conf_below(&t->random, (uint64_t)(cells - n + 1)), n, HD_READ}};
    if (y->cell > x->cell || uses_overlap(&u[0], &u[1]) || uses_meet_a_job(u, 2)) {
        return false;
    }
    hd_box box = {.size = sizeof box,
                  .row = y->cell,
                  .dims = 1,
                  .count = {(size_t)n},
                  .dst_stride = {2 * y->cell},
                  .src_stride = {x->cell}};
    gates mask = operation_note(t, u, 2, -1, 0);
    int row = progress_note(t, "box, place %d [%d, %d) from place %d [%d, %d), on %016llx", (int)(y - t->places),
                            u[0].first, u[0].first + u[0].count, (int)(x - t->places), u[1].first,
                            u[1].first + u[1].count, (unsigned long long)mask);
    hd_ticket ticket;
    progress_ok(t, row, hd_copy_box(y->buffer, use_offset(&u[0]), x->buffer, use_offset(&u[1]), &box, &ticket));
    for (int i = 0; i < n; i++) {
        y->value[u[0].first + 2 * i] = x->value[u[1].first + i];
    }
    pending_add(t, ticket, mask, row);
    return true;
}

static bool do_save(traffic *t)
{
    place *p = some_place(t);
    use u = whole_use(p, HD_READ);
    if (p->kind != KEEPS || (p->saving & t->held) != 0 || uses_meet_a_job(&u, 1)) {
        return false;
    }
    gates mask = operation_note(t, &u, 1, -1, 0);
    int row = progress_note(t, "save, place %d, on %016llx", (int)(p - t->places), (unsigned long long)mask);
    hd_ticket ticket;
    progress_ok(t, row, hd_buffer_save(p->buffer, &ticket));
    p->saving = mask;
    pending_add(t, ticket, mask, row);
    return true;
}

/* ---- the program's memory, pointers ---- */

static void job_fill(job *j)
{
    for (int c = 0; c < j->n; c++) {
        float *at = (float *)(void *)(j->data + (size_t)c * j->cell);
        for (size_t i = 0; i < j->cell / 4; i++) {
            at[i] = job_reads(j) ? -77 : j->values[c];
        }
    }
}

/* A read or write between the program's memory and a place. If it need not wait, this thread makes
 * it. */
static bool do_transfer(traffic *t)
{
    static const char *const names[] = {
        "read", "write", "read of a box", "write of a box", "read of a tensor", "write of a tensor"};
    place *p = some_place(t);
    job j = {.kind = (job_kind)conf_below(&t->random, (w.without & WITHOUT_TURNED) != 0 ? 4 : 6),
             .buffer = p->buffer,
             .cell = p->cell,
             .step = 1};
    bool is_box = j.kind == JOB_READ_BOX || j.kind == JOB_WRITE_BOX;
    use u = some_use(t, p, job_reads(&j) ? HD_READ : is_box ? HD_READ_WRITE : HD_WRITE);
    j.step = is_box ? 2 : 1;
    j.n = (u.count + j.step - 1) / j.step;
    u.count = (j.n - 1) * j.step + 1;
    j.offset = use_offset(&u);
    gates mask = uses_wait_for(t, &u, 1);
    caller *by = mask == 0 ? NULL : caller_that_is_free(t);
    if ((mask != 0 && by == NULL) || uses_meet_a_job(&u, 1)) {
        return false;
    }
    int row = progress_note(t, "%s%s, place %d [%d, %d), on %016llx", by ? "another thread's " : "", names[j.kind],
                            (int)(p - t->places), u.first, u.first + u.count, (unsigned long long)mask);
    j.data = conf_memory(j.cell * (size_t)j.n);
    for (int c = 0; c < j.n; c++) {
        float *value = &p->value[u.first + c * j.step];
        *value = job_reads(&j) ? *value : some_number(t);
        j.values[c] = *value;
    }
    job_fill(&j);
    p->touched = true;
    if (by != NULL) {
        caller_begin(by, &j, &u, mask, row);
        return true;
    }
    progress_ok(t, row, job_make_call(&j));
    uses_note(&u, 1, 0);
    job_check(t, &j, row);
    t->direct += t->held != 0;
    return true;
}

static void words_check(traffic *t, int row, const float *at, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != value) {
            progress_fail(t, row, "word %zu is %g, not %g", i, (double)at[i], (double)value);
        }
    }
}

/* The program reads the bytes by a pointer, or waits for them. */
static bool do_look(traffic *t)
{
    place *p = some_place(t);
    bool writes = conf_chance(&t->random, 50);
    int how = place_is_host(p) ? (int)conf_below(&t->random, 3) : 0;
    use u =
        how == 2 ? some_use(t, p, writes ? HD_READ_WRITE : HD_READ) : whole_use(p, writes ? HD_READ_WRITE : HD_READ);
    u.count = how == 2 ? 1 : u.count;
    if (uses_wait_for(t, &u, 1) != 0 || uses_meet_a_job(&u, 1)) {
        return false;
    }
    int row = progress_note(t, "%s, place %d [%d, %d), to %s",
                            how == 0   ? "hd_buffer_wait"
                            : how == 1 ? "hd_map"
                                       : "hd_element",
                            (int)(p - t->places), u.first, u.first + u.count, writes ? "write" : "read");
    void *at = NULL;
    if (how == 0) {
        progress_ok(t, row, hd_buffer_wait(p->buffer, u.access, progress_limit()));
    } else if (how == 1) {
        progress_ok(t, row, hd_map(p->buffer, u.access, &at));
        for (int c = 0; c < cells; c++) {
            words_check(t, row, (const float *)at + (size_t)c * p->cell / 4, p->cell / 4, p->value[c]);
        }
        progress_ok(t, row, hd_unmap(p->buffer));
    } else {
        float *word = hd_element(p->buffer, use_offset(&u), p->cell, u.access);
        progress_ok(t, row, word == NULL ? HD_ERROR_FAILED : HD_OK);
        words_check(t, row, word, p->cell / 4, p->value[u.first]);
        for (size_t i = 0; i < p->cell / 4 && writes; i++) {
            word[i] = 1;
        }
        p->value[u.first] = writes ? 1 : p->value[u.first];
        p->touched |= writes;
    }
    t->direct += t->held != 0;
    return true;
}

/* ---- claims and functions ---- */

static void words_add(float *at, size_t n, float c)
{
    for (size_t i = 0; i < n; i++) {
        at[i] += c;
    }
}

/* A claim that the test ends. If it may write and the program gets a pointer, the program writes
 * its bytes. */
static bool do_claim(traffic *t)
{
    use u = some_use(t, some_place(t), conf_chance(&t->random, 40) ? HD_READ : HD_READ_WRITE);
    gates bit;
    if (t->n_claims >= most_claims || uses_meet_a_job(&u, 1) || !use_is_small(&u)) {
        return false;
    }
    barrier *by = some_gate(t, BY_CLAIM, 100, &bit);
    if (by == NULL) {
        return false;
    }
    gates mask = operation_note(t, &u, 1, -1, bit);
    int row =
        progress_note(t, "claim %d, place %d [%d, %d)%s, on %016llx", (int)(by - t->of), (int)(u.p - t->places),
                      u.first, u.first + u.count, u.access == HD_READ ? " to read" : "", (unsigned long long)mask);
    hd_arg arg = hd_arg_buffer(u.p->buffer, u.access, use_offset(&u), use_bytes(&u));
    by->needs = mask & ~bit;
    by->used = u;
    by->writes = u.access != HD_READ && place_is_host(u.p);
    by->c = by->writes ? some_number(t) : 0;
    progress_ok(t, row, hd_claim_begin(w.runtime, &arg, 1, &by->claim));
    progress_ok(t, row, hd_claim_get_ticket(by->claim, &by->ticket));
    if (by->writes) {
        use_set_from(&u, &u, by->c);
    }
    t->n_claims++;
    pending_add(t, by->ticket, mask, row);
    return true;
}

/* A gate waits for the test; any other function continues. */
static hd_status host_function(void *const *pointers, void *context)
{
    barrier *b = context;
    sem_post(&b->begins);
    while (b->kind == BY_HOST_CALL && sem_wait(&b->open) != 0) {
    }
    if (b->writes) {
        words_add(pointers[0], use_bytes(&b->used) / 4, b->c);
    }
    if (b->kind != BY_HOST_CALL) {
        sem_destroy(&b->begins);
        free(b);
    }
    return HD_OK;
}

static bool do_host_call(traffic *t)
{
    use u = some_use(t, some_place(t), conf_chance(&t->random, 40) ? HD_READ : HD_READ_WRITE);
    gates bit;
    if (t->n_host_calls >= most_host_calls || uses_meet_a_job(&u, 1) || !use_is_small(&u)) {
        return false;
    }
    barrier *by = some_gate(t, BY_HOST_CALL, 50, &bit), *b = by;
    if (b == NULL) {
        b = calloc(1, sizeof *b);
        CONF_TRUE(b != NULL);
        b->kind = GATE_KINDS;
        sem_init(&b->begins, 0, 0);
    }
    gates mask = operation_note(t, &u, 1, -1, bit);
    int row = progress_note(t, "host call%s, place %d [%d, %d)%s, on %016llx", by ? " that is held" : "",
                            (int)(u.p - t->places), u.first, u.first + u.count, u.access == HD_READ ? " to read" : "",
                            (unsigned long long)mask);
    hd_arg arg = hd_arg_buffer(u.p->buffer, u.access, use_offset(&u), use_bytes(&u));
    b->needs = mask & ~bit;
    b->used = u;
    b->writes = u.access != HD_READ && place_is_host(u.p);
    b->c = b->writes ? some_number(t) : 0;
    hd_ticket ticket;
    if (b->writes) {
        use_set_from(&u, &u, b->c);
    }
    t->n_host_calls += mask != 0;
    progress_ok(t, row, hd_launch_host(w.runtime, host_function, b, &arg, 1, &ticket));
    if (by != NULL) {
        by->ticket = ticket;
    }
    pending_add(t, ticket, mask, row);
    return true;
}

/* ---- streams, not with worker processes ---- */

static void stream_waits(void *context)
{
    barrier *b = context;
    while (sem_wait(&b->open) != 0) {
    }
}

/* Puts a fill into the stream; for a gate, behind a function that waits for the test. The device's
 * context is current. */
static hd_status stream_put(void *stream, void *context)
{
    barrier *b = context;
    int code = b->kind == GATE_KINDS ? 0 : w.driver.cuLaunchHostFunc(stream, stream_waits, b);
    code = code ? code : w.driver.cuMemsetD32Async(b->at, b->word, b->count, stream);
    if (b->kind == GATE_KINDS) {
        free(b);
    }
    return code == 0 ? HD_OK : HD_ERROR_DRIVER;
}

/* A fill by the program itself. On GPUs one thread of the driver runs the functions of all streams,
 * so gates are impossible. */
static barrier *some_fill(traffic *t, gate_kind kind, const use *u, gates *bit)
{
    barrier *b = some_gate(t, kind, w.host ? 50 : 0, bit);
    if (b == NULL) {
        b = calloc(1, sizeof *b);
        CONF_TRUE(b != NULL);
        b->kind = GATE_KINDS;
    }
    float value = some_number(t);
    b->at = hd_buffer_address(u->p->buffer) + use_offset(u);
    b->word = conf_bits(value);
    b->count = use_bytes(u) / 4;
    use_set(u, value);
    return b;
}

static bool do_lane_call(traffic *t)
{
    int l = some_lane(t);
    use u = some_use(t, some_place(t), HD_WRITE);
    if (!kind_is_used(BY_LANE_CALL) || u.p->device != hd_lane_device(t->lanes[l]) || !lane_has_room(t, l) ||
        uses_meet_a_job(&u, 1)) {
        return false;
    }
    gates bit;
    barrier *b = some_fill(t, BY_LANE_CALL, &u, &bit);
    gates mask = operation_note(t, &u, 1, l, bit);
    int row = progress_note(t, "lane call%s, lane %d, place %d [%d, %d), on %016llx", bit ? " that is held" : "", l,
                            (int)(u.p - t->places), u.first, u.first + u.count, (unsigned long long)mask);
    b->needs = mask & ~bit;
    hd_arg arg = hd_out_range(u.p->buffer, use_offset(&u), use_bytes(&u));
    hd_ticket ticket;
    progress_ok(t, row, hd_lane_run_native(t->lanes[l], stream_put, b, &arg, 1, &ticket));
    if (bit) {
        b->ticket = ticket;
    }
    pending_add(t, ticket, mask, row);
    return true;
}

/* Begins only if no work is in front: it may wait until the engine has submitted that work to the
 * driver. */
static bool do_stream_claim(traffic *t)
{
    use u = some_use(t, some_place(t), HD_WRITE);
    if (u.p->kind == UNIFIED && (w.without & WITHOUT_STREAMED) != 0) {
        return false;
    }
    if (!kind_is_used(BY_STREAM) || u.p->device < 0 || t->n_claims >= most_claims || uses_wait_for(t, &u, 1) != 0 ||
        uses_meet_a_job(&u, 1)) {
        return false;
    }
    gates bit;
    int device = u.p->device;
    barrier *b = some_fill(t, BY_STREAM, &u, &bit);
    gates mask = bit | (t->stream_mask[device] & t->held);
    t->stream_mask[device] = mask;
    uses_note(&u, 1, mask);
    int row =
        progress_note(t, "claim on a stream%s of device %d, place %d [%d, %d), on %016llx", bit ? " that is held" : "",
                      device, (int)(u.p - t->places), u.first, u.first + u.count, (unsigned long long)mask);
    hd_arg arg = hd_out_range(u.p->buffer, use_offset(&u), use_bytes(&u));
    hd_claim *claim = NULL;
    hd_ticket ticket;
    progress_ok(t, row, hd_claim_begin_stream(w.runtime, device, t->streams[device], &arg, 1, NULL, &claim));
    progress_ok(t, row, hd_claim_get_ticket(claim, &ticket));
    if (bit) {
        b->ticket = ticket;
    }
    foreign_enter(&w.driver, device);
    progress_ok(t, row, stream_put(t->streams[device], b));
    foreign_leave(&w.driver);
    progress_ok(t, row, hd_claim_end(claim, HD_OK));
    t->n_claims++;
    pending_add(t, ticket, mask, row);
    return true;
}

/* ---- opening them ---- */

/* The program may use the bytes of a claim, or of a function, once no work in front is held. */
static void gate_begins(traffic *t, int g)
{
    barrier *b = &t->of[g];
    int64_t until = conf_now() + progress_limit();
    if (b->begun || (b->needs & t->held) != 0 || (b->kind != BY_CLAIM && b->kind != BY_HOST_CALL)) {
        return;
    }
    if (b->kind == BY_CLAIM) {
        if (hd_claim_wait(b->claim, progress_limit()) != HD_OK) {
            progress_fail(t, -1, "claim %d waits for no held gate, and is not ready: %s", g, hd_message());
        }
    }
    while (b->kind == BY_HOST_CALL && sem_trywait(&b->begins) != 0) {
        (void)hd_wait(b->ticket, CONF_MILLISECOND); /* with placement=inline, this runs the
                                                     * engine */
        if (conf_now() > until) {
            progress_fail(t, -1, "the function of gate %d waits for no held gate, and was not called: %s", g,
                          hd_message());
        }
    }
    b->begun = true;
}

/* False: the claim cannot end yet, since the program must write its bytes first. */
static bool gate_open(traffic *t, int g)
{
    barrier *b = &t->of[g];
    if (b->kind == BY_CLAIM && b->writes && (b->needs & t->held) != 0) {
        return false;
    }
    progress_note(t, "gate %d is opened", g);
    switch (b->kind) {
    case BY_KERNEL:
        progress_raise(b->flag);
        break;
    case BY_CLAIM:
        if (b->writes) {
            void *at = NULL;
            gate_begins(t, g);
            CONF_OK(hd_claim_get_pointer(b->claim, 0, &at));
            words_add(at, use_bytes(&b->used) / 4, b->c);
        }
        CONF_OK(hd_claim_end(b->claim, HD_OK));
        break;
    default:
        sem_post(&b->open);
        break;
    }
    t->held &= ~((gates)1 << g);
    return true;
}

/* Opens a random gate that can be opened. */
static void gate_open_some(traffic *t)
{
    int from = (int)conf_below(&t->random, (uint64_t)t->n_gates), tries = 0;
    bool opened = false;
    for (; tries < t->n_gates && !opened; tries++) {
        int g = (from + tries) % t->n_gates;
        opened = (t->held >> g & 1) && gate_open(t, g);
    }
    CONF_TRUE(opened);
}

#endif
