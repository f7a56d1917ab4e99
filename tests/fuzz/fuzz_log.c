/* fuzz_log.c - recorded logs of allocations, and the file recorded.jsonl beside them: accepted logs
 * can be replayed without checks.
 *
 * An input: two bytes for the length of the log, the log, and recorded.jsonl.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <limits.h>
#include "bench/alloc_parts.h"

/* Checks that every slot is allocated while free and freed while live, and that sizes add up to the
 * peak. */
static void check_log(const alloc_log *log)
{
    uint64_t *live = calloc(log->slots + (size_t)1, sizeof *live), now = 0, peak = 0;
    fuzz_check(live != NULL && log->count > 0 && log->slots > 0 && log->lanes > 0 && log->lanes <= ALLOC_LANES_MAX);
    for (size_t i = 0; i < log->count; i++) {
        const alloc_op *op = &log->ops[i];
        fuzz_check(op->slot < log->slots && op->lane < log->lanes && op->bytes <= log->largest);
        fuzz_check((op->bytes == 0) == (live[op->slot] != 0));
        now = now + op->bytes - live[op->slot];
        live[op->slot] = op->bytes;
        peak = now > peak ? now : peak;
    }
    fuzz_check(peak == log->peak_live && peak == bench_alloc_log_peak(log, log->count));
    free(live);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    size_t n;
    const uint8_t *piece = fuzz_take_piece(&in, (size_t)fuzz_take(&in, 2), &n);
    fuzz_write("x.hdlog", piece, n);
    fuzz_write("recorded.jsonl", in.at, in.left);
    char path[PATH_MAX], error[PLAIN_ERROR];
    snprintf(path, sizeof path, "%s/x.hdlog", fuzz_folder());
    alloc_log log;
    if (!bench_alloc_log_read(path, &log, error)) {
        fuzz_check(fuzz_is_text(error, sizeof error) && error[0] != 0);
        return 0;
    }
    fuzz_check(strcmp(log.name, "x") == 0);
    check_log(&log);
    bench_alloc_log_fit(&log, 1 << 20);
    check_log(&log);
    bench_alloc_log_release(&log);
    return 0;
}
