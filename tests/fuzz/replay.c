/* replay.c - runs a fuzz target on stored inputs: usage: fuzz_NAME FILE|FOLDER...
 *
 * Threads: one. Locks: none. Prints every input's name before it runs, so the last one failed. A
 * missing folder contains no inputs. No inputs at all is a failure, since a test without inputs
 * would never fail.
 */
#include "fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

static bool run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat facts;
    if (file == NULL || fstat(fileno(file), &facts) != 0) {
        perror(path);
        return false;
    }
    size_t bytes = (size_t)facts.st_size;
    uint8_t *input = malloc(bytes > 0 ? bytes : 1);
    bool whole = input != NULL && fread(input, 1, bytes, file) == bytes;
    fclose(file);
    if (whole) {
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(input, bytes);
    }
    free(input);
    return whole;
}

/* Runs all files of a folder, by name; *n counts them. */
static bool run_folder(const char *folder, int *n)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (good && entries[i]->d_name[0] != '.') {
            good = run_file(path);
            (*n)++;
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    return good;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        struct stat facts;
        if (stat(argv[i], &facts) != 0) {
            continue;
        }
        bool is_folder = S_ISDIR(facts.st_mode);
        if (is_folder ? !run_folder(argv[i], &n) : !run_file(argv[i])) {
            return 1;
        }
        n += !is_folder;
    }
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
