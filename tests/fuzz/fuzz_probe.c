/* fuzz_probe.c - reports of heddle-probe about pairs of devices: any report leads to a verdict with
 * a reason.
 *
 * An input: how the program ends (two bytes), then records of 12 bytes, which determine the fields
 * of a real record. If a record's eighth byte is 255, a real one follows.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "peer/test.h"

enum { PAIRS = 3 };
static const hdi_pair pairs[PAIRS] = {{5, 7, 0, 1}, {7, 5, 1, 0}, {5, 9, 0, 2}};

static hdi_probe_record take_record(fuzz_input *in)
{
    hdi_probe_record r;
    memset(&r, 0, sizeof r);
    r.magic = HDI_PROBE_MAGIC;
    r.version = HDI_PROBE_VERSION;
    r.kind = (uint32_t)fuzz_take(in, 1);
    r.step = (uint32_t)fuzz_take(in, 1);
    r.device = (int8_t)fuzz_take(in, 1);
    r.owner = (int8_t)fuzz_take(in, 1);
    r.status = (int8_t)fuzz_take(in, 1);
    r.code = (int16_t)fuzz_take(in, 2);
    uint8_t letter = (uint8_t)fuzz_take(in, 1);
    uint32_t value = (uint32_t)fuzz_take(in, 4);
    uint64_t rate = (uint64_t)value << 32 | value;
    memset(r.text, letter, sizeof r.text);
    r.bytes = value;
    r.at = (int32_t)value;
    r.found = ~(uint64_t)value;
    r.expected = (uint64_t)value * value;
    memcpy(&r.direct, &rate, sizeof rate);
    memcpy(&r.staged, &rate, sizeof rate);
    if (letter == 255 && in->left >= sizeof r) {
        size_t n;
        memcpy(&r, fuzz_take_piece(in, sizeof r, &n), sizeof r);
    }
    return r;
}

static void check_result(const hd_peer_info *finding)
{
    hd_peer_info info = *finding;
    fuzz_check(info.size == sizeof info && !info.remembered);
    fuzz_check(info.verdict != HD_PEER_UNKNOWN && hd_peer_verdict_text(info.verdict)[0] != 0);
    fuzz_check(memchr(info.reason, 0, sizeof info.reason) != NULL);
    fuzz_check(info.direct_bytes_per_s >= 0 && info.staged_bytes_per_s >= 0);
    hdi_peer_name_devices(&info, INT32_MIN, INT32_MAX);
    fuzz_check(fuzz_is_text(info.reason, sizeof info.reason));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    hdi_ending ending = (hdi_ending)(fuzz_take(&in, 1) % (HDI_ENDING_MALFORMED + 1));
    int detail = (int8_t)fuzz_take(&in, 1);
    hdi_peer_parser h;
    hdi_peer_parser_begin(&h, pairs, PAIRS, 1.3);
    while (in.left > 0) {
        hdi_probe_record r = take_record(&in);
        hdi_parsed parsed = hdi_peer_parser_take(&h, &r);
        fuzz_check(h.current >= -1 && h.current < PAIRS);
        if (parsed == HDI_PARSED_RESULT) {
            fuzz_check(h.current >= 0);
            check_result(&h.info);
        }
        if (parsed == HDI_PARSED_MALFORMED) {
            ending = HDI_ENDING_MALFORMED;
        }
        if (parsed == HDI_PARSED_MALFORMED || parsed == HDI_PARSED_END) {
            break;
        }
    }
    if (hdi_peer_parser_end(&h, ending, detail)) {
        check_result(&h.info);
    }
    return 0;
}
