/* build.c - makes a kernel file from PTX and CPU code, and checks that the parts match (heddle/kernel_file.h).
 *
 * Threads: any; no state.
 * Locks: none.
 * Blocking: none.
 * Always: hdi_kernel_file_parse accepts every file that is returned.
 */
#include <heddle/kernel_file.h>

#include <stdlib.h>
#include <string.h>
#include "base/presence.h"
#include "base/amount.h"
#include "base/error.h"
#include "base/sized.h"
#include "kernel/elf.h"
#include "kernel/file.h"
#include "kernel/ptx.h"

/* That a kernel may declare, on any GPU: the driver loads no code with more. */
enum { SHARED_BYTES_MAX = 49152 };

/* The CPU code contains a description of its kernels. Checks that it is equal to the one that goes into the file. */
static hd_status check_same_kernels(const hdi_kernel_file *file, const hdi_kernel_cpu *cpu)
{
    hdi_kernel_file other;
    memset(&other, 0, sizeof other);
    hd_status status = hdi_elf_describe(cpu->image, cpu->bytes, &other);
    if (status != HD_OK) {
        return status;
    }
    bool equal = other.n_kernels == file->n_kernels;
    for (uint32_t i = 0; equal && i < file->n_kernels; i++) {
        const hdi_kernel_entry *a = &file->kernels[i], *b = hdi_kernel_file_find(&other, a->name);
        equal = b != NULL && a->n_params == b->n_params && a->argument_bytes == b->argument_bytes &&
                a->max_threads == b->max_threads;
        for (uint32_t j = 0; equal && j < a->n_params; j++) {
            const hdi_kernel_param *p = &a->params[j], *q = &b->params[j];
            equal = strcmp(p->name, q->name) == 0 && p->kind == q->kind && p->access == q->access &&
                    p->offset == q->offset && p->size == q->size;
        }
    }
    hdi_kernel_file_release(&other);
    return equal ? HD_OK
                 : hdi_fail(HD_ERROR_IMAGE,
                            "the CPU code for %s is not made from the source that the description is from",
                            hdi_machine_name(cpu->machine));
}

/* Checks that the PTX has every described kernel, with the same parameters. Copies static_shared_bytes from the PTX,
 * since the source does not contain it. */
static hd_status check_ptx(hdi_kernel_file *file)
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
    hdi_ptx_release(&ptx);
    return status;
}

static hd_status build(const hd_kernel_file_parts *parts, hdi_kernel_file *file, void **out, size_t *out_bytes)
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
                return hdi_fail(HD_ERROR_ARGUMENT, "two CPU images are for %s", hdi_machine_name(cpu->machine));
            }
        }
        file->n_cpu++;
    }
    bool own = parts->description != NULL;
    hd_status status = hdi_elf_describe(own ? parts->description : parts->cpu[0],
                                        own ? parts->description_bytes : parts->cpu_bytes[0], file);
    for (size_t i = own ? 0 : 1; status == HD_OK && i < parts->n_cpu; i++) {
        status = check_same_kernels(file, &file->cpu[i]);
    }
    if (status == HD_OK && file->ptx != NULL) {
        status = check_ptx(file);
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
    hd_status status = build(parts, &file, out, out_bytes);
    hdi_kernel_file_release(&file);
    free(ptx);
    return status;
}
