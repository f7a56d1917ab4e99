/* fuzz_results.c - files of results about pairs of devices: an accepted file was written for this
 * key, and reads back the same.
 *
 * An input is the text after the key in such a file. It is also tried as a whole file, and as the
 * parts of a key.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <limits.h>
#include "peer/peers.h"

static hdi_result_key key;
static char *head; /* of the key's file, up to the result */
static size_t head_bytes;

/* Takes the first bytes of a file from one that was saved. */
static void make_head(void)
{
    static const uint8_t uuid[16] = {1, 2, 3};
    const hdi_result_facts facts = {"boot", "root=/dev/sda", "580 13.0", "build", "host", "thread",
                                    "",     "host:0",        "host:1",   uuid,    uuid};
    fuzz_check(hdi_result_key_make(&facts, &key));
    hd_peer_info info = {.size = sizeof info, .verdict = HD_PEER_USABLE};
    hdi_result_save(fuzz_folder(), &key, &info);
    char path[PATH_MAX], text[HDI_RESULT_BYTES] = "";
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), key.name);
    FILE *file = fopen(path, "re");
    fuzz_check(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    const char *end = strstr(text, key.text);
    fuzz_check(end != NULL);
    head_bytes = (size_t)(end - text) + strlen(key.text);
    head = fuzz_copy(text, head_bytes);
}

static bool is_result(const hd_peer_info *info)
{
    return (info->verdict == HD_PEER_USABLE || info->verdict == HD_PEER_SLOW || info->verdict == HD_PEER_REFUSED ||
            info->verdict == HD_PEER_CORRUPT) &&
           info->remembered && info->size == sizeof *info && fuzz_is_text(info->reason, sizeof info->reason) &&
           info->direct_bytes_per_s >= 0 && info->staged_bytes_per_s >= 0;
}

/* Checks a file of the key with this content. */
static void check_file(const void *content, size_t bytes)
{
    hd_peer_info info, again;
    fuzz_write(key.name, content, bytes);
    if (!hdi_result_load(fuzz_folder(), &key, &info)) {
        return;
    }
    fuzz_check(bytes < HDI_RESULT_BYTES && memcmp(content, head, head_bytes) == 0 && is_result(&info));
    /* Rates beyond 2^53 may change in the next file, and rates beyond LONG_MAX may be missing. */
    if (info.direct_bytes_per_s < 1e15 && info.staged_bytes_per_s < 1e15) {
        fuzz_write(key.name, "", 0);
        hdi_result_save(fuzz_folder(), &key, &info);
        /* a refusal that depends on other processes is not saved */
        if (hdi_result_load(fuzz_folder(), &key, &again)) {
            fuzz_check(again.verdict == info.verdict && again.driver_code == info.driver_code);
            fuzz_check(again.direct_bytes_per_s == info.direct_bytes_per_s && strcmp(again.reason, info.reason) == 0);
        } else {
            fuzz_check(info.driver_code != 0);
        }
    }
}

static void check_key(const char *text)
{
    static hdi_result_key other;
    uint8_t uuid[16] = {0};
    const hdi_result_facts facts = {text, text, text, text, text, text, text, text, text, uuid, uuid};
    if (hdi_result_key_make(&facts, &other)) {
        fuzz_check(fuzz_is_text(other.name, sizeof other.name) && strchr(other.name, '/') == NULL);
        fuzz_check(memchr(other.text, 0, sizeof other.text) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (head == NULL) {
        make_head();
    }
    check_file(input, bytes);
    char *whole = malloc(head_bytes + bytes);
    fuzz_check(whole != NULL);
    memcpy(whole, head, head_bytes);
    memcpy(whole + head_bytes, input, bytes);
    check_file(whole, head_bytes + bytes);
    free(whole);
    char *text = fuzz_text(input, bytes);
    check_key(text);
    free(text);
    return 0;
}
