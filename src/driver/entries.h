/* entries.h - the one list of driver entry points that the library uses.
 *
 * X(name, version, need, (parameters), (arguments)): one entry point, which returns hdcu_result.
 * - `version`: the CUDA version whose ABI of the symbol this file declares. Heddle passes this
 *   version to cuGetProcAddress.
 * - `need`: REQUIRED, or OPTIONAL (a null pointer in the table if the driver lacks it).
 * Threads: any; the file contains only declarations. Locks: none.
 */
#ifndef HDI_DRIVER_ENTRIES_H
#define HDI_DRIVER_ENTRIES_H

#include "driver/abi.h"

/* clang-format off */
#define HDI_DRIVER_ENTRIES(X) \
    X(cuInit, 2000, REQUIRED, (unsigned flags), (flags)) \
    X(cuDriverGetVersion, 2020, REQUIRED, (int *version), (version)) \
    X(cuGetErrorName, 6000, REQUIRED, (hdcu_result error, const char **name), (error, name)) \
    X(cuGetErrorString, 6000, REQUIRED, (hdcu_result error, const char **text), (error, text)) \
    X(cuDeviceGetCount, 2000, REQUIRED, (int *count), (count)) \
    X(cuDeviceGet, 2000, REQUIRED, (hdcu_device *device, int ordinal), (device, ordinal)) \
    X(cuDeviceGetName, 2000, REQUIRED, (char *name, int length, hdcu_device device), (name, length, device)) \
    X(cuDeviceGetUuid, 11040, REQUIRED, (hdcu_uuid *uuid, hdcu_device device), (uuid, device)) \
    X(cuDeviceGetPCIBusId, 4010, REQUIRED, (char *bus_id, int length, hdcu_device device), (bus_id, length, device)) \
    X(cuDeviceTotalMem, 3020, REQUIRED, (size_t *bytes, hdcu_device device), (bytes, device)) \
    X(cuDeviceGetAttribute, 2000, REQUIRED, (int *value, int attribute, hdcu_device device), (value, attribute, device)) \
    X(cuDeviceCanAccessPeer, 4000, REQUIRED, (int *can_access, hdcu_device device, hdcu_device peer), (can_access, device, peer)) \
    X(cuDeviceGetP2PAttribute, 8000, REQUIRED, (int *value, int attribute, hdcu_device source, hdcu_device destination), (value, attribute, source, destination)) \
    X(cuDevicePrimaryCtxRetain, 7000, REQUIRED, (hdcu_context *context, hdcu_device device), (context, device)) \
    X(cuDevicePrimaryCtxRelease, 11000, REQUIRED, (hdcu_device device), (device)) \
    X(cuCtxSetCurrent, 4000, REQUIRED, (hdcu_context context), (context)) \
    X(cuCtxGetCurrent, 4000, REQUIRED, (hdcu_context *context), (context)) \
    X(cuCtxPushCurrent, 4000, REQUIRED, (hdcu_context context), (context)) \
    X(cuCtxPopCurrent, 4000, REQUIRED, (hdcu_context *context), (context)) \
    X(cuCtxSynchronize, 2000, REQUIRED, (void), ()) \
    X(cuCtxEnablePeerAccess, 4000, REQUIRED, (hdcu_context peer, unsigned flags), (peer, flags)) \
    X(cuCtxDisablePeerAccess, 4000, REQUIRED, (hdcu_context peer), (peer)) \
    X(cuPointerGetAttribute, 4000, REQUIRED, (void *value, int attribute, hdcu_deviceptr pointer), (value, attribute, pointer)) \
    X(cuMemGetInfo, 3020, REQUIRED, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes)) \
    X(cuMemAlloc, 3020, REQUIRED, (hdcu_deviceptr *pointer, size_t bytes), (pointer, bytes)) \
    X(cuMemFree, 3020, REQUIRED, (hdcu_deviceptr pointer), (pointer)) \
    X(cuMemAllocAsync, 11020, OPTIONAL, (hdcu_deviceptr *pointer, size_t bytes, hdcu_stream stream), (pointer, bytes, stream)) \
    X(cuMemFreeAsync, 11020, OPTIONAL, (hdcu_deviceptr pointer, hdcu_stream stream), (pointer, stream)) \
    X(cuDeviceGetDefaultMemPool, 11020, OPTIONAL, (hdcu_mempool *pool, hdcu_device device), (pool, device)) \
    X(cuMemPoolGetAttribute, 11020, OPTIONAL, (hdcu_mempool pool, int attribute, void *value), (pool, attribute, value)) \
    X(cuMemPoolSetAttribute, 11020, OPTIONAL, (hdcu_mempool pool, int attribute, void *value), (pool, attribute, value)) \
    X(cuMemPoolTrimTo, 11020, OPTIONAL, (hdcu_mempool pool, size_t keep_bytes), (pool, keep_bytes)) \
    X(cuMemHostAlloc, 2020, REQUIRED, (void **pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) \
    X(cuMemFreeHost, 2000, REQUIRED, (void *pointer), (pointer)) \
    X(cuMemHostRegister, 6050, REQUIRED, (void *pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) \
    X(cuMemHostUnregister, 4000, REQUIRED, (void *pointer), (pointer)) \
    X(cuMemHostGetDevicePointer, 3020, REQUIRED, (hdcu_deviceptr *device_pointer, void *pointer, unsigned flags), (device_pointer, pointer, flags)) \
    X(cuMemAddressReserve, 10020, REQUIRED, (hdcu_deviceptr *pointer, size_t bytes, size_t alignment, hdcu_deviceptr address, unsigned long long flags), (pointer, bytes, alignment, address, flags)) \
    X(cuMemAddressFree, 10020, REQUIRED, (hdcu_deviceptr pointer, size_t bytes), (pointer, bytes)) \
    X(cuMemCreate, 10020, REQUIRED, (hdcu_memhandle *handle, size_t bytes, const hdcu_mem_prop *prop, unsigned long long flags), (handle, bytes, prop, flags)) \
    X(cuMemRelease, 10020, REQUIRED, (hdcu_memhandle handle), (handle)) \
    X(cuMemMap, 10020, REQUIRED, (hdcu_deviceptr pointer, size_t bytes, size_t offset, hdcu_memhandle handle, unsigned long long flags), (pointer, bytes, offset, handle, flags)) \
    X(cuMemUnmap, 10020, REQUIRED, (hdcu_deviceptr pointer, size_t bytes), (pointer, bytes)) \
    X(cuMemSetAccess, 10020, REQUIRED, (hdcu_deviceptr pointer, size_t bytes, const hdcu_mem_access_desc *desc, size_t count), (pointer, bytes, desc, count)) \
    X(cuMemGetAccess, 10020, REQUIRED, (unsigned long long *flags, const hdcu_mem_location *location, hdcu_deviceptr pointer), (flags, location, pointer)) \
    X(cuMemGetAllocationGranularity, 10020, REQUIRED, (size_t *granularity, const hdcu_mem_prop *prop, int option), (granularity, prop, option)) \
    X(cuMemExportToShareableHandle, 10020, REQUIRED, (void *shareable, hdcu_memhandle handle, int handle_type, unsigned long long flags), (shareable, handle, handle_type, flags)) \
    X(cuMemImportFromShareableHandle, 10020, REQUIRED, (hdcu_memhandle *handle, void *shareable, int handle_type), (handle, shareable, handle_type)) \
    X(cuMemcpyHtoD, 3020, REQUIRED, (hdcu_deviceptr dst, const void *src, size_t bytes), (dst, src, bytes)) \
    X(cuMemcpyDtoH, 3020, REQUIRED, (void *dst, hdcu_deviceptr src, size_t bytes), (dst, src, bytes)) \
    X(cuMemcpyAsync, 4000, REQUIRED, (hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream), (dst, src, bytes, stream)) \
    X(cuMemcpyHtoDAsync, 3020, REQUIRED, (hdcu_deviceptr dst, const void *src, size_t bytes, hdcu_stream stream), (dst, src, bytes, stream)) \
    X(cuMemcpyDtoHAsync, 3020, REQUIRED, (void *dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream), (dst, src, bytes, stream)) \
    X(cuMemcpyDtoDAsync, 3020, REQUIRED, (hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream), (dst, src, bytes, stream)) \
    X(cuMemcpyPeerAsync, 4000, REQUIRED, (hdcu_deviceptr dst, hdcu_context dst_context, hdcu_deviceptr src, hdcu_context src_context, size_t bytes, hdcu_stream stream), (dst, dst_context, src, src_context, bytes, stream)) \
    X(cuMemcpy2DAsync, 3020, REQUIRED, (const hdcu_memcpy2d *copy, hdcu_stream stream), (copy, stream)) \
    X(cuMemsetD8Async, 3020, REQUIRED, (hdcu_deviceptr dst, unsigned char value, size_t count, hdcu_stream stream), (dst, value, count, stream)) \
    X(cuMemsetD32Async, 3020, REQUIRED, (hdcu_deviceptr dst, unsigned value, size_t count, hdcu_stream stream), (dst, value, count, stream)) \
    X(cuStreamCreate, 2000, REQUIRED, (hdcu_stream *stream, unsigned flags), (stream, flags)) \
    X(cuStreamDestroy, 4000, REQUIRED, (hdcu_stream stream), (stream)) \
    X(cuStreamGetCtx, 9020, REQUIRED, (hdcu_stream stream, hdcu_context *context), (stream, context)) \
    X(cuStreamGetId, 12000, OPTIONAL, (hdcu_stream stream, unsigned long long *id), (stream, id)) \
    X(cuStreamQuery, 2000, REQUIRED, (hdcu_stream stream), (stream)) \
    X(cuStreamSynchronize, 2000, REQUIRED, (hdcu_stream stream), (stream)) \
    X(cuStreamWriteValue32, 11070, OPTIONAL, (hdcu_stream stream, hdcu_deviceptr address, unsigned value, unsigned flags), (stream, address, value, flags)) \
    X(cuStreamWaitEvent, 3020, REQUIRED, (hdcu_stream stream, hdcu_event event, unsigned flags), (stream, event, flags)) \
    X(cuEventCreate, 2000, REQUIRED, (hdcu_event *event, unsigned flags), (event, flags)) \
    X(cuEventDestroy, 4000, REQUIRED, (hdcu_event event), (event)) \
    X(cuEventRecord, 2000, REQUIRED, (hdcu_event event, hdcu_stream stream), (event, stream)) \
    X(cuEventQuery, 2000, REQUIRED, (hdcu_event event), (event)) \
    X(cuEventSynchronize, 2000, REQUIRED, (hdcu_event event), (event)) \
    X(cuEventElapsedTime, 2000, REQUIRED, (float *milliseconds, hdcu_event start, hdcu_event end), (milliseconds, start, end)) \
    X(cuModuleLoadDataEx, 2010, REQUIRED, (hdcu_module *module, const void *image, unsigned count, int *options, void **values), (module, image, count, options, values)) \
    X(cuModuleUnload, 2000, REQUIRED, (hdcu_module module), (module)) \
    X(cuModuleGetFunction, 2000, REQUIRED, (hdcu_function *function, hdcu_module module, const char *name), (function, module, name)) \
    X(cuModuleGetGlobal, 3020, REQUIRED, (hdcu_deviceptr *pointer, size_t *bytes, hdcu_module module, const char *name), (pointer, bytes, module, name)) \
    X(cuModuleGetFunctionCount, 12040, OPTIONAL, (unsigned *count, hdcu_module module), (count, module)) \
    X(cuModuleEnumerateFunctions, 12040, OPTIONAL, (hdcu_function *functions, unsigned count, hdcu_module module), (functions, count, module)) \
    X(cuFuncLoad, 12040, OPTIONAL, (hdcu_function function), (function)) \
    X(cuFuncGetName, 12030, OPTIONAL, (const char **name, hdcu_function function), (name, function)) \
    X(cuFuncGetAttribute, 2020, REQUIRED, (int *value, int attribute, hdcu_function function), (value, attribute, function)) \
    X(cuFuncSetAttribute, 9000, REQUIRED, (hdcu_function function, int attribute, int value), (function, attribute, value)) \
    X(cuFuncGetParamInfo, 12040, OPTIONAL, (hdcu_function function, size_t index, size_t *offset, size_t *size), (function, index, offset, size)) \
    X(cuLaunchKernel, 4000, REQUIRED, (hdcu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, hdcu_stream stream, void **parameters, void **extra), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)) \
    X(cuLaunchHostFunc, 10000, REQUIRED, (hdcu_stream stream, hdcu_host_fn function, void *user_data), (stream, function, user_data)) \
    X(cuStreamBeginCapture, 10010, REQUIRED, (hdcu_stream stream, int mode), (stream, mode)) \
    X(cuStreamEndCapture, 10000, REQUIRED, (hdcu_stream stream, hdcu_graph *graph), (stream, graph)) \
    X(cuThreadExchangeStreamCaptureMode, 10010, REQUIRED, (int *mode), (mode)) \
    X(cuStreamIsCapturing, 10000, REQUIRED, (hdcu_stream stream, int *status), (stream, status)) \
    X(cuStreamGetCaptureInfo, 11030, OPTIONAL, (hdcu_stream stream, int *status, unsigned long long *id, hdcu_graph *graph, const hdcu_graphnode **dependencies, size_t *count), (stream, status, id, graph, dependencies, count)) \
    X(cuUserObjectCreate, 11030, OPTIONAL, (hdcu_userobject *object, void *pointer, hdcu_host_fn destroy, unsigned references, unsigned flags), (object, pointer, destroy, references, flags)) \
    X(cuGraphRetainUserObject, 11030, OPTIONAL, (hdcu_graph graph, hdcu_userobject object, unsigned count, unsigned flags), (graph, object, count, flags)) \
    X(cuGraphCreate, 10000, REQUIRED, (hdcu_graph *graph, unsigned flags), (graph, flags)) \
    X(cuGraphAddKernelNode, 12000, OPTIONAL, (hdcu_graphnode *node, hdcu_graph graph, const hdcu_graphnode *dependencies, size_t count, const hdcu_kernel_node_params *params), (node, graph, dependencies, count, params)) \
    X(cuGraphExecKernelNodeSetParams, 12000, OPTIONAL, (hdcu_graphexec exec, hdcu_graphnode node, const hdcu_kernel_node_params *params), (exec, node, params)) \
    X(cuGraphInstantiateWithFlags, 11040, REQUIRED, (hdcu_graphexec *exec, hdcu_graph graph, unsigned long long flags), (exec, graph, flags)) \
    X(cuGraphLaunch, 10000, REQUIRED, (hdcu_graphexec exec, hdcu_stream stream), (exec, stream)) \
    X(cuGraphExecDestroy, 10000, REQUIRED, (hdcu_graphexec exec), (exec)) \
    X(cuGraphDestroy, 10000, REQUIRED, (hdcu_graph graph), (graph))
/* clang-format on */

#endif
