/* pack.c - a program of the build: packs the built-in kernels, before the library or its tool
 * exists.
 *
 * usage: heddle-pack OUT PTX SHARED_OBJECT
 * The PTX may be "-": none. Runs on one thread.
 */
#include <heddle/kernel_file.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the file's content and a terminating zero, or ends the program on failure. */
static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *content = NULL;
    size_t room = 0, n = 0;
    while (f != NULL) {
        if (room - n < 2) {
            room = room * 2 + 65536;
            char *more = realloc(content, room);
            if (more == NULL) {
                break;
            }
            content = more;
        }
        size_t got = fread(content + n, 1, room - n - 1, f);
        n += got;
        if (got == 0) {
            break;
        }
    }
    if (f == NULL || content == NULL || ferror(f)) {
        fprintf(stderr, "heddle-pack: cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
    content[n] = 0;
    *bytes = n;
    return content;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: heddle-pack OUT PTX SHARED_OBJECT\n");
        return 2;
    }
    hd_kernel_file_parts parts;
    memset(&parts, 0, sizeof parts);
    parts.size = sizeof parts;
    char *ptx = NULL;
    if (strcmp(argv[2], "-") != 0) {
        ptx = read_file(argv[2], &parts.ptx_bytes);
    }
    size_t cpu_bytes;
    char *cpu = read_file(argv[3], &cpu_bytes);
    const void *images[] = {cpu};
    parts.ptx = ptx;
    parts.cpu = images;
    parts.cpu_bytes = &cpu_bytes;
    parts.n_cpu = 1;
    void *out = NULL;
    size_t bytes = 0;
    int failed = hd_kernel_file_build(&parts, &out, &bytes) != HD_OK;
    if (failed) {
        fprintf(stderr, "heddle-pack: %s\n", hd_message());
    } else {
        FILE *f = fopen(argv[1], "wb");
        failed = f == NULL || fwrite(out, 1, bytes, f) != bytes;
        failed = (f != NULL && fclose(f) != 0) || failed;
        if (failed) {
            fprintf(stderr, "heddle-pack: cannot write %s\n", argv[1]);
            remove(argv[1]);
        }
    }
    free(ptx);
    free(cpu);
    free(out);
    return failed;
}
