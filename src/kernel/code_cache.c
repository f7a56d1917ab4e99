/* code_cache.c - files of compiled code (code_cache.h). Threads, locks, blocking, and what always holds: see there.
 *
 * A file "code-HASH.bin", in this machine's byte order:
 *     header       "HDCODE1", a zero, u64 checksum (FNV-1a of all that follows), u64 bytes of the key, u64 number of names,
 *                  u64 bytes of the names, u64 bytes of the code
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

static uint64_t hash(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

/* ---- keys ---- */

/* Behind a "#": the directive names a file that is not NVRTC's or ours. Comments and texts may look like one, which costs a
 * compilation. */
static bool names_file(const char *at)
{
    at += strspn(at, " \t");
    if (strncmp(at, "include", 7) != 0 && strncmp(at, "embed", 5) != 0 && strncmp(at, "import", 6) != 0) {
        return false;
    }
    while (isalpha((unsigned char)*at) || *at == '_') {
        at++;
    }
    at += strspn(at, " \t");
    return at[0] != '<' || at[1] == '/' || at[1] == '.';
}

bool hdi_code_cache_allows(const char *source, const hd_compile_options *options)
{
    for (const char *p = source; (p = strchr(p, '#'));) {
        p++;
        if (names_file(p)) {
            return false;
        }
    }
    /* another spelling of "#", a name that goes on in the next line, and the question whether there is a file */
    if (strstr(source, "%:") || strstr(source, "?\?=") || strstr(source, "\\\n") || strstr(source, "__has_include")) {
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
        fprintf(f, "nvrtc %d.%d header %016llx arch %s name %s\n", nvrtc->major, nvrtc->minor,
                (unsigned long long)hash(hdi_kernel_header, header_bytes), arch, options->name);
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

static bool path_of(const char *folder, const hdi_code_key *key, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/code-%016llx.bin", folder, (unsigned long long)hash(key->bytes, key->size));
    return n > 0 && n < PATH_MAX;
}

/* ---- reading ---- */

static size_t summed_from(void)
{
    return offsetof(header, key_bytes);
}

/* Whether a file of that many bytes is whole, and of that key. */
static bool is_whole(const char *file, size_t bytes, const hdi_code_key *key, header *h)
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
           h->checksum == hash(file + summed_from(), bytes - summed_from());
}

/* Takes the next text of [*at, end). NULL: it has no end, or there is no memory. */
static char *take_text(const char **at, const char *end)
{
    const char *from = *at, *zero = from < end ? memchr(from, 0, (size_t)(end - from)) : NULL;
    if (!zero) {
        return NULL;
    }
    *at = zero + 1;
    return strdup(from);
}

static bool take_parts(const char *file, const header *h, hdi_made_code *out)
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
        alias->name = take_text(&names, end);
        alias->symbol = alias->name ? take_text(&names, end) : NULL;
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
    if (!path_of(folder, key, path) || !hdi_file_read_own(path, FILE_MOST, &file, &bytes)) {
        return false;
    }
    hdi_made_code made = {NULL, 0, NULL, 0};
    bool good = is_whole(file, bytes, key, &h) && take_parts(file, &h, &made);
    free(file);
    if (!good) {
        hdi_made_code_release(&made);
        return false;
    }
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); /* the latest use counts */
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

static int older_first(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec) {
        return x->tv_sec < y->tv_sec ? -1 : 1;
    }
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool is_code(const char *name)
{
    size_t n = strlen(name);
    return n == strlen("code-0123456789abcdef.bin") && strncmp(name, "code-", 5) == 0 &&
           strcmp(name + n - 4, ".bin") == 0;
}

/* Lists the files of code; *out is to be freed. */
static size_t list_files(DIR *directory, kept **out, uint64_t *total)
{
    size_t n = 0, room = 0;
    *out = NULL;
    *total = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat facts;
        if (!is_code(entry->d_name) || fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) {
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

static void delete_oldest(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) {
        return;
    }
    kept *files;
    uint64_t total;
    size_t n = list_files(directory, &files, &total);
    if (total > FOLDER_MOST) {
        qsort(files, n, sizeof *files, older_first);
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
    char *file = bytes <= FILE_MOST && h.n_names <= NAMES_MOST && path_of(folder, key, path) ? malloc(bytes) : NULL;
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
    h.checksum = hash(file + summed_from(), bytes - summed_from());
    memcpy(file, &h, sizeof h);
    hdi_file_sweep(path);
    if (hdi_file_replace(path, file, bytes, 0600)) {
        delete_oldest(folder);
    }
    free(file);
}
