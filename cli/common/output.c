/* output.c - writes the tool's result files. See output.h. */
#include "cli/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/file.h"
#include "cli/common/command.h"

void cli_output_begin(void)
{
    hdi_descriptors_fill();
}

bool cli_output_may(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
        close(descriptor);
        return unlink(path) == 0;
    }
    return errno == EEXIST && access(path, W_OK) == 0;
}

bool cli_output_spares(const char *command, const char *output, const char *const *inputs, size_t n)
{
    struct stat there, here;
    bool replaces = strcmp(output, "-") != 0 && stat(output, &there) == 0 && S_ISREG(there.st_mode);
    for (size_t i = 0; replaces && i < n; i++) {
        bool is = inputs[i] && (strcmp(inputs[i], "-") == 0 ? fstat(STDIN_FILENO, &here) : stat(inputs[i], &here)) == 0;
        if (is && here.st_dev == there.st_dev && here.st_ino == there.st_ino) {
            cli_complain(command, "the output '%s' is the file of the input '%s'; give another output", output,
                         inputs[i]);
            return false;
        }
    }
    return true;
}

/* Writes into an existing file, without replacing it. */
static bool cli_output_write_into(const char *path, const char *from, size_t bytes)
{
    int descriptor = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    bool ok = descriptor >= 0;
    while (ok && bytes > 0) {
        ssize_t n = write(descriptor, from, bytes);
        ok = n > 0 || (n < 0 && errno == EINTR);
        from += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    int code = errno;
    if (descriptor >= 0 && close(descriptor) != 0 && ok) {
        ok = false;
        code = errno;
    }
    errno = code;
    return ok;
}

bool cli_output_write(const char *path, const void *content, size_t bytes)
{
    struct stat there;
    char real[PATH_MAX];
    bool exists = stat(path, &there) == 0;
    if (exists && !S_ISREG(there.st_mode)) {
        return cli_output_write_into(path, content, bytes);
    }
    mode_t mask = umask(0);
    umask(mask);
    /* replace the target of a symbolic link, and not the link */
    const char *target = exists && realpath(path, real) ? real : path;
    if (hdi_file_replace(target, content, bytes, exists ? there.st_mode & 0777 : 0666 & ~mask)) {
        return true;
    }
    bool folder_is_closed = errno == EACCES || errno == EPERM || errno == EROFS;
    return exists && folder_is_closed && cli_output_write_into(path, content, bytes);
}
