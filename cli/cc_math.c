/* cc_math.c - see cc_math.h. */
#include "cli/cc_math.h"

#include <stdio.h>
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

/* FOLDER/NAME if it can be read, else NULL. */
static char *math_readable_file(const char *folder, const char *name)
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

/* libdevice of the toolkit whose nvcc is in PATH. */
static char *math_file_beside_nvcc(void)
{
    const char *path = secure_getenv("PATH");
    char *found = NULL;
    while (path != NULL && *path != 0 && found == NULL) {
        size_t length = strcspn(path, ":");
        char *folder = cli_format("%.*s", (int)length, path);
        char *nvcc = math_readable_file(folder, "nvcc");
        found = nvcc != NULL ? math_readable_file(folder, "../" LIBDEVICE) : NULL;
        free(nvcc);
        free(folder);
        path += length + (path[length] == ':');
    }
    return found;
}

static char *math_find_libdevice(void)
{
    char *found = math_readable_file(secure_getenv("CUDA_PATH"), LIBDEVICE);
    found = found != NULL ? found : math_readable_file(secure_getenv("CUDA_HOME"), LIBDEVICE);
    found = found != NULL ? found : math_file_beside_nvcc();
    found = found != NULL ? found : math_readable_file("/usr/local/cuda", LIBDEVICE);
    /* Debian's folder */
    return found != NULL ? found : math_readable_file("/usr/lib/nvidia-cuda-toolkit/libdevice", "libdevice.10.bc");
}

static char *math_find_libclc(void)
{
    static const char *const folders[] = {"/usr/lib/clc", "/usr/share/clc", "/usr/local/lib/clc",
                                          "/usr/local/share/clc"};
    char *found = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && found == NULL; i++) {
        found = math_readable_file(folders[i], LIBCLC);
    }
    return found;
}

cc_math_library cc_math_find(const char *choice)
{
    cc_math_library library = {NULL, define_libdevice};
    bool any = strcmp(choice, "auto") == 0;
    if (any || strcmp(choice, "libdevice") == 0) {
        library.file = math_find_libdevice();
    }
    if (library.file == NULL && (any || strcmp(choice, "libclc") == 0)) {
        library = (cc_math_library){math_find_libclc(), define_libclc};
    }
    if (!any && strcmp(choice, "libdevice") != 0 && strcmp(choice, "libclc") != 0 && strcmp(choice, "none") != 0) {
        const char *slash = strrchr(choice, '/');
        bool device = strncmp(slash != NULL ? slash + 1 : choice, "libdevice", 9) == 0;
        library = (cc_math_library){cli_format("%s", choice), device ? define_libdevice : define_libclc};
    }
    return library;
}

/* ---- the text: line by line ---- */

/* The first `from` in the line that ends at `end`; NULL: none. */
static const char *math_find_in_line(const char *line, const char *end, const char *from)
{
    return memmem(line, (size_t)(end - line), from, strlen(from));
}

/* Writes a line with every `from` replaced by `to`. */
static void math_write_replaced(FILE *out, const char *line, const char *end, const char *from, const char *to)
{
    for (const char *at; (at = math_find_in_line(line, end, from)) != NULL; line = at + strlen(from)) {
        fwrite(line, 1, (size_t)(at - line), out);
        fputs(to, out);
    }
    fwrite(line, 1, (size_t)(end - line), out);
}

/* Calls that LLVM misreads, or turns into longer code than GPUs need. A row lists the name, its
 * replacement, and the declaration of the replacement. The library rounds to nearest even.
 * LLVM's passes would round halves up instead, and gamma functions would get wrong signs.
 * Copying a sign takes one instruction. LLVM 14 makes five instructions, two of which are sums of
 * doubles. Loops that must not be unrolled get a mark that LLVM's passes keep for the assembler.
 * Unrolled, they take so many registers that a processor cannot hold all of its threads. */
static const struct meaning {
    const char *name, *meant, *declaration;
} meanings[] = {
    {"@llvm.nvvm.round.f(", "@llvm.rint.f32(", "declare float @llvm.rint.f32(float)\n"},
    {"@llvm.nvvm.round.d(", "@llvm.rint.f64(", "declare double @llvm.rint.f64(double)\n"},
    {"@llvm.copysign.f32(", "@hd_math_copysign_f32(",
     "define internal float @hd_math_copysign_f32(float %x, float %y) alwaysinline nounwind readnone {\n"
     "  %r = call float asm \"copysign.f32 $0, $1, $2;\", \"=f,f,f\"(float %y, float %x) nounwind readnone\n"
     "  ret float %r\n}\n"},
    {"@llvm.copysign.f64(", "@hd_math_copysign_f64(",
     "define internal double @hd_math_copysign_f64(double %x, double %y) alwaysinline nounwind readnone {\n"
     "  %r = call double asm \"copysign.f64 $0, $1, $2;\", \"=d,d,d\"(double %y, double %x) nounwind readnone\n"
     "  ret double %r\n}\n"},
    {"!\"llvm.loop.unroll.count\", i32 1}", "!\"llvm.loop.unroll.disable\"}", ""},
};
enum { MEANINGS = sizeof meanings / sizeof meanings[0] };

/* Writes the line if it contains such a name, and then returns true. */
static bool math_write_meant(FILE *out, const char *line, const char *end, const char *text, size_t bytes)
{
    for (size_t i = 0; i < MEANINGS; i++) {
        const struct meaning *m = &meanings[i];
        if (math_find_in_line(line, end, m->name) == NULL) {
            continue;
        }
        if (strncmp(line, "declare ", 8) != 0) {
            math_write_replaced(out, line, end, m->name, m->meant);
        } else if (memmem(text, bytes, m->declaration, strlen(m->declaration) - 1) == NULL) {
            fputs(m->declaration, out);
        }
        return true;
    }
    return false;
}

/* A conditional product and sum of doubles with nothing else under the condition. GPUs need one
 * predicated instruction for it. LLVM would always compute both and select the result, which takes
 * two more instructions for doubles. */
#define FMA "@llvm.nvvm.fma.rn.d("
#define FMA_HERE "@hd_math_fma_here("
static const char fma_here[] =
    "define internal double @hd_math_fma_here(double %x, double %y, double %z) alwaysinline nounwind readnone {\n"
    "  %r = call double asm \"fma.rn.f64 $0, $1, $2, $3;\", \"=d,d,d,d\"(double %x, double %y, double %z) nounwind "
    "readnone\n"
    "  ret double %r\n}\n";

/* Writes the line if it uses or declares FMA, and then returns true. `after_label`: the line before
 * begins a block. */
static bool math_write_fma(FILE *out, const char *line, const char *end, const char *last, bool after_label)
{
    if (math_find_in_line(line, end, FMA) == NULL) {
        return false;
    }
    if (strncmp(line, "declare ", 8) == 0) {
        fwrite(line, 1, (size_t)(end - line), out);
        fputs(fma_here, out);
        return true;
    }
    if (!after_label || last - end < 11 || strncmp(end, "  br label ", 11) != 0) {
        return false;
    }
    math_write_replaced(out, line, end, FMA, FMA_HERE);
    return true;
}

/* The name of the constant by which libdevice asks whether square roots are rounded; NULL:
 * libdevice does not ask. */
static char *math_roots_question(const char *text, size_t bytes)
{
    const char *at = memmem(text, bytes, "c\"__CUDA_PREC_SQRT\\00\"", 22), *line = at;
    while (line != NULL && line > text && line[-1] != '\n') {
        line--;
    }
    return line != NULL && *line == '@' ? cli_format("%.*s", (int)strcspn(line, " "), line) : NULL;
}

/* Writes the answer if the line asks `question`, and then returns true. LLVM would answer no, and
 * approximate roots. */
static bool math_write_answer(FILE *out, const char *line, const char *end, const char *question)
{
    const char *asked = question != NULL && math_find_in_line(line, end, "@__nvvm_reflect(") != NULL
                            ? math_find_in_line(line, end, question)
                            : NULL;
    const char *call = asked != NULL ? math_find_in_line(line, end, " = ") : NULL;
    if (call == NULL || (asked[strlen(question)] != ',' && asked[strlen(question)] != ')')) {
        return false;
    }
    fprintf(out, "%.*s = add i32 0, 1\n", (int)(call - line), line);
    return true;
}

/* Aligns the bits of 2/pi to the words of 16 bytes by which they are read. */
static void math_write_other(FILE *out, const char *line, const char *end)
{
    const char *align = math_find_in_line(line, end, ", align 1\n");
    if (align != NULL && strncmp(line, "@PIBITS_TBL ", 12) == 0) {
        fprintf(out, "%.*s, align 16\n", (int)(align - line), line);
    } else {
        fwrite(line, 1, (size_t)(end - line), out);
    }
}

void cc_math_mend(void **text, size_t *bytes)
{
    const char *line = *text, *last = line + *bytes;
    char *question = math_roots_question(line, *bytes), *mended = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&mended, &length);
    bool label = false;
    for (const char *end; out != NULL && line < last; line = end) {
        const char *newline = memchr(line, '\n', (size_t)(last - line));
        end = newline != NULL ? newline + 1 : last;
        if (!math_write_meant(out, line, end, *text, *bytes) && !math_write_answer(out, line, end, question) &&
            !math_write_fma(out, line, end, last, label)) {
            math_write_other(out, line, end);
        }
        label = *line != ' ' && math_find_in_line(line, end, ": ") != NULL;
    }
    free(question);
    if (out != NULL && fclose(out) == 0) {
        free(*text);
        *text = mended;
        *bytes = length;
    }
}
