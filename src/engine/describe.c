/* describe.c - describes operations, losses of devices and waits without success, in the messages
 * and fields of an hd_error.
 *
 * Threads: any.
 * Locks: hdi_not_done takes order locks, one at a time. Callers of the other functions may hold
 * order locks.
 * Blocking: none.
 * Always: the operation that a message names first is also the one in the error's fields. A likely
 * cause is reported as likely, not as certain.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/engine.h"

enum { LIST_BYTES = 260 }; /* for the operations in a message */

static const char *describe_operation_name(uint8_t op)
{
    static const char *const names[HDI_OPS] = {
#define NAME(op, call, name, entries, rank) [HDI_OP_##op] = name,
        HDI_OP_MAP(NAME)
#undef NAME
    };
    return hdi_op_is_work(op) ? names[op] : "";
}

void hdi_operation_text(hd_runtime *rt, uint8_t op, uint32_t kernel, char *out, size_t bytes)
{
    if (op == HDI_OP_LAUNCH) {
        char name[HDI_KERNEL_NAME_BYTES];
        hdi_kernel_name(rt, kernel, name);
        snprintf(out, bytes, "the launch of kernel '%.100s'", name);
    } else if (op) {
        snprintf(out, bytes, "a %s", describe_operation_name(op));
    } else {
        snprintf(out, bytes, "an operation");
    }
}

hd_error hdi_failure_error(hd_runtime *rt, const hdi_failure *f)
{
    hd_error error = hdi_error_blank(f->lost ? HD_ERROR_DEVICE_LOST : HD_ERROR_FAILED);
    error.driver_code = f->driver_code > 0 ? f->driver_code : 0;
    error.device = (int)(f->lane / HDI_LANES_MAX);
    error.lane = (int)(f->lane % HDI_LANES_MAX);
    error.ticket = f->position;
    snprintf(error.operation, sizeof error.operation, "%s", describe_operation_name(f->op));
    if (f->op == HDI_OP_LAUNCH) {
        char name[HDI_KERNEL_NAME_BYTES];
        hdi_kernel_name(rt, f->kernel, name);
        snprintf(error.kernel, sizeof error.kernel, "%s", name);
    }
    return error;
}

/* ---- suspects ---- */

/* "kernel 'x' (lane 3, ticket 7)", "a copy (lane 1, tickets 2 to 9, 4 of them)". Returns the
 * length. */
static int describe_suspect(hd_runtime *rt, const hdi_suspect *s, bool first, char *out, size_t bytes)
{
    char what[HDI_KERNEL_NAME_BYTES + 16], name[HDI_KERNEL_NAME_BYTES], claim[HDI_CLAIM_TEXT], tickets[96];
    if (s->op == HDI_OP_LAUNCH) {
        hdi_kernel_name(rt, s->kernel, name);
        snprintf(what, sizeof what, "kernel '%.*s'", first ? 100 : 40, name);
    } else if (s->op == HDI_OP_CLAIM) {
        hdi_outcome_claim_text(rt, s->lane, s->position, claim);
        snprintf(what, sizeof what, "%.*s", first ? 120 : 60, claim);
    } else {
        snprintf(what, sizeof what, "a %s", describe_operation_name(s->op));
    }
    if (s->count == 1) {
        snprintf(tickets, sizeof tickets, "ticket %llu", (unsigned long long)s->position);
    } else {
        snprintf(tickets, sizeof tickets, "tickets %llu to %llu, %u of them", (unsigned long long)s->position,
                 (unsigned long long)s->last, (unsigned)s->count);
    }
    return snprintf(out, bytes, "%s (lane %u, %s)", what, (unsigned)(s->lane % HDI_LANES_MAX), tickets);
}

/* True if the operation to blame for the failure is one of the suspect's operations. */
static bool describe_suspect_is_blamed(const hdi_suspect *s, const hdi_failure *f)
{
    return s->lane == f->lane && s->op == f->op && s->kernel == f->kernel;
}

/* Lists the suspects. The operation to blame comes first. If not all operations fit, the number of
 * the remaining ones follows. */
static void describe_suspect_list(hd_runtime *rt, const hdi_suspects *all, const hdi_failure *f, char *out)
{
    hdi_suspect first = {f->position, f->position, f->lane, f->kernel, 1, f->op};
    for (uint32_t i = 0; i < all->n_named; i++) {
        first = describe_suspect_is_blamed(&all->named[i], f) ? all->named[i] : first;
    }
    uint64_t left = all->count - first.count;
    int length = describe_suspect(rt, &first, true, out, LIST_BYTES);
    for (uint32_t i = 0; i < all->n_named; i++) {
        char text[LIST_BYTES];
        if (!describe_suspect_is_blamed(&all->named[i], f) &&
            length + describe_suspect(rt, &all->named[i], false, text, sizeof text) < LIST_BYTES - 40) {
            length += snprintf(out + length, (size_t)(LIST_BYTES - length), ", %s", text);
            left -= all->named[i].count;
        }
    }
    if (left) {
        snprintf(out + length, (size_t)(LIST_BYTES - length), " and %llu more", (unsigned long long)left);
    }
}

/* Describes the possible causes of a loss, and states which of them are certain. */
static void describe_loss_causes(hd_runtime *rt, const hdi_suspects *all, const hdi_failure *f, char *out, size_t bytes)
{
    char list[LIST_BYTES] = "";
    hdi_suspects only = {.begun = true, .count = f->op ? 1 : 0};
    /* without suspects, the text names only the operation in the failure itself */
    if (!all || !all->count) {
        only.named[0] = (hdi_suspect){.position = f->position,
                                      .last = f->position,
                                      .lane = f->lane,
                                      .kernel = f->kernel,
                                      .count = 1,
                                      .op = f->op};
        only.n_named = (uint32_t)only.count;
    }
    bool known = all && all->count;
    const hdi_suspects *told = known ? all : &only;
    if (told->count) {
        describe_suspect_list(rt, told, f, list);
    }
    bool kernels = f->op == HDI_OP_LAUNCH && hdi_driver_code_is_of_kernel(f->driver_code);
    if (!told->count) {
        snprintf(out, bytes, "nothing was under way there");
    } else if (!told->begun) {
        snprintf(out, bytes, "nothing was under way there; next was %s", list);
    } else if (told->certain) {
        snprintf(out, bytes, "it is %s", list);
    } else if (kernels && known && told->count > 1) {
        snprintf(out, bytes, "it is one of the %llu launches under way there: %s", (unsigned long long)told->count,
                 list);
    } else if (kernels && known) {
        snprintf(out, bytes, "the only launch under way there: %s", list);
    } else {
        snprintf(out, bytes, "under way there: %s", list);
    }
}

/* ": " and the operating system's report that goes with the loss. A worker may have written
 * anything, so this function makes one line of it. */
static void describe_kernel_report(hd_runtime *rt, const hdi_failure *f, char out[HDI_DRIVER_REASON_BYTES + 2])
{
    const hdi_device *device = rt->devices[f->lane / HDI_LANES_MAX];
    char words[HDI_DRIVER_REASON_BYTES] = "";
    if (!rt->is_process) {
        rt->provider->reason(device->ordinal, f->driver_code, words);
    } else if (f->driver_code == HDCU_ERROR_ASSERT || f->driver_code == HDCU_ERROR_LAUNCH_FAILED) {
        memcpy(words, device->channel.engine->reason, sizeof words);
    }
    words[sizeof words - 1] = 0;
    for (char *c = words; *c; c++) {
        *c = *c >= ' ' && *c != 127 ? *c : '?';
    }
    snprintf(out, HDI_DRIVER_REASON_BYTES + 2, "%s%s", words[0] ? ": " : "", words);
}

void hdi_loss_describe(hd_runtime *rt, const hdi_failure *f, const hdi_suspects *suspects, hd_error *out)
{
    hd_error error = hdi_failure_error(rt, f);
    char operations[LIST_BYTES + 80], words[HDI_DRIVER_REASON_BYTES + 2];
    describe_kernel_report(rt, f, words);
    describe_loss_causes(rt, suspects, f, operations, sizeof operations);
    bool takes_others = !rt->is_process && rt->n_devices > 1 && rt->provider->faults_spread;
    snprintf(error.message, sizeof error.message, "device %d is lost: %s%s; %.*s%s", error.device,
             hdi_driver_code_name(f->driver_code), words, words[0] ? 200 : LIST_BYTES + 80, operations,
             takes_others ? "; the driver takes a process's other GPUs down with it" : "");
    *out = error;
}

/* Describes for how long nothing ended in the lane. A worker may have written any time into
 * `moved`, so an impossible time is left out. */
static void describe_standing_time(hd_runtime *rt, uint32_t lane, char *out, size_t bytes)
{
    char amount[HDI_AMOUNT_BYTES];
    int64_t moved = atomic_load_explicit(&hdi_lane_shared_of(rt, lane)->moved, memory_order_relaxed);
    int64_t now = hdi_clock_ns();
    out[0] = 0;
    if (moved > 0 && moved < now) {
        snprintf(out, bytes, "; nothing has ended in lane %u for %s", (unsigned)(lane % HDI_LANES_MAX),
                 hdi_duration_text((uint64_t)(now - moved), amount));
    }
}

hd_status hdi_closed_meanwhile(void)
{
    return hdi_fail(HD_ERROR_HANDLE, "the runtime was closed meanwhile");
}

hd_status hdi_limit_refused(int64_t timeout_ns)
{
    return hdi_fail(HD_ERROR_ARGUMENT, "the time limit is %lld ns; pass 0 or more, or HD_FOREVER",
                    (long long)timeout_ns);
}

/* Describes the launches behind the awaited ones that may hide their ends. */
static void describe_behind(hd_runtime *rt, const hdi_suspects *awaited, char *out, size_t bytes)
{
    hdi_suspects behind;
    char list[LIST_BYTES];
    out[0] = 0;
    hdi_suspects_behind(rt, awaited, &behind);
    if (behind.count) {
        const hdi_suspect *s = &behind.named[0];
        const hdi_failure first = {.position = s->position, .lane = s->lane, .kernel = s->kernel, .op = s->op};
        describe_suspect_list(rt, &behind, &first, list);
        snprintf(out, bytes, ", or it ended, and this shows only when a later launch ends: %.110s", list);
    }
}

hd_status hdi_not_done(hd_runtime *rt, uint32_t lane, uint64_t position, const char *format, ...)
{
    char text[140], list[LIST_BYTES], operation[LIST_BYTES] = "", standing[80] = "", behind[180];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (hdi_is_closing(rt)) {
        return hdi_closed_meanwhile();
    }
    hdi_suspects awaited;
    hdi_suspect own;
    if (!hdi_suspects_awaited(rt, lane, position, &awaited, &own)) {
        return hdi_fail(HD_ERROR_TIMEOUT, "%s", text);
    }
    const hdi_suspect *s = &awaited.named[0];
    const hdi_failure first = {.position = s->position, .lane = s->lane, .kernel = s->kernel, .op = s->op};
    hd_error error = hdi_failure_error(rt, &first);
    error.status = HD_ERROR_TIMEOUT;
    describe_suspect_list(rt, &awaited, &first, list);
    if (own.count && (own.lane != s->lane || own.position != s->position)) {
        describe_suspect(rt, &own, false, operation, sizeof operation);
    }
    if (awaited.begun) {
        describe_standing_time(rt, s->lane, standing, 60);
    }
    describe_behind(rt, &awaited, behind, sizeof behind);
    size_t length = strlen(standing);
    const hd_lane *held = hdi_lane_at(hdi_lane_owner(rt, s->lane), s->lane % HDI_LANES_MAX);
    if (s->op == HDI_OP_CLAIM && held && hdi_claim_is_left_to_program(held)) {
        snprintf(standing + length, sizeof standing - length, "; end the claim");
    }
    snprintf(error.message, sizeof error.message, "%s; %s%.80s%s%s on device %d: %.*s%s", text,
             operation[0] ? "awaited: " : "", operation, operation[0] ? "; " : "",
             awaited.begun ? "unfinished" : "not seen to start", error.device, behind[0] ? 100 : 180, list, behind);
    size_t used = strnlen(error.message, sizeof error.message - sizeof standing);
    memcpy(error.message + used, standing, sizeof standing);
    return hdi_fail_error(&error);
}
