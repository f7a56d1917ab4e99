/* fuzz_kernel_build.c - hd_kernel_file_build: parts of a kernel file from any compiler. The built
 * file can be loaded.
 *
 * An input: a byte of flags, two bytes for the length of the PTX, the PTX, and an ELF file. This
 * file serves as code and descriptions.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <heddle/kernel_file.h>
#include "kernel/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    uint64_t flags = fuzz_take(&in, 1);
    size_t ptx_bytes, elf_bytes;
    const uint8_t *piece = fuzz_take_piece(&in, (size_t)fuzz_take(&in, 2), &ptx_bytes);
    char *ptx = fuzz_copy(piece, ptx_bytes);
    piece = fuzz_take_piece(&in, in.left, &elf_bytes);
    void *elf = fuzz_copy(piece, elf_bytes);
    const void *cpu[] = {elf, elf, elf, elf, elf, elf, elf, elf, elf};
    const size_t cpu_bytes[] = {elf_bytes, elf_bytes, elf_bytes, elf_bytes, elf_bytes,
                                elf_bytes, elf_bytes, elf_bytes, elf_bytes};
    static const size_t counts[] = {0, 1, 2, 9};
    hd_kernel_file_parts parts = {.size = sizeof parts,
                                  .ptx = flags & 1 ? NULL : ptx,
                                  .ptx_bytes = ptx_bytes,
                                  .cpu = cpu,
                                  .cpu_bytes = cpu_bytes,
                                  .n_cpu = counts[flags >> 1 & 3],
                                  .description = flags & 8 ? elf : NULL,
                                  .description_bytes = elf_bytes};
    void *made;
    size_t made_bytes;
    hd_status status = hd_kernel_file_build(&parts, &made, &made_bytes);
    if (status == HD_OK) {
        hdi_kernel_file f;
        fuzz_check(hdi_kernel_file_parse(made, made_bytes, &f) == HD_OK);
        fuzz_check(f.n_cpu == parts.n_cpu && (f.ptx != NULL) == (parts.ptx != NULL) && f.n_kernels > 0);
        hdi_kernel_file_release(&f);
        free(made);
    } else {
        fuzz_check_failure(status, HD_ERROR_ARGUMENT, HD_ERROR_IMAGE, HD_ERROR_LIMIT);
    }
    free(elf);
    free(ptx);
    return 0;
}
