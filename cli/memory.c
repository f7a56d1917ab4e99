/* memory.c - `heddle info --memory`: prints the memory of running programs, as their runtimes
 * publish it.
 *
 * Threads: the program's first. Locks: none.
 * Always: it opens no runtime and asks no other program.
 */
#include <heddle.h>
#include <stdlib.h>
#include "cli/cli.h"
#include "cli/common/plain.h"
#include "cli/common/report.h"
#include "cli/process.h"

/* Returns the report as text. NULL: it is not available, and hd_message explains why. */
static char *memory_report_text(int pid, hd_report_format format)
{
    char *text = NULL;
    size_t room = 0, needed = 0;
    hd_status status = hd_memory_report_of(pid, format, NULL, 0, &needed);
    /* Programs come and go: the next call may find more than this one. */
    while (status == HD_OK && needed > room) {
        free(text);
        room = needed + 4096;
        text = cli_allocate(room);
        status = hd_memory_report_of(pid, format, text, room, &needed);
    }
    if (status != HD_OK) {
        free(text);
        cli_complain("info", "%s", hd_message());
        return NULL;
    }
    return text;
}

static void memory_print_text(const void *text, FILE *out)
{
    fputs(text, out);
}

int cli_memory(int pid, bool json, const char *json_file)
{
    char *text = memory_report_text(pid, json ? HD_REPORT_JSON : HD_REPORT_TEXT), error[PLAIN_ERROR];
    char *copy = text && json_file ? memory_report_text(pid, HD_REPORT_JSON) : NULL;
    bool ok = text && (copy || !json_file);
    if (copy && !cli_report_write_file(json_file, memory_print_text, copy, error)) {
        cli_complain("info", "--json: %s; give another file, or - for the output", error);
        ok = false;
    }
    if (text) {
        fputs(text, stdout);
    }
    free(text);
    free(copy);
    return cli_finish("info", ok ? CLI_OK : CLI_FAILED);
}
