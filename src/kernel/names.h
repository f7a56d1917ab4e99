/* names.h - the names of kernels and variables as in CUDA C++ sources: demangled, and found by the
 * name that a program gives.
 *
 * A program names a kernel by its symbol, its signature, its name with template arguments, or its
 * bare name. The program may leave out the namespaces in front. The ways are tried in this order,
 * and then again without namespaces. The first way that fits a kernel decides. If it fits several
 * kernels, the name is ambiguous. Blanks do not matter. The same is true of variables, but a
 * variable has no signature.
 *
 * The demangler is part of the C++ library (libstdc++.so.6 or libc++abi.so.1), which is opened when
 * it is first needed and stays open. Without a demangler, symbols are the only names.
 *
 * Threads: any. Locks: those of pthread_once. Blocking: the first call opens a library.
 */
#ifndef HDI_KERNEL_NAMES_H
#define HDI_KERNEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernel/listing.h"

/* Returns the readable name of a mangled symbol, such as "void ns::scale<float>(float*, int)"; the
 * caller frees it. NULL: the symbol is not mangled, or no demangler or no memory is available. */
char *hdi_name_demangle(const char *symbol);
bool hdi_name_has_demangler(void);

enum { HDI_NAME_NONE = -1, HDI_NAME_AMBIGUOUS = -2, HDI_NAME_NO_MEMORY = -3 };

/* Returns the index of the name that `wanted` stands for, or one of the codes above. With
 * AMBIGUOUS, `candidates` gets a list of the possible names, cut to `room` bytes. */
int hdi_name_find(const hdi_listed_names *names, const char *wanted, char *candidates, size_t room);

/* Writes the name for messages, such as "ns::scale<float>", cut to `room` bytes. */
void hdi_name_short(const hdi_listed *listed, char *out, size_t room);

/* Writes the type of parameter `index` of `n`, as in the signature: "float*". False: the type is
 * unknown. */
bool hdi_name_param(const hdi_listed *kernel, uint32_t index, uint32_t n, char *out, size_t room);

#endif
