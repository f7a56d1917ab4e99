/* fuzz.c - see fuzz.h. */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

void fuzz_failed_(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n    message: %s\n", file, line, condition, hd_message());
    abort();
}

bool fuzz_is_failure_(hd_status status, const hd_status *allowed)
{
    while (*allowed != HD_OK && *allowed != status) {
        allowed++;
    }
    const char *message = hd_message();
    return *allowed != HD_OK && message[0] != 0 && strchr(message, '\n') == NULL;
}

bool fuzz_is_text(const char *text, size_t room)
{
    const char *end = memchr(text, 0, room);
    return end != NULL && fuzz_is_print(text, (size_t)(end - text)) && memchr(text, '\n', (size_t)(end - text)) == NULL;
}

bool fuzz_is_print(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < length ? (unsigned char)text[i + 1] : 0;
        if ((c < ' ' && c != '\n') || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0)) {
            return false;
        }
    }
    return true;
}

uint64_t fuzz_take(fuzz_input *in, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width && in->left > 0; i++, in->left--) {
        value |= (uint64_t)*in->at++ << 8 * i;
    }
    return value;
}

const uint8_t *fuzz_take_piece(fuzz_input *in, size_t most, size_t *n)
{
    const uint8_t *piece = in->at;
    *n = most < in->left ? most : in->left;
    in->at += *n;
    in->left -= *n;
    return piece;
}

void *fuzz_copy(const void *bytes, size_t n)
{
    void *copy = malloc(n > 0 ? n : 1);
    fuzz_check(copy != NULL);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

char *fuzz_text(const void *bytes, size_t n)
{
    char *text = malloc(n + 1);
    fuzz_check(text != NULL);
    if (n > 0) {
        memcpy(text, bytes, n);
    }
    text[n] = 0;
    return text;
}

/* ---- files ---- */

static char folder[PATH_MAX];

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *place)
{
    (void)facts;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    if (folder[0] == 0) {
        const char *above = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/heddle-fuzz-XXXXXX", above != NULL ? above : "/tmp");
        fuzz_check(mkdtemp(folder) != NULL);
        atexit(remove_folder);
    }
    return folder;
}

void fuzz_write(const char *name, const void *bytes, size_t n)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    fuzz_check(length > 0 && (size_t)length < sizeof path);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(file >= 0 && write(file, bytes, n) == (ssize_t)n);
    close(file);
}

int fuzz_lowest_descriptor(void)
{
    int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    close(lowest);
    return lowest;
}
