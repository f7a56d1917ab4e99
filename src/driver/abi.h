/* abi.h - the CUDA driver's types and numbers, declared here for the entry points that the library
 * uses.
 *
 * A build of Heddle needs no CUDA toolkit. If cuda.h is installed, tests/driver/abi_check.c
 * compares every size, offset and number in it with this file at compile time. Names: the driver's
 * names, with `hdcu_` or `HDCU_` in place of `CU`, so that a program can include both headers.
 * Threads: any; the file contains only declarations. Locks: none.
 */
#ifndef HDI_DRIVER_ABI_H
#define HDI_DRIVER_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int hdcu_result;
typedef int hdcu_device;
typedef unsigned long long hdcu_deviceptr;
typedef unsigned long long hdcu_memhandle; /* CUmemGenericAllocationHandle */
typedef struct hdcu_context_st *hdcu_context;
typedef struct hdcu_stream_st *hdcu_stream;
typedef struct hdcu_event_st *hdcu_event;
typedef struct hdcu_module_st *hdcu_module;
typedef struct hdcu_function_st *hdcu_function;
typedef struct hdcu_graph_st *hdcu_graph;
typedef struct hdcu_graphnode_st *hdcu_graphnode;
typedef struct hdcu_graphexec_st *hdcu_graphexec;
typedef struct hdcu_mempool_st *hdcu_mempool;
typedef struct hdcu_userobject_st *hdcu_userobject;
typedef struct hdcu_uuid {
    char bytes[16];
} hdcu_uuid;

/* Results. X(name, value): the codes that the library distinguishes or the host provider
 * returns. */
#define HDCU_RESULT_MAP(X)                                                                                             \
    X(SUCCESS, 0)                                                                                                      \
    X(ERROR_INVALID_VALUE, 1)                                                                                          \
    X(ERROR_OUT_OF_MEMORY, 2)                                                                                          \
    X(ERROR_NOT_INITIALIZED, 3)                                                                                        \
    X(ERROR_DEINITIALIZED, 4)                                                                                          \
    X(ERROR_NO_DEVICE, 100)                                                                                            \
    X(ERROR_INVALID_DEVICE, 101)                                                                                       \
    X(ERROR_INVALID_IMAGE, 200)                                                                                        \
    X(ERROR_INVALID_CONTEXT, 201)                                                                                      \
    X(ERROR_MAP_FAILED, 205)                                                                                           \
    X(ERROR_UNMAP_FAILED, 206)                                                                                         \
    X(ERROR_ALREADY_MAPPED, 208)                                                                                       \
    X(ERROR_NO_BINARY_FOR_GPU, 209)                                                                                    \
    X(ERROR_NOT_MAPPED, 211)                                                                                           \
    X(ERROR_ECC_UNCORRECTABLE, 214)                                                                                    \
    X(ERROR_UNSUPPORTED_LIMIT, 215)                                                                                    \
    X(ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                                              \
    X(ERROR_INVALID_PTX, 218)                                                                                          \
    X(ERROR_NVLINK_UNCORRECTABLE, 220)                                                                                 \
    X(ERROR_JIT_COMPILER_NOT_FOUND, 221)                                                                               \
    X(ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                                              \
    X(ERROR_INVALID_SOURCE, 300)                                                                                       \
    X(ERROR_OPERATING_SYSTEM, 304)                                                                                     \
    X(ERROR_INVALID_HANDLE, 400)                                                                                       \
    X(ERROR_ILLEGAL_STATE, 401)                                                                                        \
    X(ERROR_NOT_FOUND, 500)                                                                                            \
    X(ERROR_NOT_READY, 600)                                                                                            \
    X(ERROR_ILLEGAL_ADDRESS, 700)                                                                                      \
    X(ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                                              \
    X(ERROR_LAUNCH_TIMEOUT, 702)                                                                                       \
    X(ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                                          \
    X(ERROR_PEER_ACCESS_NOT_ENABLED, 705)                                                                              \
    X(ERROR_CONTEXT_IS_DESTROYED, 709)                                                                                 \
    X(ERROR_ASSERT, 710)                                                                                               \
    X(ERROR_TOO_MANY_PEERS, 711)                                                                                       \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                       \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                           \
    X(ERROR_HARDWARE_STACK_ERROR, 714)                                                                                 \
    X(ERROR_ILLEGAL_INSTRUCTION, 715)                                                                                  \
    X(ERROR_MISALIGNED_ADDRESS, 716)                                                                                   \
    X(ERROR_INVALID_ADDRESS_SPACE, 717)                                                                                \
    X(ERROR_INVALID_PC, 718)                                                                                           \
    X(ERROR_LAUNCH_FAILED, 719)                                                                                        \
    X(ERROR_NOT_PERMITTED, 800)                                                                                        \
    X(ERROR_NOT_SUPPORTED, 801)                                                                                        \
    X(ERROR_SYSTEM_NOT_READY, 802)                                                                                     \
    X(ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                                           \
    X(ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                                           \
    X(ERROR_STREAM_CAPTURE_MERGE, 902)                                                                                 \
    X(ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                                             \
    X(ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                                              \
    X(ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                                             \
    X(ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                              \
    X(ERROR_CAPTURED_EVENT, 907)                                                                                       \
    X(ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                                          \
    X(ERROR_UNKNOWN, 999)

enum {
#define HDCU_RESULT_ENUM(name, value) HDCU_##name = value,
    HDCU_RESULT_MAP(HDCU_RESULT_ENUM)
#undef HDCU_RESULT_ENUM
};

/* Device attributes. X(name, value) */
#define HDCU_DEVICE_ATTRIBUTE_MAP(X)                                                                                   \
    X(MAX_THREADS_PER_BLOCK, 1)                                                                                        \
    X(MAX_BLOCK_DIM_X, 2)                                                                                              \
    X(MAX_BLOCK_DIM_Y, 3)                                                                                              \
    X(MAX_BLOCK_DIM_Z, 4)                                                                                              \
    X(MAX_GRID_DIM_X, 5)                                                                                               \
    X(MAX_GRID_DIM_Y, 6)                                                                                               \
    X(MAX_GRID_DIM_Z, 7)                                                                                               \
    X(MAX_SHARED_MEMORY_PER_BLOCK, 8)                                                                                  \
    X(MAX_PITCH, 11)                                                                                                   \
    X(MULTIPROCESSOR_COUNT, 16)                                                                                        \
    X(PCI_BUS_ID, 33)                                                                                                  \
    X(PCI_DEVICE_ID, 34)                                                                                               \
    X(PCI_DOMAIN_ID, 50)                                                                                               \
    X(COMPUTE_CAPABILITY_MAJOR, 75)                                                                                    \
    X(COMPUTE_CAPABILITY_MINOR, 76)                                                                                    \
    X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                                                                     \
    X(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                                                           \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                                        \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                                                \
    X(GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                                                    \
    X(MEMORY_POOLS_SUPPORTED, 115)                                                                                     \
    X(HANDLE_TYPE_FABRIC_SUPPORTED, 128)                                                                               \
    X(HOST_NUMA_ID, 134)

enum {
#define HDCU_DEVICE_ATTRIBUTE_ENUM(name, value) HDCU_DEVICE_ATTRIBUTE_##name = value,
    HDCU_DEVICE_ATTRIBUTE_MAP(HDCU_DEVICE_ATTRIBUTE_ENUM)
#undef HDCU_DEVICE_ATTRIBUTE_ENUM
};

/* Function attributes */
enum {
    HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    HDCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
};

/* Flags and small enumerations */
enum {
    HDCU_STREAM_NON_BLOCKING = 1,
    HDCU_STREAM_WRITE_VALUE_DEFAULT = 0,
    HDCU_EVENT_DEFAULT = 0,
    HDCU_EVENT_DISABLE_TIMING = 2,
    HDCU_EVENT_INTERPROCESS = 4,
    HDCU_MEMHOSTALLOC_PORTABLE = 1,
    HDCU_MEMHOSTALLOC_DEVICEMAP = 2,
    HDCU_MEMHOSTREGISTER_PORTABLE = 1,
    HDCU_MEMHOSTREGISTER_DEVICEMAP = 2,
    HDCU_MEM_ALLOCATION_TYPE_PINNED = 1,
    HDCU_MEM_LOCATION_TYPE_DEVICE = 1,
    HDCU_MEM_HANDLE_TYPE_NONE = 0,
    HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    HDCU_MEM_HANDLE_TYPE_FABRIC = 8, /* 64 bytes */
    HDCU_MEM_ACCESS_NONE = 0,
    HDCU_MEM_ACCESS_READWRITE = 3,
    HDCU_MEMORYTYPE_HOST = 1,
    HDCU_MEMORYTYPE_DEVICE = 2,
    HDCU_MEMORYTYPE_UNIFIED = 4,
    /* Attributes of an address. The values of the first two are ints, and those of the others are
     * 64-bit numbers unless a comment states otherwise. */
    HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    HDCU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    HDCU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16, /* an int, for the current context */
    HDCU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    HDCU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
    HDCU_MEM_GRANULARITY_MINIMUM = 0,
    HDCU_MEM_GRANULARITY_RECOMMENDED = 1,
    HDCU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    HDCU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    HDCU_STREAM_CAPTURE_MODE_RELAXED = 2,
    HDCU_STREAM_CAPTURE_STATUS_NONE = 0,
    HDCU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    HDCU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
    HDCU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
    HDCU_GRAPH_USER_OBJECT_MOVE = 1,
    HDCU_JIT_INFO_LOG_BUFFER = 3,
    HDCU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    HDCU_JIT_ERROR_LOG_BUFFER = 5,
    HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    HDCU_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1,
    HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2,
    HDCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3,
    /* Attributes of a memory pool; all are 64-bit numbers. */
    HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    HDCU_MEMPOOL_ATTR_USED_MEM_HIGH = 8
};

/* The `extra` argument of cuLaunchKernel */
#define HDCU_LAUNCH_PARAM_END ((void *)0)
#define HDCU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HDCU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

typedef struct hdcu_mem_location {
    int type;
    int id;
} hdcu_mem_location;

typedef struct hdcu_mem_prop { /* CUmemAllocationProp */
    int type;
    int requested_handle_types;
    hdcu_mem_location location;
    void *win32_handle_metadata;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } alloc_flags;
} hdcu_mem_prop;

typedef struct hdcu_mem_access_desc {
    hdcu_mem_location location;
    int flags;
} hdcu_mem_access_desc;

typedef struct hdcu_kernel_node_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    hdcu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
    unsigned shared_bytes;
    void **parameters, **extra;
    void *kernel;         /* a CUkernel; NULL: `function` is used */
    hdcu_context context; /* NULL: the current one */
} hdcu_kernel_node_params;

typedef struct hdcu_memcpy2d { /* CUDA_MEMCPY2D */
    size_t src_x_bytes, src_y;
    int src_type; /* HDCU_MEMORYTYPE_* */
    const void *src_host;
    hdcu_deviceptr src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x_bytes, dst_y;
    int dst_type;
    void *dst_host;
    hdcu_deviceptr dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t row_bytes, rows;
} hdcu_memcpy2d;

typedef void (*hdcu_host_fn)(void *user_data);

#endif
