/* fuzz_report.c - the pages with which programs report their memory to others: any page leads to a
 * valid report, or to none.
 *
 * An input is a list of changes to a good page. A change is a byte for the part of the page, two
 * for the offset in it, one for the length, and the bytes.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>
#include "stats/page.h"
#include "support/json.h"

static hdi_page *page; /* in a memory file, which is found by its name */

static void make_page(void)
{
    int file = memfd_create(HDI_PAGE_NAME, MFD_CLOEXEC);
    fuzz_check(file >= 0 && ftruncate(file, sizeof *page) == 0);
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    fuzz_check(page != MAP_FAILED);
}

/* Makes a good page, of a program with pinned memory and one device. */
static void fill_page(void)
{
    memset(page, 0, sizeof *page);
    page->magic = HDI_PAGE_MAGIC;
    page->version = HDI_PAGE_VERSION;
    page->bytes = sizeof *page;
    hdi_report *r = &page->reports[0];
    r->pid = getpid();
    strcpy(r->version, "0.1.0");
    strcpy(r->program, "program");
    r->n_devices = 2;
    r->devices[0].n_holders = r->devices[0].n_lanes = 2;
    r->devices[1].device = HD_DEVICE_HOST;
    r->n_findings = 1;
    r->findings = 3;
}

static void change_page(fuzz_input *in)
{
    hdi_report *r = &page->reports[0];
    const struct {
        void *at;
        size_t bytes;
    } parts[] = {{r, offsetof(hdi_report, devices)},
                 {&r->devices[0], sizeof r->devices[0]},
                 {&r->devices[1], sizeof r->devices[1]},
                 {r->finding, 2 * sizeof r->finding[0]},
                 {page, offsetof(hdi_page, reports)}};
    while (in->left > 0) {
        size_t which = (size_t)fuzz_take(in, 1) % (sizeof parts / sizeof parts[0]), n;
        size_t at = (size_t)fuzz_take(in, 2) % parts[which].bytes, room = parts[which].bytes - at;
        size_t wanted = (size_t)fuzz_take(in, 1);
        const uint8_t *bytes = fuzz_take_piece(in, wanted < room ? wanted : room, &n);
        memcpy((char *)parts[which].at + at, bytes, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static char text[1 << 18];
    static const hd_report_format formats[] = {HD_REPORT_TEXT, HD_REPORT_JSON};
    if (page == NULL) {
        make_page();
    }
    fill_page();
    fuzz_input in = {input, bytes};
    change_page(&in);
    for (int i = 0; i < 2; i++) {
        size_t needed = 0, needed_again = 0;
        hd_status status = hd_memory_report_of(getpid(), formats[i], text, sizeof text, &needed);
        if (status != HD_OK) {
            fuzz_check_failure(status, HD_ERROR_NOT_FOUND);
            continue;
        }
        fuzz_check(needed <= sizeof text && needed == strlen(text) + 1);
        fuzz_check(fuzz_is_print(text, needed - 1));
        fuzz_check(formats[i] != HD_REPORT_JSON || json_is_document(text));
        char little[7];
        fuzz_check(hd_memory_report_of(getpid(), formats[i], little, sizeof little, &needed_again) == HD_OK);
        fuzz_check(needed_again == needed && memchr(little, 0, sizeof little) != NULL);
    }
    return 0;
}
