/* parser.c - makes verdicts from records.
 *
 * Threads, locks, blocking, and what always holds: see parser.h.
 */
#include "peer/parser.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "driver/driver.h"

#define RATE_MOST 1e16

#define STEP_BIT(step) (1u << (step))
#define STEPS_NEEDED                                                                                                   \
    (STEP_BIT(HDI_STEP_COPY_TO) | STEP_BIT(HDI_STEP_STORE) | STEP_BIT(HDI_STEP_COPY_FROM) | STEP_BIT(HDI_STEP_LOAD))

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

/* ---- in words ---- */

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
static void describe_bytes(const hdi_record *step, char *out, size_t bytes)
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

/* Describes what the program did in a step. */
static void describe_step(const hdi_record *step, char *out, size_t bytes)
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

static void conclude(hdi_peer_parser *h, hd_peer_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void conclude(hdi_peer_parser *h, hd_peer_verdict verdict, const char *format, ...)
{
    h->decided = true;
    h->info.verdict = verdict;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(h->info.reason, sizeof h->info.reason, format, arguments);
    va_end(arguments);
}

/* Copies the text of a record, which comes from another process and may be anything. */
static void clean_text(const hdi_record *record, char *out)
{
    memcpy(out, record->text, sizeof record->text);
    out[sizeof record->text - 1] = 0;
    for (char *p = out; *p; p++) {
        *p = isprint((unsigned char)*p) ? *p : '?';
    }
}

/* ---- records ---- */

static hdi_parsed begin_pair(hdi_peer_parser *h, const hdi_record *r)
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

static hdi_parsed begin_step(hdi_peer_parser *h, const hdi_record *r)
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

static hdi_parsed take_wrong(hdi_peer_parser *h, const hdi_record *r)
{
    bool counts = h->step.step == HDI_STEP_COUNT;
    if (h->step.step < HDI_STEP_COPY_TO || h->step.step > HDI_STEP_COUNT ||
        counts != (r->kind == HDI_RECORD_MISCOUNT)) {
        return HDI_PARSED_MALFORMED;
    }
    char what[128];
    describe_bytes(&h->step, what, sizeof what);
    long long at = r->at;
    if (counts) {
        conclude(h, HD_PEER_CORRUPT, "%s: counter %lld is %llu instead of %llu", what, at, (unsigned long long)r->found,
                 (unsigned long long)r->expected);
    } else if (r->kind == HDI_RECORD_WRONG) {
        conclude(h, HD_PEER_CORRUPT, "%s did not arrive: first wrong byte %lld, found 0x%02x instead of 0x%02x", what,
                 at, (unsigned)(r->found & 0xff), (unsigned)(r->expected & 0xff));
    } else {
        conclude(h, HD_PEER_CORRUPT, "%s went beside: byte %lld of them, found 0x%02x instead of 0x%02x", what, at,
                 (unsigned)(r->found & 0xff), (unsigned)(r->expected & 0xff));
    }
    return HDI_PARSED_MORE;
}

/* Whether a failed call means that its step ended the device. A driver's code decides where there is one: running out
 * of memory, for example, is no fault of the pair. */
static bool is_loss(const hdi_record *r)
{
    if (r->code > 0 && r->status != HD_ERROR_DEVICE_LOST) {
        return hdi_driver_code_is_fatal(r->code);
    }
    return r->status == HD_ERROR_FAILED || r->status == HD_ERROR_LANE_FAILED || r->status == HD_ERROR_DEVICE_LOST;
}

static hdi_parsed take_failed(hdi_peer_parser *h, const hdi_record *r)
{
    char text[sizeof r->text], what[128];
    clean_text(r, text);
    describe_step(&h->step, what, sizeof what);
    bool loss = is_loss(r);
    bool timing = h->step.step == HDI_STEP_TIME_DIRECT || h->step.step == HDI_STEP_TIME_STAGED;
    if (timing && !loss) {
        h->untimed = true; /* the verdict needs no rates */
        return HDI_PARSED_MORE;
    }
    h->info.driver_code = r->code > 0 ? r->code : 0;
    bool guilty = h->risky && loss && h->step.step != HDI_STEP_TIME_STAGED;
    conclude(h, guilty ? HD_PEER_CORRUPT : HD_PEER_INCONCLUSIVE, "the test failed while %s: %s", what, text);
    h->failed_open = !h->in_pair;
    return HDI_PARSED_MORE;
}

static hdi_parsed take_refused(hdi_peer_parser *h, const hdi_record *r)
{
    if (h->step.step != HDI_STEP_GRANT || r->code <= 0) {
        return HDI_PARSED_MALFORMED;
    }
    char text[sizeof r->text];
    clean_text(r, text);
    h->info.driver_code = r->code;
    conclude(h, HD_PEER_REFUSED, "the driver refuses it: %s%s%s", text, text[0] ? ": " : "",
             hdi_driver_code_name(r->code));
    return HDI_PARSED_MORE;
}

static hdi_parsed take_rates(hdi_peer_parser *h, const hdi_record *r)
{
    if (!(r->direct >= 0 && r->direct < RATE_MOST && r->staged >= 0 && r->staged < RATE_MOST)) {
        return HDI_PARSED_MALFORMED;
    }
    h->info.direct_bytes_per_s = r->direct;
    h->info.staged_bytes_per_s = r->staged;
    return HDI_PARSED_MORE;
}

static hdi_parsed end_pair(hdi_peer_parser *h)
{
    if (!h->decided && (h->steps & STEPS_NEEDED) != STEPS_NEEDED) {
        return HDI_PARSED_MALFORMED;
    }
    const double direct = h->info.direct_bytes_per_s, staged = h->info.staged_bytes_per_s;
    if (h->decided) {
        h->info.atomics = h->info.atomics && h->info.verdict != HD_PEER_CORRUPT;
    } else if (direct > 0 && staged > h->slow_margin * direct) {
        conclude(h, HD_PEER_SLOW, "bytes arrive, but at %.3g GB/s, and through pinned memory at %.3g GB/s",
                 direct / 1e9, staged / 1e9);
    } else {
        conclude(h, HD_PEER_USABLE, "%s", "");
    }
    h->in_pair = false;
    return HDI_PARSED_RESULT;
}

hdi_parsed hdi_peer_parser_take(hdi_peer_parser *h, const hdi_record *r)
{
    if (r->magic != HDI_PROBE_MAGIC || r->version != HDI_PROBE_VERSION || h->ended || h->failed_open) {
        return HDI_PARSED_MALFORMED;
    }
    /* after a verdict only the end of the pair may follow */
    bool over = h->in_pair && h->decided;
    if (over ? r->kind != HDI_RECORD_PAIR_END : !h->in_pair && r->kind > HDI_RECORD_STEP && r->kind != HDI_RECORD_END) {
        return r->kind == HDI_RECORD_FAILED && h->current < 0 ? take_failed(h, r) : HDI_PARSED_MALFORMED;
    }
    switch (r->kind) {
    case HDI_RECORD_PAIR:
        return begin_pair(h, r);
    case HDI_RECORD_STEP:
        return begin_step(h, r);
    case HDI_RECORD_WRONG:
    case HDI_RECORD_BESIDE:
    case HDI_RECORD_MISCOUNT:
        return take_wrong(h, r);
    case HDI_RECORD_FAILED:
        return take_failed(h, r);
    case HDI_RECORD_REFUSED:
        return take_refused(h, r);
    case HDI_RECORD_COUNTS:
        h->info.atomics = h->step.step == HDI_STEP_COUNT;
        return h->info.atomics ? HDI_PARSED_MORE : HDI_PARSED_MALFORMED;
    case HDI_RECORD_RATES:
        return take_rates(h, r);
    case HDI_RECORD_PAIR_END:
        return end_pair(h);
    case HDI_RECORD_END:
        h->ended = !h->in_pair && h->current == h->n - 1;
        return h->ended ? HDI_PARSED_END : HDI_PARSED_MALFORMED;
    default:
        return HDI_PARSED_MALFORMED;
    }
}

/* ---- the end ---- */

bool hdi_peer_parser_end(hdi_peer_parser *h, hdi_ending ending, int detail)
{
    if ((h->current >= 0 && !h->in_pair) || (h->decided && (h->in_pair || h->failed_open))) {
        bool open = h->in_pair || h->failed_open;
        h->in_pair = false;
        return open;
    }
    if (h->in_pair && h->untimed) { /* the program may end here */
        conclude(h, HD_PEER_USABLE, "%s", "");
        h->in_pair = false;
        return true;
    }
    char what[128], how[64];
    describe_step(&h->step, what, sizeof what);
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
    conclude(h, guilty ? HD_PEER_CORRUPT : HD_PEER_INCONCLUSIVE, "the test %s while %s", how, what);
    h->in_pair = false;
    return true;
}
