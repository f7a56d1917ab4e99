/* fuzz_trace.c - trace files: with any bytes, the analysis ends, devices' windows split completely,
 * and all outputs are written.
 *
 * An input is a list of records; a first byte of 1 puts a valid TRACE record in front of them.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "cli/trace/output.h"

static trace t;

static FILE *nowhere(void)
{
    static FILE *out;
    if (!out) {
        out = fopen("/dev/null", "we");
        fuzz_check(out != NULL);
    }
    return out;
}

static void check_split(const trace_device *d)
{
    int64_t at = d->begin, causes = 0;
    for (size_t i = 0; i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        fuzz_check(p->begin == at && p->end > p->begin);
        fuzz_check(p->op == TRACE_NONE || (size_t)p->op < t.n_ops);
        fuzz_check(p->holder == TRACE_NONE || (size_t)p->holder < t.n_ops);
        fuzz_check(p->wait == TRACE_NONE || (size_t)p->wait < t.n_waits);
        at = p->end;
    }
    for (int c = 0; c < TRACE_CAUSES; c++) {
        causes += d->cause[c];
    }
    fuzz_check(at == d->end && causes == d->idle);
    fuzz_check(d->compute + d->transfer + d->idle == d->end - d->begin);
}

/* Checks that indices lead to existing rows, and that times are in order. */
static void check_tables(void)
{
    for (size_t i = 0; i < t.n_ops; i++) {
        const trace_op *op = &t.ops[i];
        fuzz_check(op->stretch == TRACE_NONE || (size_t)op->stretch < t.n_stretches);
        fuzz_check(op->first_wait + op->n_waits <= t.n_waits);
        fuzz_check(op->began == TRACE_UNSEEN || op->ended == TRACE_UNSEEN || op->began <= op->ended);
    }
    for (size_t i = 0; i < t.n_stretches; i++) {
        const trace_stretch *s = &t.stretches[i];
        fuzz_check(s->began <= s->ended && s->first_op <= s->last_op && s->last_op < (int64_t)t.n_ops);
        fuzz_check(i == 0 || s[-1].lane < s->lane || (s[-1].lane == s->lane && s[-1].began <= s->began));
    }
    for (size_t i = 0; i < t.n_waits; i++) {
        fuzz_check(t.waits[i].other >= TRACE_NONE && t.waits[i].other < (int64_t)t.n_ops);
    }
    for (size_t i = 0; i < t.n_activities; i++) {
        fuzz_check(t.activities[i].op >= TRACE_NONE && t.activities[i].op < (int64_t)t.n_ops);
    }
    for (size_t i = 0; i < t.n_findings; i++) {
        const trace_finding *f = &t.findings[i];
        fuzz_check(f->first >= 0 && (size_t)f->first <= i);
        fuzz_check(f->next == TRACE_NONE || ((size_t)f->next > i && (size_t)f->next < t.n_findings));
    }
}

/* For each buffer's rows that count, checks that the second removes what the first adds. */
static void check_memory(void)
{
    for (size_t i = 0; i < t.n_memory; i++) {
        const trace_memory *m = &t.memory[i];
        fuzz_check(i == 0 || m[-1].time <= m->time);
        fuzz_check(m->other >= TRACE_NONE && m->other < (int64_t)t.n_memory);
        if (m->other != TRACE_NONE) {
            const trace_memory *other = &t.memory[m->other];
            fuzz_check(other->other == (int32_t)i && other->is_alloc != m->is_alloc && other->counts == m->counts);
            fuzz_check(other->bytes == m->bytes && other->label == m->label && other->buffer == m->buffer);
            fuzz_check((m->is_alloc ? m : other) < (m->is_alloc ? other : m));
        }
        fuzz_check(!m->counts || m->is_alloc || m->other != TRACE_NONE);
    }
    for (size_t i = 0; i < t.n_losses; i++) {
        const trace_loss *l = &t.losses[i];
        fuzz_check((i == 0 || l[-1].time <= l->time) && (l->ended == TRACE_UNSEEN || l->ended >= l->time));
    }
}

static void check_outputs(void)
{
    char error[512], where[64];
    FILE *out = nowhere();
    trace_put_text(&t, false, out);
    trace_put_text(&t, true, out);
    trace_put_json(&t, out);
    trace_export_chrome(&t, out);
    trace_export_hta(&t, 0, out);
    trace_export_snapshot(&t, out);
    trace_check(&t, "idle < 5 %\ngap.max < 1 ms\nmemory.peak < 1 GiB\ncritical.host < 3 %\n", out, error);
    for (size_t i = 0; i < t.n_ops && i < 20; i++) {
        snprintf(where, sizeof where, "%u.%u:%llu", t.ops[i].lane / HDI_RECORD_LANES, t.ops[i].lane % HDI_RECORD_LANES,
                 (unsigned long long)t.ops[i].position);
        error[0] = 0;
        fuzz_check(trace_put_why(&t, where, out, error) || error[0] != 0);
    }
    for (size_t i = 0; i < t.n_names; i++) {
        fuzz_check(fuzz_is_text(t.names[i], strlen(t.names[i]) + 1));
    }
}

/* Rules are text from a file, too. */
static void check_rules(const uint8_t *bytes, size_t n)
{
    char error[512] = "", *text = fuzz_text(bytes, n);
    int status = trace_check(&t, text, nowhere(), error);
    fuzz_check(status >= 0 && status <= 2 && (status != 2 || error[0] != 0));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char error[512] = "";
    bool sound = bytes > 0 && input[0] == 1;
    size_t n = bytes > 0 ? bytes - 1 : 0, head = sound ? HDI_RECORD_BYTES : 0;
    uint8_t *copy = malloc(n + head + 1);
    fuzz_check(copy != NULL);
    if (sound) {
        hdi_record first = {.type = HDI_RECORD_TRACE};
        first.device = 2, first.kind = HDI_RECORD_DETAIL_FULL;
        first.trace.magic = HDI_RECORD_MAGIC, first.trace.version = HDI_RECORD_VERSION;
        memcpy(copy, &first, sizeof first);
    }
    if (n > 0) {
        memcpy(copy + head, input + 1, n);
    }
    if (trace_read_bytes(copy, n + head, &t, error)) {
        for (int d = 0; d < t.n_devices; d++) {
            check_split(&t.devices[d]);
        }
        check_tables();
        check_memory();
        check_outputs();
        check_rules(copy, n + head);
    } else {
        fuzz_check(error[0] != 0 && strchr(error, '\n') == NULL);
    }
    trace_release(&t);
    free(copy);
    return 0;
}
