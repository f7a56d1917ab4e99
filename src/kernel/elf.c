/* elf.c - the little of ELF that kernel files need, read from bytes that may be damaged.
 *
 * Threads: any; no state. Locks: none.
 * Always: no byte is read before it is known to be inside the image.
 */
#include "kernel/elf.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <heddle/kernel.h>
#include "base/error.h"

#define SECTION_NAME "hd_kernels"

static bool inside(uint64_t offset, uint64_t size, size_t bytes)
{
    return offset <= bytes && size <= bytes - offset;
}

static hd_status read_header(const void *image, size_t bytes, Elf64_Ehdr *out)
{
    if (bytes < sizeof *out || memcmp(image, ELFMAG, SELFMAG) != 0) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: not an ELF file");
    }
    memcpy(out, image, sizeof *out);
    if (out->e_ident[EI_CLASS] != ELFCLASS64 || out->e_ident[EI_DATA] != ELFDATA2LSB) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: not a 64-bit little-endian ELF file");
    }
    if (out->e_phnum != 0 && (out->e_phentsize != sizeof(Elf64_Phdr) ||
                              !inside(out->e_phoff, (uint64_t)out->e_phnum * sizeof(Elf64_Phdr), bytes))) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF program headers are damaged or cut off");
    }
    if (out->e_shnum != 0 && (out->e_shentsize != sizeof(Elf64_Shdr) ||
                              !inside(out->e_shoff, (uint64_t)out->e_shnum * sizeof(Elf64_Shdr), bytes))) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF section headers are damaged or cut off");
    }
    return HD_OK;
}

hd_status hdi_elf_check_shared(const void *image, size_t bytes, uint32_t *machine)
{
    Elf64_Ehdr header;
    hd_status status = read_header(image, bytes, &header);
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
            (!inside(p.p_offset, p.p_filesz, bytes) || p.p_filesz > p.p_memsz)) {
            return hdi_fail(HD_ERROR_IMAGE, "CPU code: an ELF segment is damaged or cut off");
        }
    }
    *machine = header.e_machine;
    return HD_OK;
}

/* The section's bytes; *section stays NULL where there is none. */
static hd_status find_section(const char *image, size_t bytes, const char **section, size_t *section_bytes)
{
    Elf64_Ehdr header;
    hd_status status = read_header(image, bytes, &header);
    if (status != HD_OK) {
        return status;
    }
    if (header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "CPU code: it has no section names, so the kernels' descriptions cannot be read");
    }
    Elf64_Shdr names, s;
    memcpy(&names, image + header.e_shoff + header.e_shstrndx * sizeof names, sizeof names);
    if (!inside(names.sh_offset, names.sh_size, bytes)) {
        return hdi_fail(HD_ERROR_IMAGE, "CPU code: the ELF section names are damaged or cut off");
    }
    for (unsigned i = 0; i < header.e_shnum; i++) {
        memcpy(&s, image + header.e_shoff + i * sizeof s, sizeof s);
        if (s.sh_type != SHT_PROGBITS || s.sh_name >= names.sh_size ||
            names.sh_size - s.sh_name < sizeof SECTION_NAME ||
            memcmp(image + names.sh_offset + s.sh_name, SECTION_NAME, sizeof SECTION_NAME) != 0) {
            continue;
        }
        if (!inside(s.sh_offset, s.sh_size, bytes)) {
            return hdi_fail(HD_ERROR_IMAGE, "CPU code: the section " SECTION_NAME " is damaged or cut off");
        }
        *section = image + s.sh_offset;
        *section_bytes = s.sh_size;
        return HD_OK;
    }
    return HD_OK;
}

/* The next record at or after *at, skipping padding; false at the end. */
static bool next_record(const char *section, size_t bytes, size_t *at, hd_cpu_kernel *out)
{
    for (; *at <= bytes && bytes - *at >= sizeof *out; *at += 8) {
        memcpy(out, section + *at, sizeof *out);
        if (out->magic == HD_CPU_KERNEL_MAGIC) {
            return true;
        }
    }
    return false;
}

static hd_status check_record(const hd_cpu_kernel *k, const char *record, size_t bytes)
{
    /* the parameters follow the structure, with an unused one at the end */
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
    hd_status status = find_section(image, bytes, &section, &section_bytes);
    if (status != HD_OK) {
        return status;
    }
    hd_cpu_kernel k;
    for (; next_record(section, section_bytes, &at, &k); at += k.record_bytes) {
        status = check_record(&k, section + at, section_bytes - at);
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
    for (size_t i = 0; next_record(section, section_bytes, &at, &k); at += k.record_bytes, i++) {
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
            *params++ = (hdi_kernel_param){from + offsetof(hd_cpu_param, name), p.kind, p.access, p.offset, p.size};
        }
    }
    out->kernels = kernels;
    out->n_kernels = (uint32_t)n_kernels;
    return HD_OK;
}
