/* cubin.c - the kernels and variables of a cubin, an ELF file of GPU code.
 *
 * The code reads:
 * - The symbols. A kernel is a function with a mark in st_other. A texture, surface or sampler
 *   reference is a symbol of its own type. A function without a section is missing, unless every
 *   driver provides it. A variable is an object in a section whose name begins with .nv.global or
 *   .nv.constant3.
 * - The section .nv.info.KERNEL, a list of attributes: u8 format, u8 attribute, u16 value. With
 *   format 4 the value is the number of bytes that follow.
 * - The attributes of a parameter: u32 0, u16 number, u16 offset, and the size: u32, or in the
 *   older form the upper 14 bits of a u32.
 *
 * Threads: any; no state. Locks: none.
 * Always: as in listing.h.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/number.h"
#include "kernel/listing.h"

enum {
    ENTRY = 0x10, /* in st_other: the mark of a kernel */
    TEXTURE = 10, /* types of symbols */
    SAMPLER = 11,
    SURFACE = 12,
    INFO = 0x70000000, /* the type of the sections .nv.info */
    FORMAT_BYTES = 4,
    PARAM = 0x17, /* attributes */
    PARAM_BYTES = 0x19,
    PARAM_WIDE = 0x45
};

typedef struct cubin {
    const char *at;
    size_t bytes;
    Elf64_Ehdr header;
    Elf64_Shdr symbols, names, section_names;
    uint32_t *info; /* for each section of code, the section of its attributes; 0: none */
} cubin;

static Elf64_Shdr cubin_section(const cubin *c, uint32_t i)
{
    Elf64_Shdr s;
    memcpy(&s, c->at + c->header.e_shoff + (uint64_t)i * sizeof s, sizeof s);
    return s;
}

/* Reads the headers. False: they are damaged, or the file is of another kind. */
static bool cubin_open(cubin *c)
{
    if (c->bytes < sizeof c->header) {
        return false;
    }
    memcpy(&c->header, c->at, sizeof c->header);
    const Elf64_Ehdr *h = &c->header;
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != EM_CUDA ||
        h->e_shnum == 0 || h->e_shentsize != sizeof(Elf64_Shdr) ||
        !hdi_is_inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), c->bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < h->e_shnum; i++) {
        Elf64_Shdr s = cubin_section(c, i);
        if (s.sh_type == SHT_SYMTAB && s.sh_link < h->e_shnum) {
            c->symbols = s;
            c->names = cubin_section(c, s.sh_link);
        }
    }
    if (h->e_shstrndx < h->e_shnum) {
        c->section_names = cubin_section(c, h->e_shstrndx);
        if (!hdi_is_inside(c->section_names.sh_offset, c->section_names.sh_size, c->bytes)) {
            c->section_names.sh_size = 0;
        }
    }
    return c->symbols.sh_type == SHT_SYMTAB && hdi_is_inside(c->symbols.sh_offset, c->symbols.sh_size, c->bytes) &&
           hdi_is_inside(c->names.sh_offset, c->names.sh_size, c->bytes);
}

/* False: no memory. */
static bool cubin_find_info(cubin *c)
{
    c->info = calloc(c->header.e_shnum, sizeof *c->info);
    for (uint32_t i = 0; c->info && i < c->header.e_shnum; i++) {
        Elf64_Shdr s = cubin_section(c, i);
        if (s.sh_type == INFO && s.sh_info < c->header.e_shnum && hdi_is_inside(s.sh_offset, s.sh_size, c->bytes)) {
            c->info[s.sh_info] = i;
        }
    }
    return c->info != NULL;
}

/* One attribute of a section. */
typedef struct attribute {
    uint8_t format, what;
    uint16_t value;
    const char *bytes; /* with FORMAT_BYTES, `value` bytes */
} attribute;

/* Takes the next attribute. False: none is left, or it is cut off. */
static bool cubin_next_attribute(const char **at, const char *end, attribute *out)
{
    if (end - *at < 4) {
        return false;
    }
    memcpy(&out->format, *at, 1);
    memcpy(&out->what, *at + 1, 1);
    memcpy(&out->value, *at + 2, 2);
    out->bytes = *at + 4;
    *at += 4;
    if (out->format == FORMAT_BYTES) {
        if (end - *at < out->value) {
            return false;
        }
        *at += out->value;
    }
    return true;
}

/* Reads a parameter. False: the attribute does not describe a parameter. */
static bool cubin_read_param(const attribute *a, uint16_t *number, hdi_listed_param *out)
{
    if (a->format != FORMAT_BYTES || a->value < 12 || (a->what != PARAM && a->what != PARAM_WIDE)) {
        return false;
    }
    uint16_t offset;
    uint32_t size;
    memcpy(number, a->bytes + 4, sizeof *number);
    memcpy(&offset, a->bytes + 6, sizeof offset);
    memcpy(&size, a->bytes + 8, sizeof size);
    *out = (hdi_listed_param){.offset = offset, .size = a->what == PARAM ? size >> 18 : size};
    return true;
}

/* Describes a kernel's parameters by a section of attributes. If the section is not complete, the
 * kernel gets no description. */
static hd_status cubin_describe_kernel(const cubin *c, uint32_t of, hdi_listed *kernel)
{
    Elf64_Shdr s = cubin_section(c, of);
    const char *from = c->at + s.sh_offset, *end = from + s.sh_size;
    attribute a;
    hdi_listed_param p;
    uint16_t number;
    uint32_t n = 0, found = 0, bytes = 0;
    for (const char *at = from; cubin_next_attribute(&at, end, &a);) {
        if (cubin_read_param(&a, &number, &p)) {
            n = number + 1u > n ? number + 1u : n;
            found++;
        } else if (a.what == PARAM_BYTES && a.format != FORMAT_BYTES) {
            bytes = a.value;
        }
    }
    if (n != found || n > HDI_LISTED_PARAMS_MAX || (n == 0 && bytes != 0)) {
        return HD_OK;
    }
    hdi_listed_param *params = calloc(n ? n : 1, sizeof *params);
    if (!params) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of kernels");
    }
    bool whole = true;
    for (const char *at = from; cubin_next_attribute(&at, end, &a);) {
        if (cubin_read_param(&a, &number, &p)) {
            whole = whole && p.size && p.size <= UINT16_MAX && !params[number].size;
            params[number] = p;
        }
    }
    if (whole) {
        hdi_listing_describe(kernel, params, n);
    } else {
        free(params);
    }
    return HD_OK;
}

/* True for the functions that every driver provides: CUDA C++'s printf, malloc, free and assert
 * call them. */
static bool cubin_driver_has(const char *name)
{
    static const char *const names[] = {"vprintf", "malloc", "free", "__assertfail", "__assert_fail"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* True if a message can print the name in one line. */
static bool cubin_is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] <= ' ' || name[i] == 127) {
            return false;
        }
    }
    return length > 0;
}

/* True if the name of a section begins with `text`. */
static bool cubin_section_begins(const cubin *c, uint32_t i, const char *text)
{
    Elf64_Shdr s = cubin_section(c, i);
    size_t n = strlen(text), room = (size_t)c->section_names.sh_size;
    return s.sh_name < room && n <= room - s.sh_name &&
           memcmp(c->at + c->section_names.sh_offset + s.sh_name, text, n) == 0;
}

static hd_status cubin_add_object(hdi_listing *listing, const cubin *c, const Elf64_Sym *symbol, const char *name,
                                  size_t length)
{
    if (symbol->st_shndx >= c->header.e_shnum || symbol->st_size == 0 || !cubin_is_name(name, length)) {
        return HD_OK;
    }
    bool constant = cubin_section_begins(c, symbol->st_shndx, ".nv.constant3");
    return constant || cubin_section_begins(c, symbol->st_shndx, ".nv.global")
               ? hdi_listing_variable(listing, name, length, constant)
               : HD_OK;
}

static hd_status cubin_add_symbol(hdi_listing *listing, const cubin *c, const Elf64_Sym *symbol, const char *name,
                                  size_t length)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    if (type == TEXTURE || type == SAMPLER || type == SURFACE) {
        if (!listing->texture[0]) {
            hdi_listing_name(listing->texture, name, length);
        }
    } else if (symbol->st_shndx == SHN_UNDEF) {
        if (type == STT_FUNC && bind == STB_GLOBAL && !cubin_driver_has(name) && !listing->missing[0]) {
            hdi_listing_name(listing->missing, name, length);
        }
    } else if (type == STT_FUNC && (symbol->st_other & ENTRY) && cubin_is_name(name, length)) {
        hdi_listed *kernel = hdi_listing_kernel(listing, name, length);
        if (!kernel) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of kernels");
        }
        uint32_t of = symbol->st_shndx < c->header.e_shnum ? c->info[symbol->st_shndx] : 0;
        return of && !kernel->described ? cubin_describe_kernel(c, of, kernel) : HD_OK;
    } else if (type == STT_OBJECT) {
        return cubin_add_object(listing, c, symbol, name, length);
    }
    return HD_OK;
}

hd_status hdi_listing_add_cubin(hdi_listing *listing, const void *image, size_t bytes)
{
    cubin c = {.at = image, .bytes = bytes};
    if (!cubin_open(&c)) {
        hdi_listing_unread(listing, "a cubin is damaged, or of a kind that is not known here");
        return HD_OK;
    }
    if (!cubin_find_info(&c)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of kernels");
    }
    listing->relocatable = listing->relocatable || c.header.e_type == ET_REL;
    const char *names = c.at + c.names.sh_offset;
    hd_status status = HD_OK;
    for (uint64_t i = 0; i < c.symbols.sh_size / sizeof(Elf64_Sym) && !status; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, c.at + c.symbols.sh_offset + i * sizeof symbol, sizeof symbol);
        const char *end = symbol.st_name < c.names.sh_size
                              ? memchr(names + symbol.st_name, 0, c.names.sh_size - symbol.st_name)
                              : NULL;
        if (end) {
            status =
                cubin_add_symbol(listing, &c, &symbol, names + symbol.st_name, (size_t)(end - names) - symbol.st_name);
        } else {
            hdi_listing_unread(listing, "the names in a cubin are damaged");
        }
    }
    free(c.info);
    return status;
}
