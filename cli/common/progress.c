/* progress.c - the progress display: a bar on a terminal, plain lines in a pipe.
 *
 * Threads: one at a time. Locks: none.
 * Always: the line never reaches the terminal's last column, where the terminal would wrap it. At
 * the end, the display erases the line.
 */
#include "cli/common/command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    WIDTH_DEFAULT = 80,
    WIDTH_MAX = 160,
    BAR = 24,    /* width in cells */
    BAR_MIN = 60 /* narrower terminals get no bar */
};

static int cli_progress_terminal_width(FILE *out)
{
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return WIDTH_DEFAULT;
    }
    return size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
}

void cli_progress_start(cli_progress *p, FILE *out)
{
    const char *term = secure_getenv("TERM");
    memset(p, 0, sizeof(*p));
    p->out = out;
    p->terminal = isatty(fileno(out)) && term && term[0] && strcmp(term, "dumb") != 0;
}

static void cli_progress_draw_bar(cli_progress *p, const char *stage, const char *item, double done)
{
    char line[WIDTH_MAX + 1], bar[BAR + 1];
    int width = cli_progress_terminal_width(p->out), percent = (int)(done * 100);
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < (int)(done * BAR) ? '#' : '.';
    }
    bar[BAR] = 0;
    if (width >= BAR_MIN) {
        snprintf(line, (size_t)width, "%s %3d %%  %s%s%s", bar, percent, stage, item[0] ? ": " : "", item);
    } else {
        snprintf(line, (size_t)width, "%3d %%  %s%s%s", percent, stage, item[0] ? ": " : "", item);
    }
    fprintf(p->out, "\r%s\033[K", line);
    p->drawn = true;
}

void cli_progress_step(void *context, const char *stage, const char *item, double done)
{
    cli_progress *p = context;
    done = done < 0 ? 0 : done > 1 ? 1 : done;
    if (!stage) {
        if (p->drawn) {
            fprintf(p->out, "\r\033[K");
            p->drawn = false;
        }
    } else if (p->terminal) {
        cli_progress_draw_bar(p, stage, item, done);
    } else if (strcmp(p->stage, stage) != 0) {
        fprintf(p->out, "%3d %%  %s\n", (int)(done * 100), stage);
    }
    snprintf(p->stage, sizeof(p->stage), "%s", stage ? stage : "");
    fflush(p->out);
}
