/* memory.c - `heddle info --memory`: what running programs hold, as their runtimes publish it.
 *
 * Threads: the program's first. Locks: none.
 * Always: no runtime is opened, and no other program is asked for anything.
 */
#include <heddle.h>
#include <stdlib.h>
#include "cli/cli.h"
#include "cli/process.h"

int cli_memory(int pid, bool json)
{
    hd_report_format format = json ? HD_REPORT_JSON : HD_REPORT_TEXT;
    char *text = NULL;
    size_t room = 0, needed = 0;
    hd_status status = hd_memory_report_of(pid, format, NULL, 0, &needed);
    /* Programs come and go: the next look may find more than this one. */
    while (status == HD_OK && needed > room) {
        free(text);
        room = needed + 4096;
        text = cli_allocate(room);
        status = hd_memory_report_of(pid, format, text, room, &needed);
    }
    if (status == HD_OK) {
        fputs(text, stdout);
    } else {
        fprintf(stderr, "heddle info: %s\n", hd_message());
    }
    free(text);
    return cli_finish("info", status == HD_OK ? CLI_OK : CLI_FAILED);
}
