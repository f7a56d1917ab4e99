/* matmul_library.h - what executes each lane's matrix products: the library that its engine opened, and the built-in
 * kernels.
 *
 * Threads: any.
 * Locks: one per device while a library is opened (rank MATMUL_LIBRARY). Memory is allocated before it is taken.
 * Blocking: while a library is opened. That is in the first call for a lane, and in the first one after a restart of
 * its device.
 * Always: the facts of a lane's library stay at their address until hd_close.
 */
#ifndef HDI_TENSOR_MATMUL_LIBRARY_H
#define HDI_TENSOR_MATMUL_LIBRARY_H

#include "blas/blas.h"
#include "engine/runtime.h"
#include "kernel/module.h"

hd_status hdi_products_create(hd_runtime *rt);
/* hd_close: no lane is used any more. */
void hdi_products_release(hd_runtime *rt);

/* Returns the facts of the lane's library. Opens the library unless it is open.
 * Blocking: while the library is opened.
 * Errors:
 * - OPTION: the library that the option blas names does not open, or has no products
 * - MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST */
hd_status hdi_products_library(hd_lane *lane, const hdi_blas_facts **out);

/* Between these two calls no library is opened on the device. A restart makes them around the step that makes the
 * device work again. So a library and its workspace belong to the same worker. */
void hdi_products_hold(hd_runtime *rt, int device);
void hdi_products_resume(hd_runtime *rt, int device);

/* The built-in kernel for products of a type. Errors: as hd_module_get_builtin and hd_kernel_get. */
hd_status hdi_products_kernel(hd_runtime *rt, hd_type type, struct hd_kernel **out);

#endif
