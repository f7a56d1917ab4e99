/* cc_math.c - see cc_math.h. */
#include "cli/cc_math.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/process.h"

#define LIBDEVICE "nvvm/libdevice/libdevice.10.bc"
#define LIBCLC "nvptx64--nvidiacl.bc"

static const char define_libdevice[] = "-DHD_MATH_LIBDEVICE", define_libclc[] = "-DHD_MATH_LIBCLC";

bool cc_math_is_called(const char *ptx, size_t bytes)
{
    return memmem(ptx, bytes, " hd_math_", 9) != NULL;
}

/* FOLDER/NAME where that can be read, else NULL. */
static char *file_in(const char *folder, const char *name)
{
    if (folder == NULL || folder[0] == 0) {
        return NULL;
    }
    char *file = cli_format("%s/%s", folder, name);
    if (access(file, R_OK) != 0) {
        free(file);
        file = NULL;
    }
    return file;
}

/* Of the toolkit whose nvcc is in PATH. */
static char *beside_nvcc(void)
{
    const char *path = secure_getenv("PATH");
    char *found = NULL;
    while (path != NULL && *path != 0 && found == NULL) {
        size_t length = strcspn(path, ":");
        char *folder = cli_format("%.*s", (int)length, path);
        char *nvcc = file_in(folder, "nvcc");
        found = nvcc != NULL ? file_in(folder, "../" LIBDEVICE) : NULL;
        free(nvcc);
        free(folder);
        path += length + (path[length] == ':');
    }
    return found;
}

static char *find_libdevice(void)
{
    char *found = file_in(secure_getenv("CUDA_PATH"), LIBDEVICE);
    found = found != NULL ? found : file_in(secure_getenv("CUDA_HOME"), LIBDEVICE);
    found = found != NULL ? found : beside_nvcc();
    found = found != NULL ? found : file_in("/usr/local/cuda", LIBDEVICE);
    return found != NULL ? found : file_in("/usr/lib/nvidia-cuda-toolkit/libdevice", "libdevice.10.bc"); /* Debian's */
}

static char *find_libclc(void)
{
    static const char *const folders[] = {"/usr/lib/clc", "/usr/share/clc", "/usr/local/lib/clc",
                                          "/usr/local/share/clc"};
    char *found = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && found == NULL; i++) {
        found = file_in(folders[i], LIBCLC);
    }
    return found;
}

cc_math_library cc_math_find(const char *choice)
{
    cc_math_library library = {NULL, define_libdevice};
    bool any = strcmp(choice, "auto") == 0;
    if (any || strcmp(choice, "libdevice") == 0) {
        library.file = find_libdevice();
    }
    if (library.file == NULL && (any || strcmp(choice, "libclc") == 0)) {
        library = (cc_math_library){find_libclc(), define_libclc};
    }
    if (!any && strcmp(choice, "libdevice") != 0 && strcmp(choice, "libclc") != 0 && strcmp(choice, "none") != 0) {
        const char *slash = strrchr(choice, '/');
        bool device = strncmp(slash != NULL ? slash + 1 : choice, "libdevice", 9) == 0;
        library = (cc_math_library){cli_format("%s", choice), device ? define_libdevice : define_libclc};
    }
    return library;
}

void cc_math_align(void **ptx, size_t *bytes)
{
    static const char wrong[] = ".align 1 .b8 PIBITS_TBL[", right[] = ".align 16 .b8 PIBITS_TBL[";
    const char *text = *ptx;
    const char *at = memmem(text, *bytes, wrong, sizeof wrong - 1);
    if (at == NULL) {
        return;
    }
    size_t before = (size_t)(at - text), after = *bytes - before - (sizeof wrong - 1);
    char *longer = cli_allocate(*bytes + 2); /* a zero behind it, as cli_read_file has it */
    memcpy(longer, text, before);
    memcpy(longer + before, right, sizeof right - 1);
    memcpy(longer + before + sizeof right - 1, at + sizeof wrong - 1, after);
    *bytes += 1;
    longer[*bytes] = 0;
    free(*ptx);
    *ptx = longer;
}
