/* lender.h - memory of Heddle for the allocators of other packages; lender.c describes it.
 *
 * Threads, locks: lender.c.
 * Always: a lender lives as long as the process.
 */
#ifndef HEDDLE_PYTHON_LENDER_H
#define HEDDLE_PYTHON_LENDER_H

#include <heddle.h>

typedef struct hd_python_lender hd_python_lender;

HD_API void hd_python_lender_begin(void *(*release)(void), void (*take)(void *state));
HD_API hd_python_lender *hd_python_lender_make(hd_runtime *runtime, const char *label, const int *devices, int n,
                                               intptr_t (*stream)(void));
HD_API void *hd_python_lender_lend(hd_python_lender *l, size_t bytes, int ordinal, void *stream);
HD_API hd_status hd_python_lender_return(hd_python_lender *l, void *address, void *stream);
HD_API hd_status hd_python_lender_return_in_order(hd_python_lender *l, void *address);
HD_API hd_buffer *hd_python_lender_find(hd_python_lender *l, void *address);
HD_API uint64_t hd_python_lender_count(hd_python_lender *l);
HD_API void *hd_python_cupy_lend(void *lender, size_t bytes, int ordinal);
HD_API void hd_python_cupy_return(void *lender, void *address, int ordinal);

#endif
