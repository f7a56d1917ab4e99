/* names.h - the names of kernels and variables as in CUDA C++ sources: demangled, and found by the
 * name that a program gives.
 *
 * A variable has no signature; otherwise its names are like those of a kernel. A program names a
 * kernel by its symbol, its signature, its name with template arguments, or its bare name. Each of
 * these also works without the namespaces in front. The first of these ways that fits exactly one
 * kernel decides. Blanks do not matter.
 *
 * The demangler is part of the C++ library (libstdc++.so.6 or libc++abi.so.1), which is opened at
 * the first need and stays open. Without it, symbols are the only names.
 *
 * Threads: any. Locks: those of pthread_once. Blocking: the first name opens a library.
 */
#ifndef HDI_KERNEL_NAMES_H
#define HDI_KERNEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernel/listing.h"

/* "void ns::scale<float>(float*, int)" of a mangled symbol; the caller frees it. NULL: it is not
 * mangled, or no demangler or no memory is available. */
char *hdi_name_demangle(const char *symbol);
bool hdi_name_has_demangler(void);

enum { HDI_NAME_NONE = -1, HDI_NAME_AMBIGUOUS = -2, HDI_NAME_NO_MEMORY = -3 };

/* The index of the name that `wanted` stands for, or one of the codes above. With AMBIGUOUS
 * `candidates` lists the possible names, cut to `room`. */
int hdi_name_find(const hdi_listed_names *names, const char *wanted, char *candidates, size_t room);

/* The name for messages, such as "ns::scale<float>", cut to `room`. */
void hdi_name_short(const hdi_listed *listed, char *out, size_t room);

/* The type of parameter `index` of `n`, as in the signature: "float*". False: unknown. */
bool hdi_name_param(const hdi_listed *kernel, uint32_t index, uint32_t n, char *out, size_t room);

#endif
