/* file.c - reads, writes and builds kernel files, in the layout of file.h, and reads the ELF files
 * that go into them.
 *
 * Threads: any; no state.
 * Locks: none.
 * Blocking: none.
 * Always:
 * - a byte is read only after a check that it is inside the image
 * - sizes are compared by subtraction, so that no sum overflows
 * - hdi_kernel_file_parse accepts every file that hd_kernel_file_build returns
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <heddle/kernel.h>
#include <heddle/kernel_file.h>
#include <heddle/module.h>
#include "base/cancel.h"
#include "base/error.h"
#include "base/number.h"
#include "base/presence.h"
#include "base/sized.h"
#include "base/text.h"
#include "kernel/file.h"
#include "kernel/ptx.h"

/* ---- ELF ---- */

#define SECTION_NAME "hd_kernels"
#define NAME_BYTES 128u /* the room for names of kernels and variables */

static hd_status elf_read_header(const void *image, size_t bytes, Elf64_Ehdr *out)
{
    if (bytes < sizeof *out || memcmp(image, ELFMAG, SELFMAG) != 0) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: not an ELF file");
    }
    memcpy(out, image, sizeof *out);
    if (out->e_ident[EI_CLASS] != ELFCLASS64 || out->e_ident[EI_DATA] != ELFDATA2LSB) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: not a 64-bit little-endian ELF file");
    }
    if (out->e_phnum != 0 && (out->e_phentsize != sizeof(Elf64_Phdr) ||
                              !hdi_is_inside(out->e_phoff, (uint64_t)out->e_phnum * sizeof(Elf64_Phdr), bytes))) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF program headers are damaged or cut off");
    }
    if (out->e_shnum != 0 && (out->e_shentsize != sizeof(Elf64_Shdr) ||
                              !hdi_is_inside(out->e_shoff, (uint64_t)out->e_shnum * sizeof(Elf64_Shdr), bytes))) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF section headers are damaged or cut off");
    }
    return HD_OK;
}

hd_status hdi_elf_check_shared(const void *image, size_t bytes, uint32_t *machine)
{
    Elf64_Ehdr header;
    hd_status status = elf_read_header(image, bytes, &header);
    if (status != HD_OK) {
        return status;
    }
    if (header.e_type != ET_DYN || header.e_phnum == 0) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: not an ELF shared object (link it with -shared)");
    }
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, (const char *)image + header.e_phoff + i * sizeof p, sizeof p);
        if ((p.p_type == PT_LOAD || p.p_type == PT_DYNAMIC || p.p_type == PT_TLS) &&
            (!hdi_is_inside(p.p_offset, p.p_filesz, bytes) || p.p_filesz > p.p_memsz)) {
            return hdi_fail(HD_ERROR_IMAGE, "CPU code: an ELF segment is damaged or cut off");
        }
    }
    *machine = header.e_machine;
    return HD_OK;
}

/* An ELF file. Its headers and the names of its sections were checked: they lie inside the file. */
typedef struct elf {
    const char *at;
    size_t bytes;
    Elf64_Ehdr header;
    Elf64_Shdr names;
} elf;

static hd_status elf_open(const void *image, size_t bytes, elf *e)
{
    *e = (elf){.at = image, .bytes = bytes};
    hd_status status = elf_read_header(image, bytes, &e->header);
    if (status != HD_OK) {
        return status;
    }
    if (e->header.e_shnum == 0 || e->header.e_shstrndx >= e->header.e_shnum) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "CPU code: it has no section names, so the kernels' descriptions cannot be read");
    }
    memcpy(&e->names, e->at + e->header.e_shoff + e->header.e_shstrndx * sizeof e->names, sizeof e->names);
    return hdi_is_inside(e->names.sh_offset, e->names.sh_size, bytes)
               ? HD_OK
               : hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF section names are damaged or cut off");
}

static Elf64_Shdr elf_section_at(const elf *e, uint32_t i)
{
    Elf64_Shdr s;
    memcpy(&s, e->at + e->header.e_shoff + i * sizeof s, sizeof s);
    return s;
}

static bool elf_section_is(const elf *e, const Elf64_Shdr *s, const char *name)
{
    size_t n = strlen(name) + 1;
    return s->sh_name < e->names.sh_size && e->names.sh_size - s->sh_name >= n &&
           memcmp(e->at + e->names.sh_offset + s->sh_name, name, n) == 0;
}

/* Finds the section's bytes; *section stays NULL if the file lacks the section. */
static hd_status elf_find_section(const elf *e, const char **section, size_t *section_bytes)
{
    for (uint32_t i = 0; i < e->header.e_shnum; i++) {
        Elf64_Shdr s = elf_section_at(e, i);
        if (s.sh_type != SHT_PROGBITS || !elf_section_is(e, &s, SECTION_NAME)) {
            continue;
        }
        if (!hdi_is_inside(s.sh_offset, s.sh_size, e->bytes)) {
            return hdi_fail(HD_ERROR_IMAGE, "CPU code: the section " SECTION_NAME " is damaged or cut off");
        }
        *section = e->at + s.sh_offset;
        *section_bytes = s.sh_size;
        return HD_OK;
    }
    return HD_OK;
}

/* ---- variables of an ELF file ---- */

/* Reads one symbol. False: the symbol is no variable that programs can use. If the variable's name
 * or size is bad, the function returns true and sets *status. */
static bool elf_read_variable(const elf *e, const Elf64_Sym *symbol, const Elf64_Shdr *names, hdi_kernel_global *out,
                              hd_status *status)
{
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || ELF64_ST_BIND(symbol->st_info) != STB_GLOBAL ||
        symbol->st_shndx >= e->header.e_shnum) {
        return false;
    }
    Elf64_Shdr s = elf_section_at(e, symbol->st_shndx);
    out->constant = elf_section_is(e, &s, "hd_constants");
    if (!out->constant && !elf_section_is(e, &s, "hd_globals")) {
        return false;
    }
    const char *name = e->at + names->sh_offset + symbol->st_name;
    size_t room = symbol->st_name < names->sh_size ? (size_t)(names->sh_size - symbol->st_name) : 0;
    size_t length = strnlen(name, room < NAME_BYTES ? room : NAME_BYTES);
    out->name = name;
    out->bytes = symbol->st_size;
    if (length == 0 || length == room || out->bytes == 0) {
        *status = hdi_fail(HD_ERROR_IMAGE, "CPU code: the name of a variable is damaged");
    } else if (length == NAME_BYTES) {
        *status = hdi_fail(HD_ERROR_LIMIT, "variable %.40s...: a name has %u characters at most", name, NAME_BYTES - 1);
    }
    return true;
}

/* Adds the variables in a table of symbols. */
static hd_status elf_add_variables(const elf *e, const Elf64_Shdr *table, hdi_kernel_file *out)
{
    Elf64_Shdr names = table->sh_link < e->header.e_shnum ? elf_section_at(e, table->sh_link) : (Elf64_Shdr){0};
    if (!hdi_is_inside(table->sh_offset, table->sh_size, e->bytes) ||
        !hdi_is_inside(names.sh_offset, names.sh_size, e->bytes)) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: a table of symbols is damaged or cut off");
    }
    hd_status status = HD_OK;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym) && status == HD_OK; i++) {
        Elf64_Sym symbol;
        hdi_kernel_global found;
        memcpy(&symbol, e->at + table->sh_offset + i * sizeof symbol, sizeof symbol);
        if (!elf_read_variable(e, &symbol, &names, &found, &status) || status != HD_OK ||
            hdi_kernel_file_find_global(out, found.name) != NULL) {
            continue;
        }
        if (out->n_globals == HDI_KERNEL_FILE_GLOBALS_MAX) {
            return hdi_fail(HD_ERROR_LIMIT, "more than %d variables", HDI_KERNEL_FILE_GLOBALS_MAX);
        }
        hdi_kernel_global *more = realloc(out->globals, (out->n_globals + 1) * sizeof *more);
        if (more == NULL) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the descriptions of variables");
        }
        out->globals = more;
        out->globals[out->n_globals++] = found;
    }
    return status;
}

/* An object file contains one table of symbols. A shared object also contains a table for the
 * loader. `strip` removes the first table, but not the second one. */
static hd_status elf_describe_variables(const elf *e, hdi_kernel_file *out)
{
    hd_status status = HD_OK;
    for (uint32_t i = 0; i < e->header.e_shnum && status == HD_OK; i++) {
        Elf64_Shdr s = elf_section_at(e, i);
        if (s.sh_type == SHT_SYMTAB || s.sh_type == SHT_DYNSYM) {
            status = elf_add_variables(e, &s, out);
        }
    }
    return status;
}

/* ---- kernels of an ELF file ---- */

/* The next record at or after *at, skipping padding; false at the end. */
static bool elf_next_record(const char *section, size_t bytes, size_t *at, hd_cpu_kernel *out)
{
    for (; *at <= bytes && bytes - *at >= sizeof *out; *at += 8) {
        memcpy(out, section + *at, sizeof *out);
        if (out->magic == HD_CPU_KERNEL_MAGIC) {
            return true;
        }
    }
    return false;
}

static hd_status elf_check_record(const hd_cpu_kernel *k, const char *record, size_t bytes)
{
    /* The parameters follow the structure, and one unused parameter follows them. */
    if (memchr(k->name, 0, sizeof k->name) == NULL || k->name[0] == 0 || k->n_params > HDI_KERNEL_PARAMS_MAX ||
        k->record_bytes > bytes || k->record_bytes < sizeof *k + (k->n_params + (size_t)1) * sizeof(hd_cpu_param) ||
        k->record_bytes % 8 != 0 || k->argument_bytes > HDI_KERNEL_ARGUMENT_BYTES_MAX) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "CPU code: a kernel's description is damaged, or made with another heddle/kernel.h");
    }
    for (uint32_t i = 0; i < k->n_params; i++) {
        const char *name = record + sizeof *k + i * sizeof(hd_cpu_param);
        if (memchr(name, 0, sizeof((hd_cpu_param *)0)->name) == NULL) {
            return hdi_fail(HD_ERROR_IMAGE, "CPU code: kernel %s: the name of parameter %u is damaged", k->name, i);
        }
    }
    return HD_OK;
}

hd_status hdi_elf_describe(const void *image, size_t bytes, hdi_kernel_file *out)
{
    const char *section = NULL;
    size_t section_bytes = 0, n_kernels = 0, n_params = 0, at = 0;
    elf e;
    hd_status status = elf_open(image, bytes, &e);
    status = status ? status : elf_find_section(&e, &section, &section_bytes);
    if (status != HD_OK) {
        return status;
    }
    hd_cpu_kernel k;
    for (; elf_next_record(section, section_bytes, &at, &k); at += k.record_bytes) {
        status = elf_check_record(&k, section + at, section_bytes - at);
        if (status != HD_OK) {
            return status;
        }
        n_kernels++;
        n_params += k.n_params;
    }
    if (n_kernels == 0) {
        return hdi_fail(HD_ERROR_IMAGE, "there is no kernel: none was defined with HD_KERNEL of heddle/kernel.h");
    }
    if (n_kernels > HDI_KERNEL_FILE_KERNELS_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "%zu kernels; at most %d", n_kernels, HDI_KERNEL_FILE_KERNELS_MAX);
    }
    hdi_kernel_entry *kernels = calloc(1, n_kernels * sizeof *kernels + n_params * sizeof(hdi_kernel_param));
    if (kernels == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the descriptions of %zu kernels", n_kernels);
    }
    hdi_kernel_param *params = (hdi_kernel_param *)(kernels + n_kernels);
    at = 0;
    for (size_t i = 0; elf_next_record(section, section_bytes, &at, &k); at += k.record_bytes, i++) {
        const char *record = section + at;
        kernels[i].name = record + offsetof(hd_cpu_kernel, name);
        kernels[i].params = params;
        kernels[i].n_params = k.n_params;
        kernels[i].argument_bytes = k.argument_bytes;
        kernels[i].max_threads = k.max_threads;
        for (uint32_t j = 0; j < k.n_params; j++) {
            const char *from = record + sizeof k + j * sizeof(hd_cpu_param);
            hd_cpu_param p;
            memcpy(&p, from, sizeof p);
            *params++ = (hdi_kernel_param){
                from + offsetof(hd_cpu_param, name), p.kind, HDI_PARAM_ACCESS(p.access), p.offset, p.size,
                HDI_PARAM_ELEMENT(p.access)};
        }
    }
    out->kernels = kernels;
    out->n_kernels = (uint32_t)n_kernels;
    status = elf_describe_variables(&e, out);
    if (status != HD_OK) {
        hdi_kernel_file_release(out);
    }
    return status;
}

/* ---- kernel files ---- */

#define VERSION 1u
#define HEADER_BYTES 32u
#define SECTION_BYTES 24u
#define SECTIONS_MAX (HDI_KERNEL_FILE_CPUS_MAX + 3u)
#define KERNEL_BYTES (NAME_BYTES + 16u)
#define GLOBAL_BYTES (NAME_BYTES + 16u)
#define PARAM_NAME_BYTES 64u
#define PARAM_BYTES (PARAM_NAME_BYTES + 16u)
#define ALIGNMENT 64u

enum { SECTION_PTX = 1, SECTION_CPU = 2, SECTION_KERNELS = 3, SECTION_GLOBALS = 4 };

/* heddle/kernel.h cannot include the headers that define these numbers, so it repeats them. */
_Static_assert(HD_PP_KIND(float) == HD_ARG_F32 && HD_PP_KIND(double) == HD_ARG_F64, "kinds of kernel.h");
_Static_assert(HD_PP_KIND(int8_t) == HD_ARG_I8 && HD_PP_KIND(uint8_t) == HD_ARG_U8, "kinds of kernel.h");
_Static_assert(HD_PP_KIND(int16_t) == HD_ARG_I16 && HD_PP_KIND(uint16_t) == HD_ARG_U16, "kinds of kernel.h");
_Static_assert(HD_PP_KIND(int32_t) == HD_ARG_I32 && HD_PP_KIND(uint32_t) == HD_ARG_U32, "kinds of kernel.h");
_Static_assert(HD_PP_KIND(int64_t) == HD_ARG_I64 && HD_PP_KIND(uint64_t) == HD_ARG_U64, "kinds of kernel.h");
_Static_assert(HD_ARG_BUFFER == 1 && HD_ARG_BYTES == 12 && HD_READ == 1 && HD_WRITE == 2 && HD_READ_WRITE == 3,
               "kinds and accesses of kernel.h");

static uint32_t kernel_file_get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t kernel_file_get64(const unsigned char *p)
{
    return kernel_file_get32(p) | (uint64_t)kernel_file_get32(p + 4) << 32;
}

static void kernel_file_put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (unsigned char)(v >> 8 * i);
    }
}

static void kernel_file_put64(unsigned char *p, uint64_t v)
{
    kernel_file_put32(p, (uint32_t)v);
    kernel_file_put32(p + 4, (uint32_t)(v >> 32));
}

static uint64_t kernel_file_checksum(const unsigned char *image, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ (i >= 16 && i < 24 ? 0 : image[i])) * 0x100000001b3u;
    }
    return h;
}

bool hdi_kernel_file_detect(const void *image, size_t bytes)
{
    return bytes >= 4 && memcmp(image, "HDKF", 4) == 0;
}

/* True if a name is not empty and ends inside its field. */
static bool kernel_file_name_is_good(const unsigned char *p, size_t bytes)
{
    return p[0] != 0 && memchr(p, 0, bytes) != NULL;
}

/* The size of a parameter of this kind. 0: the parameter may have any size. */
static uint32_t kernel_file_kind_size(uint32_t kind)
{
    static const uint8_t sizes[] = {0, 8, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 0};
    return kind < sizeof sizes ? sizes[kind] : 0;
}

static hd_status kernel_file_parse_params(const unsigned char *p, const hdi_kernel_entry *kernel,
                                          hdi_kernel_param *params)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < kernel->n_params; i++, p += PARAM_BYTES) {
        hdi_kernel_param *q = &params[i];
        if (!kernel_file_name_is_good(p, PARAM_NAME_BYTES)) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s: the name of parameter %u is damaged", kernel->name,
                            i);
        }
        q->name = (const char *)p;
        q->kind = kernel_file_get32(p + PARAM_NAME_BYTES);
        q->access = HDI_PARAM_ACCESS(kernel_file_get32(p + PARAM_NAME_BYTES + 4));
        q->element = HDI_PARAM_ELEMENT(kernel_file_get32(p + PARAM_NAME_BYTES + 4));
        q->offset = kernel_file_get32(p + PARAM_NAME_BYTES + 8);
        q->size = kernel_file_get32(p + PARAM_NAME_BYTES + 12);
        bool buffer = q->kind == HD_ARG_BUFFER;
        uint32_t element = q->element & 0xff;
        bool odd_element = element > HD_ARG_BYTES || element == HD_ARG_BUFFER || (q->element != 0 && !buffer);
        if (q->kind == HD_ARG_NONE || q->kind > HD_ARG_BYTES || q->access > 3 || buffer != (q->access != 0) ||
            odd_element) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s, parameter %s: kind %u with access %u",
                            kernel->name, q->name, q->kind, q->access);
        }
        uint32_t size = kernel_file_kind_size(q->kind);
        if (q->size == 0 || (size != 0 && q->size != size) || q->offset < end || q->offset > kernel->argument_bytes ||
            q->size > kernel->argument_bytes - q->offset || (size != 0 && q->offset % size != 0)) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s, parameter %s: %u bytes at offset %u of %u",
                            kernel->name, q->name, q->size, q->offset, kernel->argument_bytes);
        }
        end = q->offset + q->size;
    }
    if (end != kernel->argument_bytes) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s: %u argument bytes, but the parameters end at %u",
                        kernel->name, kernel->argument_bytes, end);
    }
    return HD_OK;
}

static hd_status kernel_file_parse_kernels(const unsigned char *p, size_t bytes, hdi_kernel_file *out)
{
    uint32_t n = bytes < 8 ? 0 : kernel_file_get32(p);
    if (bytes < 8 || n > HDI_KERNEL_FILE_KERNELS_MAX || kernel_file_get32(p + 4) != 0 ||
        n > (bytes - 8) / KERNEL_BYTES) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: the list of kernels is damaged (%u kernels in %zu bytes)", n,
                        bytes);
    }
    /* The section consists of kernels and parameters, each of a fixed size. So the size of the
     * section limits the allocation. */
    size_t n_params = (bytes - 8 - n * (size_t)KERNEL_BYTES) / PARAM_BYTES;
    out->kernels = malloc(n * sizeof(hdi_kernel_entry) + n_params * sizeof(hdi_kernel_param) + 1);
    if (out->kernels == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "kernel file: no memory for the descriptions of %u kernels", n);
    }
    hdi_kernel_param *params = (hdi_kernel_param *)(out->kernels + n);
    const unsigned char *end = p + bytes;
    p += 8;
    for (uint32_t i = 0; i < n; i++) {
        hdi_kernel_entry *k = &out->kernels[i];
        if ((size_t)(end - p) < KERNEL_BYTES || !kernel_file_name_is_good(p, NAME_BYTES)) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: the description of kernel %u of %u is damaged", i, n);
        }
        k->name = (const char *)p;
        k->n_params = kernel_file_get32(p + NAME_BYTES);
        k->argument_bytes = kernel_file_get32(p + NAME_BYTES + 4);
        k->static_shared_bytes = kernel_file_get32(p + NAME_BYTES + 8);
        k->max_threads = kernel_file_get32(p + NAME_BYTES + 12);
        p += KERNEL_BYTES;
        if (k->n_params > HDI_KERNEL_PARAMS_MAX || k->n_params > (size_t)(end - p) / PARAM_BYTES ||
            k->argument_bytes > HDI_KERNEL_ARGUMENT_BYTES_MAX) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s: %u parameters of %u bytes", k->name, k->n_params,
                            k->argument_bytes);
        }
        if (k->n_params > n_params) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: kernel %s: its parameters do not fit the file", k->name);
        }
        n_params -= k->n_params;
        k->params = params;
        out->n_kernels = i + 1;
        if (hdi_kernel_file_find(out, k->name) != k) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: there are two kernels %s", k->name);
        }
        hd_status status = kernel_file_parse_params(p, k, params);
        if (status != HD_OK) {
            return status;
        }
        params += k->n_params;
        p += (size_t)k->n_params * PARAM_BYTES;
    }
    if (p != end) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: %zu bytes too many after the kernels", (size_t)(end - p));
    }
    return HD_OK;
}

static hd_status kernel_file_parse_globals(const unsigned char *p, size_t bytes, hdi_kernel_file *out)
{
    uint32_t n = bytes < 8 ? 0 : kernel_file_get32(p);
    if (n == 0 || n > HDI_KERNEL_FILE_GLOBALS_MAX || kernel_file_get32(p + 4) != 0 ||
        bytes - 8 != n * (size_t)GLOBAL_BYTES) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: the list of variables is damaged (%u variables in %zu bytes)", n,
                        bytes);
    }
    out->globals = calloc(n, sizeof *out->globals);
    if (out->globals == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "kernel file: no memory for the descriptions of %u variables", n);
    }
    p += 8;
    for (uint32_t i = 0; i < n; i++, p += GLOBAL_BYTES) {
        uint64_t size = kernel_file_get64(p + NAME_BYTES);
        uint32_t constant = kernel_file_get32(p + NAME_BYTES + 8);
        if (!kernel_file_name_is_good(p, NAME_BYTES) || size == 0 || constant > 1 ||
            kernel_file_get32(p + NAME_BYTES + 12) != 0) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: the description of variable %u of %u is damaged", i, n);
        }
        out->globals[i] = (hdi_kernel_global){(const char *)p, size, constant != 0};
        out->n_globals = i + 1;
        if (hdi_kernel_file_find_global(out, (const char *)p) != &out->globals[i]) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: there are two variables %s", (const char *)p);
        }
    }
    return HD_OK;
}

static hd_status kernel_file_parse_section(const unsigned char *image, size_t bytes, const unsigned char *entry,
                                           hdi_kernel_file *out)
{
    uint32_t type = kernel_file_get32(entry), machine = kernel_file_get32(entry + 4);
    uint64_t offset = kernel_file_get64(entry + 8), size = kernel_file_get64(entry + 16);
    if (offset % ALIGNMENT != 0 || offset > bytes || size > bytes - offset || size == 0) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "kernel file: a section of %llu bytes at offset %llu is not inside its %zu bytes",
                        (unsigned long long)size, (unsigned long long)offset, bytes);
    }
    const unsigned char *p = image + offset;
    switch (type) {
    case SECTION_PTX:
        if (out->ptx != NULL || memchr(p, 0, size) != p + size - 1) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: the PTX is %s",
                            out->ptx != NULL ? "there twice" : "not one text with a zero at its end");
        }
        out->ptx = (const char *)p;
        out->ptx_bytes = size;
        return HD_OK;
    case SECTION_CPU: {
        if (out->n_cpu == HDI_KERNEL_FILE_CPUS_MAX) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: code for more than %d machines", HDI_KERNEL_FILE_CPUS_MAX);
        }
        uint32_t found = 0;
        hd_status status = hdi_elf_check_shared(p, size, &found);
        if (status == HD_OK && found != machine) {
            status = hdi_fail(HD_ERROR_IMAGE, "kernel file: the code for machine %u is for machine %u", machine, found);
        }
        if (status == HD_OK) {
            out->cpu[out->n_cpu++] = (hdi_kernel_cpu){p, size, machine};
        }
        return status;
    }
    case SECTION_KERNELS:
        if (out->kernels != NULL) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: the list of kernels is there twice");
        }
        return kernel_file_parse_kernels(p, size, out);
    case SECTION_GLOBALS:
        if (out->globals != NULL) {
            return hdi_fail(HD_ERROR_IMAGE, "kernel file: the list of variables is there twice");
        }
        return kernel_file_parse_globals(p, size, out);
    default:
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: unknown section type %u", type);
    }
}

hd_status hdi_kernel_file_parse(const void *image, size_t bytes, hdi_kernel_file *out)
{
    const unsigned char *p = image;
    if (!hdi_kernel_file_detect(image, bytes)) {
        return hdi_fail(HD_ERROR_IMAGE, "this is not a kernel file: it does not begin with HDKF");
    }
    if (bytes < HEADER_BYTES) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: only %zu bytes, cut off?", bytes);
    }
    if (kernel_file_get32(p + 4) != VERSION) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: version %u, this library reads version %u; compile it again",
                        kernel_file_get32(p + 4), VERSION);
    }
    if (kernel_file_get64(p + 8) != bytes) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: %zu bytes, but its head states %llu; cut off?", bytes,
                        (unsigned long long)kernel_file_get64(p + 8));
    }
    if (kernel_file_get64(p + 16) != kernel_file_checksum(p, bytes)) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: damaged (its checksum does not match)");
    }
    uint32_t n = kernel_file_get32(p + 24);
    if (n > SECTIONS_MAX || n * (size_t)SECTION_BYTES > bytes - HEADER_BYTES || kernel_file_get32(p + 28) != 0) {
        return hdi_fail(HD_ERROR_IMAGE, "kernel file: damaged header (%u sections)", n);
    }
    hdi_kernel_file file;
    memset(&file, 0, sizeof file);
    hd_status status = HD_OK;
    for (uint32_t i = 0; i < n && status == HD_OK; i++) {
        status = kernel_file_parse_section(p, bytes, p + HEADER_BYTES + i * (size_t)SECTION_BYTES, &file);
    }
    if (status == HD_OK && (file.kernels == NULL || (file.ptx == NULL && file.n_cpu == 0))) {
        status =
            hdi_fail(HD_ERROR_IMAGE, "kernel file: it has no %s", file.kernels == NULL ? "list of kernels" : "code");
    }
    if (status != HD_OK) {
        hdi_kernel_file_release(&file);
        return status;
    }
    *out = file;
    return HD_OK;
}

void hdi_kernel_file_release(hdi_kernel_file *file)
{
    free(file->kernels);
    free(file->globals);
    memset(file, 0, sizeof *file);
}

const hdi_kernel_entry *hdi_kernel_file_find(const hdi_kernel_file *file, const char *name)
{
    for (uint32_t i = 0; i < file->n_kernels; i++) {
        if (strcmp(file->kernels[i].name, name) == 0) {
            return &file->kernels[i];
        }
    }
    return NULL;
}

const hdi_kernel_global *hdi_kernel_file_find_global(const hdi_kernel_file *file, const char *name)
{
    for (uint32_t i = 0; i < file->n_globals; i++) {
        if (strcmp(file->globals[i].name, name) == 0) {
            return &file->globals[i];
        }
    }
    return NULL;
}

const hdi_kernel_cpu *hdi_kernel_file_native(const hdi_kernel_file *file)
{
    for (uint32_t i = 0; i < file->n_cpu; i++) {
        if (file->cpu[i].machine == HDI_ELF_NATIVE) {
            return &file->cpu[i];
        }
    }
    return NULL;
}

/* The name of an ELF e_machine, such as "x86-64", for messages. */
static const char *kernel_file_machine_name(uint32_t machine)
{
    switch (machine) {
    case HDI_ELF_X86_64:
        return "x86-64";
    case HDI_ELF_AARCH64:
        return "aarch64";
    case HDI_ELF_RISCV:
        return "riscv64";
    case HDI_ELF_PPC64:
        return "ppc64";
    default:
        return "another machine";
    }
}

/* Reserves room for a section at *end, and writes its entry into the table. Returns the place of
 * its bytes. If `image` is NULL, the function only counts, and returns NULL. */
static unsigned char *kernel_file_place(unsigned char *image, uint32_t *index, size_t *end, uint32_t type,
                                        uint32_t machine, size_t bytes)
{
    size_t offset = (*end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *end = offset + bytes;
    uint32_t i = (*index)++;
    if (image == NULL) {
        return NULL;
    }
    unsigned char *entry = image + HEADER_BYTES + i * (size_t)SECTION_BYTES;
    kernel_file_put32(entry, type);
    kernel_file_put32(entry + 4, machine);
    kernel_file_put64(entry + 8, offset);
    kernel_file_put64(entry + 16, bytes);
    return image + offset;
}

static void kernel_file_write_globals(const hdi_kernel_file *file, unsigned char *p)
{
    kernel_file_put32(p, file->n_globals);
    p += 8;
    for (uint32_t i = 0; i < file->n_globals; i++, p += GLOBAL_BYTES) {
        const hdi_kernel_global *g = &file->globals[i];
        memcpy(p, g->name, strlen(g->name));
        kernel_file_put64(p + NAME_BYTES, g->bytes);
        kernel_file_put32(p + NAME_BYTES + 8, g->constant);
    }
}

/* Computes the layout, and writes the image unless `image` is NULL. Returns the size. */
static size_t kernel_file_lay_out(const hdi_kernel_file *file, unsigned char *image)
{
    uint32_t n_sections = file->n_cpu + 1 + (file->ptx != NULL) + (file->n_globals != 0), index = 0;
    size_t end = HEADER_BYTES + n_sections * (size_t)SECTION_BYTES;
    size_t bytes = 8;
    for (uint32_t i = 0; i < file->n_kernels; i++) {
        bytes += KERNEL_BYTES + file->kernels[i].n_params * (size_t)PARAM_BYTES;
    }
    unsigned char *p = kernel_file_place(image, &index, &end, SECTION_KERNELS, 0, bytes);
    if (p != NULL) {
        kernel_file_put32(p, file->n_kernels);
        p += 8;
        for (uint32_t i = 0; i < file->n_kernels; i++) {
            const hdi_kernel_entry *k = &file->kernels[i];
            memcpy(p, k->name, strlen(k->name));
            kernel_file_put32(p + NAME_BYTES, k->n_params);
            kernel_file_put32(p + NAME_BYTES + 4, k->argument_bytes);
            kernel_file_put32(p + NAME_BYTES + 8, k->static_shared_bytes);
            kernel_file_put32(p + NAME_BYTES + 12, k->max_threads);
            p += KERNEL_BYTES;
            for (uint32_t j = 0; j < k->n_params; j++, p += PARAM_BYTES) {
                const hdi_kernel_param *q = &k->params[j];
                memcpy(p, q->name, strlen(q->name));
                kernel_file_put32(p + PARAM_NAME_BYTES, q->kind);
                kernel_file_put32(p + PARAM_NAME_BYTES + 4, q->access | q->element << 8);
                kernel_file_put32(p + PARAM_NAME_BYTES + 8, q->offset);
                kernel_file_put32(p + PARAM_NAME_BYTES + 12, q->size);
            }
        }
    }
    if (file->n_globals != 0) {
        p = kernel_file_place(image, &index, &end, SECTION_GLOBALS, 0, 8 + file->n_globals * (size_t)GLOBAL_BYTES);
        if (p != NULL) {
            kernel_file_write_globals(file, p);
        }
    }
    if (file->ptx != NULL) {
        p = kernel_file_place(image, &index, &end, SECTION_PTX, 0, file->ptx_bytes);
        if (p != NULL) {
            memcpy(p, file->ptx, file->ptx_bytes);
        }
    }
    for (uint32_t i = 0; i < file->n_cpu; i++) {
        p = kernel_file_place(image, &index, &end, SECTION_CPU, file->cpu[i].machine, file->cpu[i].bytes);
        if (p != NULL) {
            memcpy(p, file->cpu[i].image, file->cpu[i].bytes);
        }
    }
    if (image != NULL) {
        memcpy(image, "HDKF", 4);
        kernel_file_put32(image + 4, VERSION);
        kernel_file_put64(image + 8, end);
        kernel_file_put32(image + 24, n_sections);
        kernel_file_put64(image + 16, kernel_file_checksum(image, end));
    }
    return end;
}

hd_status hdi_kernel_file_write(const hdi_kernel_file *file, void **out, size_t *out_bytes)
{
    if (file->n_kernels > HDI_KERNEL_FILE_KERNELS_MAX || file->n_cpu > HDI_KERNEL_FILE_CPUS_MAX ||
        file->n_globals > HDI_KERNEL_FILE_GLOBALS_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel file: %u kernels, %u variables and %u machines; at most %d, %d and %d",
                        file->n_kernels, file->n_globals, file->n_cpu, HDI_KERNEL_FILE_KERNELS_MAX,
                        HDI_KERNEL_FILE_GLOBALS_MAX, HDI_KERNEL_FILE_CPUS_MAX);
    }
    for (uint32_t i = 0; i < file->n_kernels; i++) {
        const hdi_kernel_entry *k = &file->kernels[i];
        bool fits = strlen(k->name) < NAME_BYTES && k->n_params <= HDI_KERNEL_PARAMS_MAX;
        for (uint32_t j = 0; fits && j < k->n_params; j++) {
            fits = strlen(k->params[j].name) < PARAM_NAME_BYTES;
        }
        if (!fits) {
            return hdi_fail(HD_ERROR_LIMIT, "kernel file: kernel %s has too long a name or too many parameters",
                            k->name);
        }
    }
    size_t bytes = kernel_file_lay_out(file, NULL);
    unsigned char *image = calloc(1, bytes);
    if (image == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "kernel file: no memory for %s", HDI_BYTES(bytes));
    }
    kernel_file_lay_out(file, image);
    *out = image;
    *out_bytes = bytes;
    return HD_OK;
}

/* ---- building ---- */

/* The most static shared memory that a kernel may declare, on any GPU: the driver loads no code
 * with more. */
enum { SHARED_BYTES_MAX = 49152 };

static bool kernel_file_has_same_globals(const hdi_kernel_file *a, const hdi_kernel_file *b)
{
    bool equal = a->n_globals == b->n_globals;
    for (uint32_t i = 0; equal && i < a->n_globals; i++) {
        const hdi_kernel_global *g = &a->globals[i], *other = hdi_kernel_file_find_global(b, g->name);
        equal = other != NULL && g->bytes == other->bytes && g->constant == other->constant;
    }
    return equal;
}

/* Checks that the CPU code's own description of its kernels is equal to the description that goes
 * into the file. */
static hd_status kernel_file_check_same_kernels(const hdi_kernel_file *file, const hdi_kernel_cpu *cpu)
{
    hdi_kernel_file other;
    memset(&other, 0, sizeof other);
    hd_status status = hdi_elf_describe(cpu->image, cpu->bytes, &other);
    if (status != HD_OK) {
        return status;
    }
    bool equal = other.n_kernels == file->n_kernels && kernel_file_has_same_globals(file, &other);
    for (uint32_t i = 0; equal && i < file->n_kernels; i++) {
        const hdi_kernel_entry *a = &file->kernels[i], *b = hdi_kernel_file_find(&other, a->name);
        equal = b != NULL && a->n_params == b->n_params && a->argument_bytes == b->argument_bytes &&
                a->max_threads == b->max_threads;
        for (uint32_t j = 0; equal && j < a->n_params; j++) {
            const hdi_kernel_param *p = &a->params[j], *q = &b->params[j];
            equal = strcmp(p->name, q->name) == 0 && p->kind == q->kind && p->access == q->access &&
                    p->element == q->element && p->offset == q->offset && p->size == q->size;
        }
    }
    hdi_kernel_file_release(&other);
    return equal ? HD_OK
                 : hdi_fail(HD_ERROR_IMAGE,
                            "the CPU code for %s is not made from the source that the description is from",
                            kernel_file_machine_name(cpu->machine));
}

/* Checks that the PTX contains every described variable, of the same size and in the same
 * memory. */
static hd_status kernel_file_check_ptx_variables(const hdi_kernel_file *file, const hdi_ptx *ptx)
{
    for (uint32_t i = 0; i < file->n_globals; i++) {
        const hdi_kernel_global *g = &file->globals[i];
        const hdi_ptx_variable *v = hdi_ptx_find_variable(ptx, g->name);
        if (v == NULL) {
            return hdi_fail(HD_ERROR_IMAGE, "the PTX has no variable %s; its type needs a name", g->name);
        }
        if (v->bytes != g->bytes || v->constant != g->constant) {
            return hdi_fail(HD_ERROR_IMAGE, "variable %s has %llu bytes%s in the source, %llu%s in the PTX", g->name,
                            (unsigned long long)g->bytes, g->constant ? ", constant," : "",
                            (unsigned long long)v->bytes, v->constant ? ", constant," : "");
        }
    }
    return HD_OK;
}

/* Checks that the PTX contains every described kernel, with the same parameters. Copies
 * static_shared_bytes from the PTX, since the description in the CPU code lacks it. */
static hd_status kernel_file_check_ptx(hdi_kernel_file *file)
{
    hdi_ptx ptx;
    hd_status status = hdi_ptx_scan(file->ptx, file->ptx_bytes, &ptx);
    if (status != HD_OK) {
        return status;
    }
    for (uint32_t i = 0; status == HD_OK && i < file->n_kernels; i++) {
        hdi_kernel_entry *k = &file->kernels[i];
        const hdi_ptx_entry *e = hdi_ptx_find(&ptx, k->name);
        if (e == NULL) {
            status = hdi_fail(HD_ERROR_IMAGE, "the PTX has no kernel %s", k->name);
        } else if (e->n_params != k->n_params) {
            status = hdi_fail(HD_ERROR_IMAGE, "kernel %s has %u parameters in the source, %u in the PTX", k->name,
                              k->n_params, e->n_params);
        } else if (e->static_shared_bytes > SHARED_BYTES_MAX) {
            status = hdi_fail(HD_ERROR_IMAGE,
                              "kernel %s has %u bytes of shared memory of its own, a GPU has %d for that; use "
                              "HD_DYNAMIC_SHARED",
                              k->name, e->static_shared_bytes, SHARED_BYTES_MAX);
        } else {
            k->static_shared_bytes = e->static_shared_bytes;
            for (uint32_t j = 0; status == HD_OK && j < k->n_params; j++) {
                if (e->params[j].offset != k->params[j].offset || e->params[j].size != k->params[j].size) {
                    status =
                        hdi_fail(HD_ERROR_IMAGE,
                                 "kernel %s: parameter %s is %u bytes at offset %u in the source, %u at %u in the PTX",
                                 k->name, k->params[j].name, k->params[j].size, k->params[j].offset, e->params[j].size,
                                 e->params[j].offset);
                }
            }
        }
    }
    status = status ? status : kernel_file_check_ptx_variables(file, &ptx);
    hdi_ptx_release(&ptx);
    return status;
}

static hd_status kernel_file_build_image(const hd_kernel_file_parts *parts, hdi_kernel_file *file, void **out,
                                         size_t *out_bytes)
{
    for (size_t i = 0; i < parts->n_cpu; i++) {
        hdi_kernel_cpu *cpu = &file->cpu[i];
        cpu->image = parts->cpu[i];
        cpu->bytes = parts->cpu_bytes[i];
        hd_status status = hdi_elf_check_shared(cpu->image, cpu->bytes, &cpu->machine);
        if (status != HD_OK) {
            return status;
        }
        for (size_t j = 0; j < i; j++) {
            if (file->cpu[j].machine == cpu->machine) {
                return hdi_fail(HD_ERROR_ARGUMENT, "two CPU images are for %s", kernel_file_machine_name(cpu->machine));
            }
        }
        file->n_cpu++;
    }
    bool own = parts->description != NULL;
    hd_status status = hdi_elf_describe(own ? parts->description : parts->cpu[0],
                                        own ? parts->description_bytes : parts->cpu_bytes[0], file);
    for (size_t i = own ? 0 : 1; status == HD_OK && i < parts->n_cpu; i++) {
        status = kernel_file_check_same_kernels(file, &file->cpu[i]);
    }
    if (status == HD_OK && file->ptx != NULL) {
        status = kernel_file_check_ptx(file);
    }
    void *image = NULL;
    size_t bytes = 0;
    if (status == HD_OK) {
        status = hdi_kernel_file_write(file, &image, &bytes);
    }
    if (status == HD_OK) {
        hdi_kernel_file made;
        status = hdi_kernel_file_parse(image, bytes, &made);
        if (status == HD_OK) {
            hdi_kernel_file_release(&made);
            *out = image;
            *out_bytes = bytes;
        } else {
            free(image);
        }
    }
    return status;
}

hd_status hd_kernel_file_build(const hd_kernel_file_parts *parts, void **out, size_t *out_bytes)
{
    HDI_UNCANCELLED;
    HDI_CALL();
    if (parts == NULL || out == NULL || out_bytes == NULL) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", parts == NULL ? "parts" : out == NULL ? "out" : "out_bytes");
    }
    hd_kernel_file_parts room;
    parts = HDI_SIZED_IN(hd_kernel_file_parts, parts, &room);
    if (parts == NULL) {
        return HD_ERROR_ARGUMENT;
    }
    if (parts->n_cpu > HDI_KERNEL_FILE_CPUS_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "code for %zu machines; at most %d", parts->n_cpu, HDI_KERNEL_FILE_CPUS_MAX);
    }
    if ((parts->ptx == NULL && parts->n_cpu == 0) || (parts->description == NULL && parts->n_cpu == 0) ||
        (parts->n_cpu != 0 && (parts->cpu == NULL || parts->cpu_bytes == NULL))) {
        return hdi_fail(HD_ERROR_ARGUMENT, "it needs PTX or CPU code, and CPU code or a description");
    }
    hdi_kernel_file file;
    memset(&file, 0, sizeof file);
    char *ptx = NULL;
    if (parts->ptx != NULL) {
        const char *zero = memchr(parts->ptx, 0, parts->ptx_bytes);
        size_t n = zero != NULL ? (size_t)(zero - parts->ptx) : parts->ptx_bytes;
        if (!hdi_ptx_detect(parts->ptx, n)) {
            return hdi_fail(HD_ERROR_IMAGE, "the PTX does not begin with .version");
        }
        ptx = malloc(n + 1);
        if (ptx == NULL) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for %s of PTX", HDI_BYTES(n + 1));
        }
        memcpy(ptx, parts->ptx, n);
        ptx[n] = 0;
        file.ptx = ptx;
        file.ptx_bytes = n + 1;
    }
    hd_status status = kernel_file_build_image(parts, &file, out, out_bytes);
    hdi_kernel_file_release(&file);
    free(ptx);
    return status;
}
