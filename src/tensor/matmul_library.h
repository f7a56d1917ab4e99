/* matmul_library.h - what each lane's matrix products are made with: the library that its engine has opened, and the built-in kernels.
 *
 * Threads: any. Blocking: the first call for a lane, and the first after its device came back, as long as the library takes to open. Locks:
 * one per device while a library is opened, in front of every other lock but that of restarts; memory is asked for before it is taken.
 * Always: what is told of a lane stays where it is until hd_close.
 */
#ifndef HDI_TENSOR_MATMUL_LIBRARY_H
#define HDI_TENSOR_MATMUL_LIBRARY_H

#include "driver/blas.h"
#include "engine/runtime.h"
#include "kernel/module.h"

hd_status hdi_products_create(hd_runtime *rt);
/* No lane is used any more. */
void hdi_products_release(hd_runtime *rt);

/* What is known of the lane's library, which is opened where it is not. Errors: OPTION (the option blas names a library that does not open or is
 * none), MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
hd_status hdi_products_library(hd_lane *lane, const char *who, const hdi_blas_facts **out);

/* Between the two no library is opened on the device. Who brings it back holds them while it does: what is opened has memory of the same worker. */
void hdi_products_hold(hd_runtime *rt, int device);
void hdi_products_resume(hd_runtime *rt, int device);

/* The built-in kernel of a type that products are made of. Errors: as hd_module_get_builtin and hd_kernel_get. */
hd_status hdi_products_kernel(hd_runtime *rt, hd_type type, struct hd_kernel **out);

#endif
