/* code_cache.c - files of compiled code (code_cache.h). Threads, locks, blocking, and guarantees:
 * see there.
 *
 * A file "code-HASH.bin", in this machine's byte order:
 *     header       "HDCODE1", a zero, u64 checksum (FNV-1a of all that follows), u64 bytes of the
 *                  key, u64 number of names, u64 bytes of the names, u64 bytes of the code
 *     contents     the key; the names: pairs of texts, each with its zero; the code
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/file.h"
#include "base/text.h"
#include "kernel/code_cache.h"

#define MAGIC "HDCODE1"
#define FILE_MOST ((size_t)64 << 20)
#define FOLDER_MOST ((uint64_t)256 << 20)
#define NAMES_MOST 4096

typedef struct header {
    char magic[8];
    uint64_t checksum, key_bytes, n_names, names_bytes, code_bytes;
} header;

static uint64_t code_cache_hash(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

/* ---- keys ---- */

/* True for all characters that a compiler takes for white space, and for control characters. */
static bool source_is_blank(char c)
{
    return c != 0 && ((unsigned char)c <= ' ' || c == 0x7f);
}

/* Skips white space and comments of the line. */
static const char *source_skip_blanks(const char *at)
{
    for (;;) {
        const char *end = at[0] == '/' && at[1] == '*' ? strstr(at + 2, "*/") : NULL;
        if (!end && (!source_is_blank(*at) || *at == '\n')) {
            return at;
        }
        at = end ? end + 2 : at + 1;
    }
}

/* True if a header's name in angle brackets can only name a header of NVRTC or of Heddle. The path
 * must be relative, and no part of it may begin with a dot. */
static bool source_is_plain_header(const char *at)
{
    bool plain = *at++ == '<';
    for (bool begins = true; plain && *at != '>'; at++) { /* looks at each part of the path */
        plain = isalnum((unsigned char)*at) || *at == '_' || (!begins && strchr("/.-+", *at) && *at);
        begins = *at == '/';
    }
    return plain;
}

static bool source_begins_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* `at` points behind a "#". True if the directive may name a file that is neither a header of NVRTC
 * nor of Heddle. */
static bool source_line_names_file(const char *at)
{
    at = source_skip_blanks(at);
    if (*at == '\\' || (unsigned char)*at >= 0x80) {
        return true; /* escapes and other characters can stand for letters of a directive */
    }
    if (!source_begins_with(at, "include") && !source_begins_with(at, "embed") && !source_begins_with(at, "import")) {
        return false;
    }
    while (isalpha((unsigned char)*at) || *at == '_') {
        at++;
    }
    return !source_is_plain_header(source_skip_blanks(at));
}

/* True if a line continues in the next one. Some compilers accept blanks behind the "\". */
static bool source_has_long_line(const char *source)
{
    bool found = false;
    for (const char *p = source; !found && (p = strchr(p, '\\')); p++) {
        found = source_is_blank(p[1]);
    }
    return found;
}

/* True if the source may name files. A comment or a text can look like a directive. Then the code
 * is not cached, which only costs a compilation. */
static bool source_names_file(const char *source)
{
    /* Refuses other spellings of "#" and "\", tests for the existence of a file, and files that the
     * assembler reads. */
    static const char *const refused[] = {"%:",          "?\?=",         "?\?/",      "__has_include",
                                          "__has_embed", "__has_import", "import \"", "import <",
                                          ".file",       ".incbin",      ".include"};
    bool found = source_has_long_line(source);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0] && !found; i++) {
        found = strstr(source, refused[i]) != NULL;
    }
    for (const char *p = source; !found && (p = strchr(p, '#'));) {
        found = source_line_names_file(++p);
    }
    return found;
}

bool hdi_code_cache_allows(const char *source, const hd_compile_options *options)
{
    if (source_names_file(source)) {
        return false;
    }
    static const char *const refused[] = {"-I",       "--include-path", "-include",       "--pre-include",
                                          "-isystem", "-pch",           "--pch",          "--use-pch",
                                          "-use-pch", "--create-pch",   "--options-file", "-optf"};
    for (size_t i = 0; i < options->n_options; i++) {
        for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
            if (strncmp(options->options[i], refused[k], strlen(refused[k])) == 0) {
                return false;
            }
        }
    }
    return true;
}

bool hdi_code_key_make(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options, const char *arch,
                       hdi_code_key *out)
{
    hdi_text text;
    FILE *f = hdi_text_open(&text);
    size_t header_bytes = (size_t)(hdi_kernel_header_end - hdi_kernel_header);
    if (f) {
        fprintf(f, "nvrtc %d.%d of %llu bytes at %lld header %016llx arch %s name %zu %s\n", nvrtc->major, nvrtc->minor,
                (unsigned long long)nvrtc->file_bytes, (long long)nvrtc->file_time,
                (unsigned long long)code_cache_hash(hdi_kernel_header, header_bytes), arch, strlen(options->name),
                options->name);
        for (size_t i = 0; i < options->n_options; i++) {
            fprintf(f, "option %zu %s\n", strlen(options->options[i]), options->options[i]);
        }
        for (size_t i = 0; i < options->n_kernels; i++) {
            fprintf(f, "kernel %zu %s\n", strlen(options->kernels[i]), options->kernels[i]);
        }
        fprintf(f, "source %s", source);
    }
    return hdi_text_close(&text, &out->bytes, &out->size);
}

void hdi_code_key_release(hdi_code_key *key)
{
    free(key->bytes);
    *key = (hdi_code_key){NULL, 0};
}

static bool code_cache_path_of(const char *folder, const hdi_code_key *key, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/code-%016llx.bin", folder,
                     (unsigned long long)code_cache_hash(key->bytes, key->size));
    return n > 0 && n < PATH_MAX;
}

/* ---- reading ---- */

static size_t code_cache_summed_from(void)
{
    return offsetof(header, key_bytes);
}

/* True if a file of `bytes` bytes is complete, and belongs to that key. */
static bool code_cache_is_whole(const char *file, size_t bytes, const hdi_code_key *key, header *h)
{
    if (bytes < sizeof *h) {
        return false;
    }
    memcpy(h, file, sizeof *h);
    size_t left = bytes - sizeof *h;
    return memcmp(h->magic, MAGIC, sizeof h->magic) == 0 && h->key_bytes == key->size && h->key_bytes <= left &&
           h->n_names <= NAMES_MOST && h->names_bytes <= left - h->key_bytes && h->code_bytes > 0 &&
           h->code_bytes == left - h->key_bytes - h->names_bytes &&
           memcmp(file + sizeof *h, key->bytes, key->size) == 0 &&
           h->checksum == code_cache_hash(file + code_cache_summed_from(), bytes - code_cache_summed_from());
}

/* Takes the next text of [*at, end). NULL: it is not terminated, or no memory is left. */
static char *code_cache_take_text(const char **at, const char *end)
{
    const char *from = *at, *zero = from < end ? memchr(from, 0, (size_t)(end - from)) : NULL;
    if (!zero) {
        return NULL;
    }
    *at = zero + 1;
    return strdup(from);
}

static bool code_cache_take_parts(const char *file, const header *h, hdi_made_code *out)
{
    const char *names = file + sizeof *h + h->key_bytes, *end = names + h->names_bytes;
    out->size = (size_t)h->code_bytes;
    out->bytes = malloc(out->size + 1);
    out->aliases = calloc(h->n_names ? (size_t)h->n_names : 1, sizeof *out->aliases);
    if (!out->bytes || !out->aliases) {
        return false;
    }
    memcpy(out->bytes, end, out->size);
    out->bytes[out->size] = 0;
    for (uint64_t i = 0; i < h->n_names; i++) {
        hdi_alias *alias = &out->aliases[out->n_aliases++];
        alias->name = code_cache_take_text(&names, end);
        alias->symbol = alias->name ? code_cache_take_text(&names, end) : NULL;
        if (!alias->symbol) {
            return false;
        }
    }
    return true;
}

bool hdi_code_cache_load(const char *folder, const hdi_code_key *key, hdi_made_code *out)
{
    char path[PATH_MAX], *file;
    size_t bytes;
    header h;
    if (!code_cache_path_of(folder, key, path) || !hdi_file_read_own(path, FILE_MOST, &file, &bytes)) {
        return false;
    }
    hdi_made_code made = {NULL, 0, NULL, 0};
    bool good = code_cache_is_whole(file, bytes, key, &h) && code_cache_take_parts(file, &h, &made);
    free(file);
    if (!good) {
        hdi_made_code_release(&made);
        return false;
    }
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); /* set the time of the latest use */
    *out = made;
    return true;
}

/* ---- writing ---- */

/* A file of code in the folder. */
typedef struct kept {
    char name[32];
    struct timespec used;
    uint64_t bytes;
} kept;

static int code_cache_older_first(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec) {
        return x->tv_sec < y->tv_sec ? -1 : 1;
    }
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool code_cache_is_file(const char *name)
{
    size_t n = strlen(name);
    return n == strlen("code-0123456789abcdef.bin") && strncmp(name, "code-", 5) == 0 &&
           strcmp(name + n - 4, ".bin") == 0;
}

/* Lists the files of code; the caller frees *out. */
static size_t code_cache_list_files(DIR *directory, kept **out, uint64_t *total)
{
    size_t n = 0, room = 0;
    *out = NULL;
    *total = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat facts;
        if (!code_cache_is_file(entry->d_name) ||
            fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode) ||
            facts.st_uid != geteuid()) {
            continue;
        }
        if (n == room) {
            kept *more = realloc(*out, (room = room ? 2 * room : 64) * sizeof *more);
            if (!more) {
                break;
            }
            *out = more;
        }
        kept *k = &(*out)[n++];
        snprintf(k->name, sizeof k->name, "%.31s", entry->d_name);
        k->used = facts.st_mtim;
        k->bytes = (uint64_t)facts.st_size;
        *total += k->bytes;
    }
    return n;
}

static void code_cache_delete_oldest(const char *folder)
{
    DIR *directory = hdi_descriptor_folder(folder);
    if (!directory) {
        return;
    }
    kept *files;
    uint64_t total;
    size_t n = code_cache_list_files(directory, &files, &total);
    if (total > FOLDER_MOST) {
        qsort(files, n, sizeof *files, code_cache_older_first);
        for (size_t i = 0; i < n && total > FOLDER_MOST; i++) {
            unlinkat(dirfd(directory), files[i].name, 0);
            total -= files[i].bytes;
        }
    }
    free(files);
    closedir(directory);
}

void hdi_code_cache_save(const char *folder, const hdi_code_key *key, const hdi_made_code *made)
{
    char path[PATH_MAX];
    header h = {.magic = MAGIC, .key_bytes = key->size, .n_names = made->n_aliases, .code_bytes = made->size};
    for (size_t i = 0; i < made->n_aliases; i++) {
        h.names_bytes += strlen(made->aliases[i].name) + strlen(made->aliases[i].symbol) + 2;
    }
    size_t bytes = sizeof h + key->size + (size_t)h.names_bytes + made->size;
    char *file =
        bytes <= FILE_MOST && h.n_names <= NAMES_MOST && code_cache_path_of(folder, key, path) ? malloc(bytes) : NULL;
    if (!file) {
        return;
    }
    char *at = mempcpy(file + sizeof h, key->bytes, key->size);
    for (size_t i = 0; i < made->n_aliases; i++) {
        at = stpcpy(at, made->aliases[i].name) + 1;
        at = stpcpy(at, made->aliases[i].symbol) + 1;
    }
    memcpy(at, made->bytes, made->size);
    memcpy(file, &h, sizeof h);
    h.checksum = code_cache_hash(file + code_cache_summed_from(), bytes - code_cache_summed_from());
    memcpy(file, &h, sizeof h);
    hdi_file_sweep(path);
    if (hdi_file_replace(path, file, bytes, 0600)) {
        code_cache_delete_oldest(folder);
    }
    free(file);
}
