/* cc_mistakes.c - see cc_mistakes.h. */
#include "cli/cc_mistakes.h"

#include <ctype.h>
#include <stdlib.h>
#include "cli/cc_source.h"

enum { NAME_BYTES = 128 };

const char cc_no_gpu_function[] = "GPUs have no function ",
           cc_no_library[] = ": kernels have those of heddle/kernel_math.h only";

bool cc_is_error(const char *line)
{
    return cc_has(line, ": error: ") || cc_has(line, ": fatal error: ") || cc_has(line, ": error #") ||
           cc_has(line, ": Error: "); /* of an assembler */
}

bool cc_is_warning(const char *line)
{
    return cc_has(line, ": warning: ") || cc_has(line, ": warning #");
}

/* The end of the place in a message, at ": error" and the like. NULL: no place. */
static const char *mistake_end_of_place(const char *line)
{
    static const char *const words[] = {": error", ": fatal error", ": Error", ": warning"};
    const char *end = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *at = strstr(line, words[i]);
        end = end == NULL || (at != NULL && at < end) ? at : end;
    }
    return end;
}

char *cc_place_of(const char *line)
{
    const char *end = mistake_end_of_place(line), *begin;
    if (end == NULL) {
        return cli_format("%s", "");
    }
    if (end > line && end[-1] == ')') {
        for (begin = end - 1; begin > line && *begin != '('; begin--) {
        }
        return cli_format("%.*s:%.*s", (int)(begin - line), line, (int)(end - begin) - 2, begin + 1);
    }
    int colons = 0;
    for (begin = end; begin > line && (isdigit((unsigned char)begin[-1]) || begin[-1] == ':'); begin--) {
        colons += begin[-1] == ':';
    }
    if (colons > 1) { /* the last number is the column */
        while (end[-1] != ':') {
            end--;
        }
        end--;
    }
    return cli_format("%.*s", (int)(end - line), line);
}

/* The place of a message, split into parts, and the source line there. */
typedef struct spot {
    char *file; /* the caller frees it and `source` */
    char *source;
    int line, column; /* 0: unknown */
} spot;

static spot mistake_spot_of(const char *message)
{
    char *place = cc_place_of(message), *colon = strrchr(place, ':');
    spot at = {place, NULL, 0, 0};
    if (colon != NULL) {
        size_t length = strlen(place);
        at.line = atoi(colon + 1);
        at.column = strncmp(message, place, length) == 0 && message[length] == ':' ? atoi(message + length + 1) : 0;
        *colon = 0;
    }
    at.source = cc_source_line(at.file, at.line);
    return at;
}

static void mistake_release_spot(spot *at)
{
    free(at->file);
    free(at->source);
}

/* The name after the text in the line, with or without quotes of any kind. `out` holds
 * NAME_BYTES; "": not found. */
static bool mistake_name_after(const char *line, const char *before, char *out)
{
    static const char *const quotes[] = {"'", "\"", "\xe2\x80\x98", "`"};
    const char *at = strstr(line, before);
    size_t n = 0;
    at = at != NULL ? at + strlen(before) : "";
    for (size_t i = 0; i < sizeof quotes / sizeof quotes[0]; i++) {
        if (strncmp(at, quotes[i], strlen(quotes[i])) == 0) {
            at += strlen(quotes[i]);
            break;
        }
    }
    for (; cc_is_name(at[n]) && n + 1 < NAME_BYTES; n++) {
        out[n] = at[n];
    }
    out[n] = 0;
    return n > 0;
}

/* The name after one of the texts. `before` ends with NULL. */
static bool mistake_name_after_any(const char *line, const char *const *before, char *out)
{
    while (*before != NULL && !mistake_name_after(line, *before, out)) {
        before++;
    }
    return *before != NULL;
}

/* True if one of the message's notes contains the text. */
static bool mistake_notes_have(const cli_command *lines, size_t i, const char *text)
{
    for (i++; i < lines->n && !cc_is_error(lines->arguments[i]); i++) {
        if (cc_has(lines->arguments[i], text)) {
            return true;
        }
    }
    return false;
}

/* ---- other languages ---- */

/* Words that do not exist in kernel source. `there` is NULL for those of C++. */
static const struct {
    const char *word, *there;
    cc_weight weight;
} foreign[] = {
    {"__global__", "HD_KERNEL(name, HD_INOUT(type, name), ...)", CC_FILE},
    {"__device__", "HD_DEVICE", CC_LANGUAGE},
    {"__shared__", "HD_SHARED and HD_DYNAMIC_SHARED", CC_LANGUAGE},
    {"__constant__", "HD_CONSTANT", CC_LANGUAGE},
    {"threadIdx", "hd_thread_x() and so on", CC_LANGUAGE},
    {"blockIdx", "hd_block_x() and so on", CC_LANGUAGE},
    {"blockDim", "hd_block_dim_x() and so on", CC_LANGUAGE},
    {"gridDim", "hd_grid_dim_x() and so on", CC_LANGUAGE},
    {"__syncthreads", "hd_barrier()", CC_LANGUAGE},
    {"__syncwarp", "hd_warp_barrier()", CC_LANGUAGE},
    {"__threadfence*", "hd_thread_fence_device() and so on", CC_LANGUAGE},
    {"__shfl*", "hd_warp_shuffle_down_f32 and so on", CC_LANGUAGE},
    {"__ballot_sync", "hd_warp_ballot", CC_LANGUAGE},
    {"__any_sync", "hd_warp_any", CC_LANGUAGE},
    {"__all_sync", "hd_warp_all", CC_LANGUAGE},
    {"__activemask", "hd_warp_active_mask()", CC_LANGUAGE},
    {"atomicAdd", "hd_atomic_add_f32 and so on", CC_LANGUAGE},
    {"atomicSub", "hd_atomic_sub_u32 and so on", CC_LANGUAGE},
    {"atomicMin", "hd_atomic_min_u32 and so on", CC_LANGUAGE},
    {"atomicMax", "hd_atomic_max_u32 and so on", CC_LANGUAGE},
    {"atomicExch", "hd_atomic_exchange_u32 and so on", CC_LANGUAGE},
    {"atomicCAS", "hd_atomic_cas_u32 and so on", CC_LANGUAGE},
    {"__half", "hd_f16", CC_LANGUAGE},
    {"__nv_bfloat16", "hd_bf16", CC_LANGUAGE},
    {"__expf", "hd_fast_exp and so on", CC_LANGUAGE},
    {"template", NULL, CC_LANGUAGE},
    {"class", NULL, CC_LANGUAGE},
    {"namespace", NULL, CC_LANGUAGE},
    {"constexpr", NULL, CC_LANGUAGE},
    {"static_cast", NULL, CC_LANGUAGE},
    {"reinterpret_cast", NULL, CC_LANGUAGE},
    {"std::", NULL, CC_LANGUAGE},
};

/* Finds a word of CUDA C++ or C++ in the line of the message. */
static cc_mistake mistake_find_foreign(const spot *at)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const char *found = cc_source_find(at->source, foreign[i].word);
        if (found == NULL) {
            continue;
        }
        size_t n = 0;
        while (cc_is_name(found[n])) {
            n++;
        }
        const char *there = foreign[i].there;
        char *text = there == NULL ? cli_format("'%.*s' is C++, and kernel source is C: write it in C, or as CUDA C++ "
                                                "in a .cu file",
                                                (int)n, found)
                                   : cli_format("'%.*s' is CUDA C++, which is for .cu files: kernel source has %s",
                                                (int)n, found, there);
        return (cc_mistake){text, foreign[i].weight};
    }
    return (cc_mistake){NULL, CC_ALONE};
}

/* A header that kernel source does not need: one of C++ or of CUDA, which no C compiler finds. */
static char *mistake_explain_header(const char *line, const spot *at)
{
    const char *name = strchr(at->source, '<');
    size_t length = name != NULL ? strcspn(name, ">") : 0;
    if ((!cc_has(line, "No such file") && !cc_has(line, "file not found") && !cc_has(line, "cannot open source")) ||
        length == 0 || !cc_has(at->source, "include")) {
        return NULL;
    }
    char *header = cli_format("%.*s>", (int)length, name);
    bool foreign_header = !cc_has(header, ".") || cc_has(header, "<cuda") || cc_has(header, "<cooperative_groups");
    char *text = foreign_header ? cli_format("%s is a header of C++ or CUDA, and kernel source is C: heddle/kernel.h "
                                             "provides all that kernels need",
                                             header)
                                : NULL;
    free(header);
    return text;
}

/* ---- functions and variables ---- */

static const char no_string[] =
    "kernels have no '%s': write a loop, or assign a structure; programs fill and copy buffers by hd_fill and hd_copy";
static const char is_no_helper[] =
    "kernels cannot call '%s', which is no kernel source: a helper begins with HD_DEVICE";
static const char is_no_variable[] =
    "kernels cannot use the variable '%s': HD_CONSTANT is for constants, HD_GLOBAL for what programs set, HD_SHARED "
    "for what a block shares, the rest are parameters";

/* Explains clang's message about a call of a host function: one of the source, or of the C
 * library. */
static char *mistake_explain_call(const cli_command *lines, size_t i, const char *name)
{
    for (size_t j = i + 1; j < lines->n && !cc_is_error(lines->arguments[j]); j++) {
        const char *note = lines->arguments[j];
        if (cc_has(note, "call to __host__ function from __")) {
            bool library = strncmp(note, "/usr/", 5) == 0 || note[0] == '<';
            bool string = strncmp(name, "mem", 3) == 0 || strncmp(name, "str", 3) == 0;
            return library && string ? cli_format(no_string, name)
                   : library         ? cli_format("%s'%s'%s", cc_no_gpu_function, name, cc_no_library)
                                     : cli_format(is_no_helper, name);
        }
    }
    return NULL;
}

/* A call of a function that is not declared above. */
static char *mistake_explain_undeclared(const char *line, const spot *at)
{
    static const char *const before[] = {"implicit declaration of function ", "call to undeclared function ",
                                         "implicitly declaring library function ", NULL};
    char name[NAME_BYTES];
    if (!mistake_name_after_any(line, before, name)) {
        return NULL;
    }
    if (strncmp(name, "hd_", 3) == 0) {
        return cli_format("heddle/kernel.h has no '%s': names of atomics and warps end in a type, such as "
                          "hd_atomic_add_f32",
                          name);
    }
    if (strcmp(name, "malloc") == 0 || strcmp(name, "calloc") == 0 || strcmp(name, "free") == 0) {
        return cli_format("'%s': kernels do not allocate; memory is a parameter, or HD_SHARED", name);
    }
    if (strncmp(name, "mem", 3) == 0 || strncmp(name, "str", 3) == 0) {
        return cli_format(no_string, name);
    }
    if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0) {
        return cli_format("'%s' is C++: kernel source has f%sf for float, and f%s for double", name, name, name);
    }
    return cc_source_kernel(at->file, name) > 0
               ? cli_format("'%s' is a kernel, which kernels cannot call: what both do is a helper, HD_DEVICE", name)
               : cli_format("'%s' is not declared: a helper begins with HD_DEVICE, and is above what calls it", name);
}

/* Arguments that do not fit: of a helper that takes HD_SELF, or of an atomic operation of
 * another type. */
static char *mistake_explain_arguments(const cli_command *lines, size_t i, const spot *at)
{
    const char *line = lines->arguments[i], *atomic;
    bool type = cc_has(line, "incompatible pointer type") || cc_has(line, "incompatible type for argument");
    if (!type && !cc_has(line, "too few arguments")) {
        return NULL;
    }
    if (cc_has(line, "hd_kernel_thread") || mistake_notes_have(lines, i, "hd_kernel_thread") ||
        mistake_notes_have(lines, i, "HD_SELF")) {
        return cli_format("%s", "a helper that has HD_SELF is called with hd_self as its first argument");
    }
    atomic = cc_source_find(at->source, "hd_atomic_*");
    return type && atomic != NULL
               ? cli_format("'%.*s' is for another type: its name ends in the type that the pointer leads to",
                            (int)strcspn(atomic, " ("), atomic)
               : NULL;
}

/* float4 and the like, and dim3. */
static bool mistake_is_vector(const char *name)
{
    static const char *const words[] = {"char",  "uchar", "short",    "ushort",    "int",    "uint", "long",
                                        "ulong", "float", "longlong", "ulonglong", "double", "dim"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (length == strlen(words[i]) + 1 && strncmp(name, words[i], length - 1) == 0 &&
            strchr("1234", name[length - 1])) {
            return true;
        }
    }
    return false;
}

/* Messages about the name of a function or a variable. */
static char *mistake_explain_names(const cli_command *lines, size_t i, const spot *at)
{
    static const char *const functions[] = {"reference to __host__ function ", "calling a __host__ function(", NULL};
    static const char *const variables[] = {"reference to __host__ variable ", "a host variable ", NULL};
    const char *line = lines->arguments[i];
    char name[NAME_BYTES];
    if (mistake_name_after(line, "no matching function for call to ", name)) {
        return mistake_explain_call(lines, i, name);
    }
    if (mistake_name_after_any(line, functions, name)) {
        return cli_format(is_no_helper, name);
    }
    if (mistake_name_after_any(line, variables, name)) {
        return cli_format(is_no_variable, name);
    }
    char *text = mistake_explain_undeclared(line, at);
    return text != NULL ? text : mistake_explain_arguments(lines, i, at);
}

/* ---- features of C that kernels lack ---- */

/* Messages that mean the same anywhere. */
static char *mistake_explain_limit(const char *line, const spot *at)
{
    static const char no_type[] =
        "a declaration has a type: without one, and with auto alone, it is an int in C and not "
        "in C++";
    static const char no_enum[] = "kernels are compiled as C++, too: cast a number that becomes an enum, as (enum e)1";
    static const char no_return[] = "a function that returns a value does so on every path: else its end is undefined "
                                    "in C++";
    static const char no_order[] = "C leaves the order of these effects undefined: make two statements of them";
    static const struct {
        const char *message, *text;
    } limits[] = {
        {"variable length array",
         "an array of a kernel has a constant length: else it is HD_DYNAMIC_SHARED, or a buffer"},
        {"variable-length array",
         "an array of a kernel has a constant length: else it is HD_DYNAMIC_SHARED, or a buffer"},
        {"initialization is not supported for __shared__",
         "HD_SHARED has no first value: a thread assigns it, and hd_barrier() follows"},
        {"initializer not allowed for __shared__",
         "HD_SHARED has no first value: a thread assigns it, and hd_barrier() follows"},
        {"cannot jump from this goto", "kernels are compiled as C++, too, where goto passes no variable with a value: "
                                       "declare it before"},
        {"bypasses initialization", "kernels are compiled as C++, too, where goto passes no variable with a value: "
                                    "declare it before"},
        {"of type 'void *'", "kernels are compiled as C++, too: cast what void * becomes"},
        {"of type \"void *\"", "kernels are compiled as C++, too: cast what void * becomes"},
        {"from incompatible type 'void *'", "kernels are compiled as C++, too: cast what void * becomes"},
        {"variable of type 'enum ", no_enum},
        {"return object of type 'enum ", no_enum},
        {"assigning to 'enum ", no_enum},
        {"value of type 'enum ", no_enum}, /* cannot increment */
        {"a value of type \"int\" cannot be ", no_enum},
        {"type defaults to ", no_type},
        {"type specifier missing", no_type},
        {"control reaches end of non-void function", no_return},
        {"non-void function does not return a value", no_return},
        {"may be undefined [", no_order},
        {"unsequenced modification", no_order},
        {"trigraph", "a trigraph is three characters in C, and one in C++: write \\? for its question marks"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (cc_has(line, limits[i].message)) {
            return cli_format("%s", limits[i].text);
        }
    }
    if (cc_has(line, "duplicate ") && cc_has(line, "static")) {
        const char *word = cc_source_find(at->source, "static");
        const char *macro = word != NULL ? cc_source_find(word, "HD_*") : NULL;
        return macro != NULL ? cli_format("%.*s is static already: leave the other word out",
                                          (int)strspn(macro, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), macro)
                             : NULL;
    }
    static const char *const assemblers[] = {": Error: ", "instruction", "register name", "mnemonic"};
    bool is_asm = cc_source_find(at->source, "asm") != NULL || cc_source_find(at->source, "__asm__") != NULL;
    for (size_t i = 0; i < sizeof assemblers / sizeof assemblers[0] && is_asm; i++) {
        if (cc_has(line, assemblers[i])) {
            return cli_format("%s", "this is no instruction of the CPU: those of GPUs go into #if HD_KERNEL_GPU, C "
                                    "for the CPU into #else");
        }
    }
    return NULL;
}

/* ---- a kernel's first line ---- */

/* True if the message quotes a word that is not in the kernel's parameters. gcc reports some
 * mistakes of a body at HD_KERNEL. */
static bool mistake_is_of_body(const char *message, const char *kernel, const spot *at)
{
    char name[NAME_BYTES];
    return (mistake_name_after(message, "\xe2\x80\x98", name) || mistake_name_after(message, "'", name)) &&
           !cc_source_kernel_takes(at->file, kernel, name) && cc_source_word(at->file, name) > 0;
}

/* Messages about HD_KERNEL and its parameters. */
static cc_mistake mistake_find_first_line(const char *line, const spot *at)
{
    char *kernel = cc_source_kernel_at(at->file, at->line, at->column), *structure = NULL;
    cc_mistake found = {NULL, CC_KERNEL};
    if (kernel == NULL) {
        return found;
    }
    structure = cli_format("%s_hd_arguments", kernel);
    int first = cc_source_kernel(at->file, kernel);
    const char *wrong = strstr(line, "rror: "); /* of "error: " and of "Error: " */
    if (cc_source_word(at->file, "heddle/kernel.h") == 0 && cc_source_word(at->file, "include") == 0) {
        found.text = cli_format("%s", "HD_KERNEL is in heddle/kernel.h: begin with #include <heddle/kernel.h>");
    } else if (cc_has(line, "redefinition of") && cc_has(line, structure) && first > 0 && first != at->line) {
        found.text =
            cli_format("kernel %s is defined at %s:%d, too: a kernel file has each name once", kernel, at->file, first);
    } else if (wrong != NULL && mistake_is_of_body(wrong, kernel, at)) {
        found.text = cli_format("kernel %s: %s", kernel, wrong + strlen("rror: "));
    } else if (wrong != NULL) {
        found.text = cli_format("kernel %s: %s; each parameter is HD_IN, HD_OUT or HD_INOUT(type, name), or "
                                "HD_VALUE(type, name), of a known type",
                                kernel, wrong + strlen("rror: "));
    }
    free(structure);
    free(kernel);
    return found;
}

/* ---- all of them ---- */

/* True if there are errors of another kind: the code that did not compile may contain the
 * return. */
static bool mistake_has_other_errors(const cli_command *lines, const char *text)
{
    for (size_t i = 0; i < lines->n; i++) {
        if (cc_is_error(lines->arguments[i]) && !cc_has(lines->arguments[i], text)) {
            return true;
        }
    }
    return false;
}

static bool mistake_only_follows(const cli_command *lines, size_t i)
{
    const char *line = lines->arguments[i];
    bool again = cc_has(line, "conflicting types for") || cc_has(line, "follows non-static declaration");
    /* the end is reached, or a return lacks its value */
    static const char no_return[] = "non-void function";
    if (cc_has(line, no_return) && mistake_has_other_errors(lines, no_return)) {
        return true;
    }
    return cc_has(line, "is undefined in device code") || (again && mistake_notes_have(lines, i, "previous implicit"));
}

static cc_mistake mistake_find_at_spot(const cli_command *lines, size_t i, const spot *at)
{
    const char *line = lines->arguments[i], *text = strstr(line, "kernel ");
    if (text != NULL && (cc_has(text, ": a parameter is HD_IN,") || cc_has(text, ": more than 32 parameters") ||
                         cc_has(text, ": the type is a pointer") || cc_has(text, ": the type is long double"))) {
        return (cc_mistake){cli_format("%.*s", (int)strcspn(text, "\""), text), CC_LANGUAGE};
    }
    if (cc_has(line, "hd_self") && cc_has(line, "undeclared")) {
        bool dynamic = cc_has(at->source, "HD_DYNAMIC_SHARED");
        return (cc_mistake){cli_format("%s", dynamic ? "HD_DYNAMIC_SHARED is inside of a kernel, or of a helper that "
                                                       "has HD_SELF"
                                                     : "a helper that uses hd_global_x, hd_barrier and the like begins "
                                                       "with HD_DEVICE, has HD_SELF as "
                                                       "its first parameter, and is called with hd_self"),
                            CC_ALONE};
    }
    cc_mistake found = mistake_find_foreign(at);
    if (found.text == NULL && mistake_only_follows(lines, i)) {
        return (cc_mistake){cli_format("%s", ""), CC_FOLLOWS};
    }
    if (found.text == NULL) {
        found = (cc_mistake){mistake_explain_limit(line, at), CC_ALONE};
    }
    static const char *const types[] = {"unknown type name ", "use of undeclared identifier ", NULL};
    char name[NAME_BYTES];
    if (found.text == NULL && mistake_name_after_any(line, types, name) && mistake_is_vector(name)) {
        found = (cc_mistake){
            cli_format("'%s' is a type of CUDA C++: kernel source defines what it needs, as struct %s { ... }", name,
                       name),
            CC_LANGUAGE};
    }
    if (found.text == NULL) {
        found = mistake_find_first_line(line, at);
    }
    if (found.text == NULL) {
        found = (cc_mistake){mistake_explain_names(lines, i, at), CC_ALONE};
    }
    if (found.text == NULL) {
        found.text = mistake_explain_header(line, at);
    }
    return found;
}

cc_mistake cc_mistake_find_cuda(const cli_command *lines, size_t i)
{
    const char *line = lines->arguments[i];
    cc_mistake found = {NULL, CC_FOLLOWS};
    if (!cc_is_error(line)) {
        return found;
    }
    spot at = mistake_spot_of(line);
    const char *reference = cc_source_find(at.source, "texture<") != NULL   ? "texture"
                            : cc_source_find(at.source, "surface<") != NULL ? "surface"
                                                                            : NULL;
    if (cc_has(line, "requires separate compilation mode")) {
        found.text =
            cli_format("%s", "a kernel that launches kernels is relocatable code: compile it by nvcc -rdc=true "
                             "-dc, and hd_module_link links it with libcudadevrt.a");
        found.weight = CC_LANGUAGE;
    } else if (reference != NULL) {
        found.text =
            cli_format("a %s reference, which CUDA has no more from version 12 on: pass a %s object, or a buffer",
                       reference, reference);
        found.weight = CC_FILE;
    }
    mistake_release_spot(&at);
    return found;
}

cc_mistake cc_mistake_find(const cli_command *lines, size_t i)
{
    const char *line = lines->arguments[i];
    if (cc_has(line, ": Assembler messages:")) {
        return (cc_mistake){cli_format("%s", ""), CC_FOLLOWS};
    }
    if (!cc_is_error(line)) {
        return (cc_mistake){NULL, CC_FOLLOWS};
    }
    spot at = mistake_spot_of(line);
    cc_mistake found = mistake_find_at_spot(lines, i, &at);
    mistake_release_spot(&at);
    return found;
}
