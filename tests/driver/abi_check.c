/* abi_check.c - compares abi.h and entries.h with the real cuda.h, at compile time. Compiles to
 * nothing without a cuda.h, or with one older than CUDA 13, which lacks some of the names.
 *
 * It checks:
 *   - every number, the size of every type, the offset of every member
 *   - if cudaTypedefs.h declares the version that entries.h asks for: the real function takes as
 *     many arguments as ours, with pointers for our pointers, and returns a CUresult
 */
#if defined(__has_include)
#if __has_include(<cuda.h>)
#define HAVE_CUDA_H 1
#endif
#if __has_include(<cudaTypedefs.h>)
#define HAVE_CUDA_TYPEDEFS_H 1
#endif
#endif

#ifdef HAVE_CUDA_H
#include <cuda.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#include <stddef.h>
#include "driver/abi.h"
#include "driver/entries.h"
#include "../support/same.h"

#pragma GCC diagnostic ignored "-Wpedantic" /* constants that are addresses */

#define CHECK_RESULT(name, value) SAME(HDCU_##name, CUDA_##name);
HDCU_RESULT_MAP(CHECK_RESULT)
SAME(226, CUDA_ERROR_CONTAINED);
SAME(721, CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME(810, CUDA_ERROR_MPS_CLIENT_TERMINATED);

#define CHECK_DEVICE_ATTRIBUTE(name, value) SAME(HDCU_DEVICE_ATTRIBUTE_##name, CU_DEVICE_ATTRIBUTE_##name);
HDCU_DEVICE_ATTRIBUTE_MAP(CHECK_DEVICE_ATTRIBUTE)

SAME(HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(HDCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(HDCU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(HDCU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(HDCU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(HDCU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
SAME(HDCU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(HDCU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(HDCU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(HDCU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(HDCU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(HDCU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(HDCU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_NONE);
SAME(HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(HDCU_MEM_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(HDCU_MEM_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(HDCU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(HDCU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(HDCU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED);
SAME(HDCU_MEM_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(HDCU_MEM_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(HDCU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(HDCU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(HDCU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(HDCU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(HDCU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(HDCU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(HDCU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER);
SAME(HDCU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
SAME(HDCU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER);
SAME(HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(HDCU_P2P_ATTRIBUTE_PERFORMANCE_RANK, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
SAME(HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
SAME(HDCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME(HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(HDCU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(HDCU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
SAME(HDCU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(HDCU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME(HDCU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC);
SAME(sizeof(CUmemFabricHandle), 64);
SAME(HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME(HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME(HDCU_MEMPOOL_ATTR_USED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
SAME(0, CU_GET_PROC_ADDRESS_SUCCESS);

SAME(HDCU_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_END);
SAME(HDCU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_POINTER);
SAME(HDCU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_BUFFER_SIZE);

SAME_SIZE(hdcu_result, CUresult);
SAME_SIZE(hdcu_device, CUdevice);
SAME_SIZE(hdcu_deviceptr, CUdeviceptr);
SAME_SIZE(hdcu_memhandle, CUmemGenericAllocationHandle);
SAME_SIZE(hdcu_context, CUcontext);
SAME_SIZE(hdcu_stream, CUstream);
SAME_SIZE(hdcu_event, CUevent);
SAME_SIZE(hdcu_module, CUmodule);
SAME_SIZE(hdcu_function, CUfunction);
SAME_SIZE(hdcu_graph, CUgraph);
SAME_SIZE(hdcu_graphexec, CUgraphExec);
SAME_SIZE(hdcu_mempool, CUmemoryPool);
SAME_SIZE(hdcu_uuid, CUuuid);
SAME_SIZE(hdcu_host_fn, CUhostFn);
SAME_SIZE(hdcu_mem_location, CUmemLocation);
SAME_SIZE(hdcu_mem_prop, CUmemAllocationProp);
SAME_SIZE(hdcu_mem_access_desc, CUmemAccessDesc);
SAME_SIZE(hdcu_memcpy2d, CUDA_MEMCPY2D);
SAME_SIZE(hdcu_kernel_node_params, CUDA_KERNEL_NODE_PARAMS);

SAME_MEMBER(hdcu_mem_location, type, CUmemLocation, type);
SAME_MEMBER(hdcu_mem_location, id, CUmemLocation, id);
SAME_MEMBER(hdcu_mem_prop, type, CUmemAllocationProp, type);
SAME_MEMBER(hdcu_mem_prop, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_MEMBER(hdcu_mem_prop, location, CUmemAllocationProp, location);
SAME_MEMBER(hdcu_mem_prop, win32_handle_metadata, CUmemAllocationProp, win32HandleMetaData);
SAME_MEMBER(hdcu_mem_prop, alloc_flags.compression_type, CUmemAllocationProp, allocFlags.compressionType);
SAME_MEMBER(hdcu_mem_prop, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_MEMBER(hdcu_mem_prop, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_MEMBER(hdcu_mem_prop, alloc_flags.reserved, CUmemAllocationProp, allocFlags.reserved);
SAME_MEMBER(hdcu_mem_access_desc, location, CUmemAccessDesc, location);
SAME_MEMBER(hdcu_mem_access_desc, flags, CUmemAccessDesc, flags);
SAME_MEMBER(hdcu_kernel_node_params, function, CUDA_KERNEL_NODE_PARAMS, func);
SAME_MEMBER(hdcu_kernel_node_params, grid_x, CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME_MEMBER(hdcu_kernel_node_params, block_z, CUDA_KERNEL_NODE_PARAMS, blockDimZ);
SAME_MEMBER(hdcu_kernel_node_params, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_MEMBER(hdcu_kernel_node_params, parameters, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_MEMBER(hdcu_kernel_node_params, extra, CUDA_KERNEL_NODE_PARAMS, extra);
SAME_MEMBER(hdcu_kernel_node_params, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
SAME_MEMBER(hdcu_kernel_node_params, context, CUDA_KERNEL_NODE_PARAMS, ctx);
SAME_MEMBER(hdcu_memcpy2d, src_x_bytes, CUDA_MEMCPY2D, srcXInBytes);
SAME_MEMBER(hdcu_memcpy2d, src_y, CUDA_MEMCPY2D, srcY);
SAME_MEMBER(hdcu_memcpy2d, src_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_MEMBER(hdcu_memcpy2d, src_host, CUDA_MEMCPY2D, srcHost);
SAME_MEMBER(hdcu_memcpy2d, src_device, CUDA_MEMCPY2D, srcDevice);
SAME_MEMBER(hdcu_memcpy2d, src_array, CUDA_MEMCPY2D, srcArray);
SAME_MEMBER(hdcu_memcpy2d, src_pitch, CUDA_MEMCPY2D, srcPitch);
SAME_MEMBER(hdcu_memcpy2d, dst_x_bytes, CUDA_MEMCPY2D, dstXInBytes);
SAME_MEMBER(hdcu_memcpy2d, dst_y, CUDA_MEMCPY2D, dstY);
SAME_MEMBER(hdcu_memcpy2d, dst_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_MEMBER(hdcu_memcpy2d, dst_host, CUDA_MEMCPY2D, dstHost);
SAME_MEMBER(hdcu_memcpy2d, dst_device, CUDA_MEMCPY2D, dstDevice);
SAME_MEMBER(hdcu_memcpy2d, dst_array, CUDA_MEMCPY2D, dstArray);
SAME_MEMBER(hdcu_memcpy2d, dst_pitch, CUDA_MEMCPY2D, dstPitch);
SAME_MEMBER(hdcu_memcpy2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_MEMBER(hdcu_memcpy2d, rows, CUDA_MEMCPY2D, Height);

#ifdef HAVE_CUDA_TYPEDEFS_H
#include <cudaTypedefs.h>

/* A call of the real type with our arguments, which never runs. The compiler refuses another number
 * of arguments, a pointer for our number, and a structure for our other type. Pointers to our own
 * types differ in name only. */
#pragma GCC diagnostic ignored "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wint-conversion"
#define CHECK_ENTRY(name, version, need, parameters, arguments)                                                        \
    static inline __attribute__((unused)) size_t check_##name parameters                                               \
    {                                                                                                                  \
        _Static_assert(_Generic(((PFN_##name##_v##version)0)arguments, CUresult : 1, default : 0), #name);             \
        return sizeof(((PFN_##name##_v##version)0)arguments);                                                          \
    }
HDI_DRIVER_ENTRIES(CHECK_ENTRY)
#endif

#endif

/* An empty translation unit is not valid C. */
typedef int abi_check_done;
