/* process.c - reading files whole (process.h).
 *
 * Threads: the program's first. Locks: none.
 */
#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool cli_process_is_input(const char *path)
{
    return strcmp(path, "-") == 0;
}

const char *cli_file_name(const char *path)
{
    return cli_process_is_input(path) ? "the input" : path;
}

void *cli_read_file(const char *path, size_t *bytes)
{
    return cli_read_file_if(path, bytes, 0, NULL, NULL);
}

void *cli_read_file_if(const char *path, size_t *bytes, size_t head, bool (*wants)(const void *, size_t, void *),
                       void *context)
{
    int descriptor =
        cli_process_is_input(path) ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return NULL;
    }
    size_t room = 65536, n = 0;
    char *content = cli_allocate(room);
    for (;;) {
        ssize_t got = read(descriptor, content + n, room - n - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            int saved = errno;
            close(descriptor);
            if (got < 0) {
                free(content);
                errno = saved;
                return NULL;
            }
            break;
        }
        n += (size_t)got;
        if (wants && n >= head) {
            if (!wants(content, n, context)) {
                free(content);
                close(descriptor);
                errno = 0;
                return NULL;
            }
            wants = NULL;
        }
        if (room - n < 2) {
            room *= 2;
            char *more = realloc(content, room);
            if (more == NULL) {
                free(content);
                close(descriptor);
                errno = ENOMEM;
                return NULL;
            }
            content = more;
        }
    }
    content[n] = 0;
    *bytes = n;
    return content;
}
