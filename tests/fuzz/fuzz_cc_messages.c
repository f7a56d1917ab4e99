/* fuzz_cc_messages.c - passes output of linkers, and PTX, through the code that
 * makes the messages of `heddle cc`.
 *
 * An input: two bytes for the length of a source, the source, and the output about it. The output
 * also serves as PTX. The printed text goes into a file, and is checked.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cli/cc_messages.h"

static int taken, terminal; /* descriptors: the file that replaces stderr, and the original */

static void take_in(void)
{
    if (taken == 0) {
        taken = memfd_create("messages", MFD_CLOEXEC);
        terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        fuzz_check(taken > 0 && terminal > 0);
    }
    fuzz_check(ftruncate(taken, 0) == 0 && lseek(taken, 0, SEEK_SET) == 0);
    fuzz_check(dup2(taken, STDERR_FILENO) == STDERR_FILENO);
}

/* Returns the printed text. The caller frees it. */
static char *let_go(size_t *bytes)
{
    fflush(stderr);
    fuzz_check(dup2(terminal, STDERR_FILENO) == STDERR_FILENO);
    off_t size = lseek(taken, 0, SEEK_END);
    fuzz_check(size >= 0);
    char *text = fuzz_text("", 0);
    *bytes = (size_t)size;
    if (size > 0) {
        free(text);
        text = calloc(1, (size_t)size + 1);
        fuzz_check(text != NULL && pread(taken, text, (size_t)size, 0) == size);
    }
    return text;
}

/* Checks that the text consists of whole lines, and contains some if the cause is known. */
static void check_printed(const char *text, size_t bytes, bool known)
{
    fuzz_check(bytes == 0 || text[bytes - 1] == '\n');
    int lines = 0;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    fuzz_check(!known || lines > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    size_t n, printed;
    const uint8_t *piece = fuzz_take_piece(&in, (size_t)fuzz_take(&in, 2), &n);
    fuzz_write("source.c", piece, n);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/source.c", fuzz_folder());
    char *said = fuzz_text(in.at, in.left);
    void *ptx = fuzz_copy(in.at, in.left); /* without a terminating zero */
    take_in();
    const char *const sources[] = {path, NULL};
    bool known = cc_messages_undefined(said);
    char *text = let_go(&printed);
    check_printed(text, printed, known);
    free(text);
    take_in();
    bool missing = cc_messages_ptx(ptx, in.left, sources);
    text = let_go(&printed);
    check_printed(text, printed, missing);
    fuzz_check(missing || printed == 0);
    free(text);
    free(ptx);
    free(said);
    return 0;
}
