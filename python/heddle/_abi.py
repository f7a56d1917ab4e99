"""The C interface of Heddle for ctypes: made by tools/make-python-abi, do not edit."""

import ctypes as c
from enum import IntEnum, IntFlag

# ---- enumerations ----


class Access(IntFlag):
    READ = 1
    WRITE = 2
    READ_WRITE = 3


class AllocFlags(IntFlag):
    KEEP = 1
    DEDICATED = 2


class ArgKind(IntEnum):
    NONE = 0
    BUFFER = 1
    I8 = 2
    U8 = 3
    I16 = 4
    U16 = 5
    I32 = 6
    U32 = 7
    I64 = 8
    U64 = 9
    F32 = 10
    F64 = 11
    BYTES = 12
    ADDRESS = 13
    ALSO = 14


class DlpackFlags(IntFlag):
    READ_ONLY = 1
    BOOL = 2


class ExportKind(IntEnum):
    DESCRIPTOR = 1
    FABRIC = 2


class FindingKind(IntEnum):
    OVERRUN = 1
    DOUBLE_FREE = 2
    USE_AFTER_FREE = 3
    LEAK = 4


class LossCause(IntEnum):
    DRIVER = 1
    WATCHDOG = 2
    WORKER_ENDED = 3
    WORKER_STUCK = 4


class OptionSource(IntEnum):
    DEFAULT = 1
    ENVIRONMENT = 2
    SETTINGS = 3


class PeerVerdict(IntEnum):
    UNKNOWN = 0
    USABLE = 1
    SLOW = 2
    REFUSED = 3
    CORRUPT = 4
    INCONCLUSIVE = 5


class PeersFlags(IntFlag):
    AGAIN = 1


class ReclaimReason(IntEnum):
    EARLY = 1
    LIMIT = 2


class ReportFormat(IntEnum):
    TEXT = 0
    JSON = 1


class Status(IntEnum):
    OK = 0
    ARGUMENT = -1
    HANDLE = -2
    MEMORY = -3
    HOST_MEMORY = -4
    RANGE = -5
    ACCESS = -6
    UNREACHABLE = -7
    LIMIT = -8
    TIMEOUT = -9
    NO_DEVICE = -10
    NO_DRIVER = -11
    IMAGE = -12
    NOT_FOUND = -13
    FAILED = -14
    LANE_FAILED = -15
    DEVICE_LOST = -16
    DRIVER = -17
    SYSTEM = -18
    OPTION = -19
    UNSUPPORTED = -20


class TraceDetail(IntEnum):
    DEFAULT = 0
    EDGES = 1
    FULL = 2
    CUPTI = 3


class TraceMessageKind(IntEnum):
    SEND = 1
    RECV = 2
    BCAST = 3
    REDUCE = 4
    ALLREDUCE = 5
    ALLGATHER = 6
    ALLTOALL = 7
    BARRIER = 8


class Type(IntEnum):
    I8 = 1
    U8 = 2
    I16 = 3
    U16 = 4
    I32 = 5
    U32 = 6
    I64 = 7
    U64 = 8
    F16 = 9
    BF16 = 10
    F32 = 11
    F64 = 12
    C64 = 13
    C128 = 14


# ---- structures ----


class Ticket(c.Structure):
    _fields_ = [
        ("lane", c.c_void_p),
        ("sequence", c.c_uint64),
    ]


class Dims(c.Structure):
    _fields_ = [
        ("x", c.c_uint32),
        ("y", c.c_uint32),
        ("z", c.c_uint32),
    ]


class ArgValue(c.Union):
    _fields_ = [
        ("buffer", c.c_void_p),
        ("i64", c.c_int64),
        ("u64", c.c_uint64),
        ("f32", c.c_float),
        ("f64", c.c_double),
        ("bytes", c.c_void_p),
    ]


class Arg(c.Structure):
    _fields_ = [
        ("kind", c.c_uint32),
        ("access", c.c_uint32),
        ("value", ArgValue),
        ("offset", c.c_size_t),
        ("size", c.c_size_t),
    ]


class AllocOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("flags", c.c_uint),
        ("label", c.c_char_p),
    ]


class Box(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("row", c.c_size_t),
        ("dims", c.c_int),
        ("count", c.c_size_t * 7),
        ("dst_stride", c.c_size_t * 7),
        ("src_stride", c.c_size_t * 7),
    ]


class ClaimOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("label", c.c_char_p),
        ("copies", c.c_bool),
    ]


class CodePart(c.Structure):
    _fields_ = [
        ("bytes", c.c_void_p),
        ("count", c.c_size_t),
        ("name", c.c_char_p),
    ]


class CompileOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("options", c.c_void_p),
        ("n_options", c.c_size_t),
        ("kernels", c.c_void_p),
        ("n_kernels", c.c_size_t),
    ]


class DeviceInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char * 128),
        ("bus_id", c.c_char * 32),
        ("uuid", c.c_uint8 * 16),
        ("is_host", c.c_bool),
        ("compute_major", c.c_int),
        ("compute_minor", c.c_int),
        ("multiprocessors", c.c_int),
        ("max_threads_per_block", c.c_int),
        ("max_block", c.c_uint32 * 3),
        ("max_grid", c.c_uint32 * 3),
        ("shared_bytes_per_block", c.c_size_t),
        ("shared_bytes_max", c.c_size_t),
        ("memory_bytes", c.c_size_t),
        ("memory_free_bytes", c.c_size_t),
        ("memory_mapped_bytes", c.c_size_t),
        ("numa_node", c.c_int),
        ("peers", c.c_uint64),
        ("lost", c.c_bool),
        ("worker_pid", c.c_int),
        ("losses", c.c_uint64),
        ("restarts", c.c_uint64),
    ]


class DeviceLoss(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("device", c.c_int),
        ("cause", c.c_int),
        ("driver_code", c.c_int),
        ("signal", c.c_int),
        ("losses", c.c_uint64),
        ("message", c.c_char * 512),
    ]


class DeviceStats(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("operations", c.c_uint64),
        ("waits_inserted", c.c_uint64),
        ("events_recorded", c.c_uint64),
        ("publishes", c.c_uint64),
        ("ring_full_stalls", c.c_uint64),
        ("engine_sleeps", c.c_uint64),
        ("buffers_live", c.c_uint64),
        ("bytes_live", c.c_uint64),
    ]


class DlpackOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("flags", c.c_uint),
        ("type", c.c_int),
        ("device", c.c_int),
        ("label", c.c_char_p),
    ]


class Error(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("status", c.c_int),
        ("driver_code", c.c_int),
        ("device", c.c_int),
        ("lane", c.c_int),
        ("ticket", c.c_uint64),
        ("operation", c.c_char * 64),
        ("kernel", c.c_char * 128),
        ("message", c.c_char * 512),
    ]


class Export(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("kind", c.c_int),
        ("descriptor", c.c_int),
        ("piece_bytes", c.c_uint64),
        ("offset", c.c_uint64),
        ("bytes", c.c_uint64),
        ("uuid", c.c_uint8 * 16),
        ("fabric", c.c_uint8 * 64),
    ]


class Finding(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("kind", c.c_int),
        ("device", c.c_int),
        ("number", c.c_uint64),
        ("bytes", c.c_uint64),
        ("count", c.c_uint64),
        ("label", c.c_char * 32),
        ("call_site", c.c_void_p),
        ("found_at", c.c_void_p),
        ("message", c.c_char * 512),
    ]


class ImportOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("label", c.c_char_p),
        ("released", c.c_void_p),
        ("context", c.c_void_p),
    ]


class KernelFileParts(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("ptx", c.c_char_p),
        ("ptx_bytes", c.c_size_t),
        ("cpu", c.c_void_p),
        ("cpu_bytes", c.c_void_p),
        ("n_cpu", c.c_size_t),
        ("description", c.c_void_p),
        ("description_bytes", c.c_size_t),
    ]


class LaneMemory(c.Structure):
    _fields_ = [
        ("lane", c.c_int),
        ("cached_bytes", c.c_uint64),
        ("cached_count", c.c_uint64),
    ]


class MatmulInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("library", c.c_char * 64),
        ("reason", c.c_char * 448),
    ]


class MemoryBlock(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("device", c.c_int),
        ("bytes", c.c_uint64),
        ("label", c.c_char * 32),
        ("call_site", c.c_void_p),
        ("unified", c.c_bool),
        ("held", c.c_bool),
        ("lost", c.c_bool),
        ("imported", c.c_bool),
    ]


class MemoryStats(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("limit_bytes", c.c_uint64),
        ("reserved_bytes", c.c_uint64),
        ("reserved_peak_bytes", c.c_uint64),
        ("live_bytes", c.c_uint64),
        ("live_count", c.c_uint64),
        ("taken_bytes", c.c_uint64),
        ("taken_peak_bytes", c.c_uint64),
        ("cached_bytes", c.c_uint64),
        ("waiting_bytes", c.c_uint64),
        ("held_bytes", c.c_uint64),
        ("allocations", c.c_uint64),
        ("frees", c.c_uint64),
        ("failures", c.c_uint64),
        ("from_magazine", c.c_uint64),
        ("from_same_lane", c.c_uint64),
        ("from_finished", c.c_uint64),
        ("from_waited", c.c_uint64),
        ("from_fresh", c.c_uint64),
        ("frees_elsewhere", c.c_uint64),
        ("driver_calls", c.c_uint64),
        ("mapped_bytes", c.c_uint64),
        ("moved_bytes", c.c_uint64),
        ("returned_bytes", c.c_uint64),
        ("ahead_bytes", c.c_uint64),
        ("drains", c.c_uint64),
        ("waits", c.c_uint64),
        ("wait_ns", c.c_uint64),
        ("early_reclaims", c.c_uint64),
        ("early_reclaim_ns", c.c_uint64),
        ("limit_reclaims", c.c_uint64),
        ("limit_reclaim_ns", c.c_uint64),
        ("longest_pause_ns", c.c_uint64),
        ("double_frees", c.c_uint64),
        ("overruns", c.c_uint64),
        ("imported_bytes", c.c_uint64),
        ("imported_count", c.c_uint64),
    ]


class OptionInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("environment", c.c_char_p),
        ("value", c.c_char_p),
        ("help", c.c_char_p),
        ("is_default", c.c_bool),
        ("source", c.c_int),
    ]


class Options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("settings", c.c_char_p),
    ]


class ParameterInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("kind", c.c_uint32),
        ("access", c.c_uint32),
        ("bytes", c.c_uint32),
        ("name", c.c_char * 64),
    ]


class PeerInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("verdict", c.c_int),
        ("driver_code", c.c_int),
        ("atomics", c.c_bool),
        ("remembered", c.c_bool),
        ("direct_bytes_per_s", c.c_double),
        ("staged_bytes_per_s", c.c_double),
        ("reason", c.c_char * 200),
    ]


class Reclaim(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("device", c.c_int),
        ("reason", c.c_int),
        ("attempt", c.c_uint),
        ("wanted", c.c_size_t),
        ("live_bytes", c.c_uint64),
        ("reserved_bytes", c.c_uint64),
        ("limit_bytes", c.c_uint64),
    ]


class RuntimeInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("driver", c.c_char_p),
        ("placement", c.c_char_p),
        ("driver_version", c.c_int),
        ("device_count", c.c_int),
    ]


class Tensor(c.Structure):
    _fields_ = [
        ("buffer", c.c_void_p),
        ("offset", c.c_size_t),
        ("type", c.c_int),
        ("dims", c.c_int),
        ("shape", c.c_uint64 * 8),
        ("stride", c.c_int64 * 8),
    ]


class TraceInfo(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("records", c.c_uint64),
        ("dropped", c.c_uint64),
        ("bytes", c.c_uint64),
    ]


class TraceMessage(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("kind", c.c_int),
        ("failed", c.c_bool),
        ("ticket", Ticket),
        ("peer", c.c_int),
        ("tag", c.c_int),
        ("communicator", c.c_uint32),
        ("order", c.c_uint32),
        ("bytes", c.c_uint64),
        ("ready_ns", c.c_int64),
        ("posted_ns", c.c_int64),
        ("ended_ns", c.c_int64),
    ]


class TraceOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("detail", c.c_int),
        ("file_limit", c.c_uint64),
    ]


class TraceRank(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("rank", c.c_int),
        ("ranks", c.c_int),
        ("run", c.c_uint64),
        ("offset_ns", c.c_int64),
        ("within_ns", c.c_int64),
    ]


# ---- constants ----

VERSION = "0.3.0"
TENSOR_DIMS = 8
DEVICE_HOST = -1
FOREVER = -1
DLPACK_CPU = 0
DLPACK_UNORDERED = -1

# ---- functions: the type of the result, and those of the parameters ----

FUNCTIONS: dict[str, tuple[type, list[type]]] = {
    "hd_alloc": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_alloc_host": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_alloc_unified": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_alloc_with": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_buffer_address": (c.c_uint64, [c.c_void_p]),
    "hd_buffer_device": (c.c_int, [c.c_void_p]),
    "hd_buffer_export": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_buffer_save": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_buffer_set_label": (c.c_int, [c.c_void_p, c.c_char_p]),
    "hd_buffer_size": (c.c_size_t, [c.c_void_p]),
    "hd_buffer_wait": (c.c_int, [c.c_void_p, c.c_int, c.c_int64]),
    "hd_claim_begin": (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_claim_begin_stream": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_claim_begin_with": (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_claim_end": (c.c_int, [c.c_void_p, c.c_int]),
    "hd_claim_fail": (c.c_int, [c.c_void_p, c.c_int, c.c_char_p]),
    "hd_claim_get_pointer": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_claim_get_ticket": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_claim_on_ready": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_claim_read": (c.c_int, [c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p]),
    "hd_claim_ready": (c.c_bool, [c.c_void_p]),
    "hd_claim_wait": (c.c_int, [c.c_void_p, c.c_int64]),
    "hd_claim_write": (c.c_int, [c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p]),
    "hd_close": (c.c_int, [c.c_void_p]),
    "hd_copy": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p]),
    "hd_copy_box": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_device_count": (c.c_int, [c.c_void_p]),
    "hd_device_get_info": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_device_get_stats": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_device_restart": (c.c_int, [c.c_void_p, c.c_int]),
    "hd_dlpack_export": (c.c_int, [c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p]),
    "hd_dlpack_export_unversioned": (c.c_int, [c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p]),
    "hd_dlpack_get_device": (c.c_int, [c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p]),
    "hd_dlpack_import": (c.c_int, [c.c_void_p, c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p]),
    "hd_dlpack_import_unversioned": (c.c_int, [c.c_void_p, c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p]),
    "hd_done": (c.c_bool, [Ticket]),
    "hd_driver_entry": (c.c_int, [c.c_char_p, c.c_char_p, c.c_void_p]),
    "hd_element": (c.c_void_p, [c.c_void_p, c.c_size_t, c.c_size_t, c.c_int]),
    "hd_error_set": (c.c_int, [c.c_int, c.c_char_p]),
    "hd_fill": (c.c_int, [c.c_void_p, c.c_size_t, c.c_uint32, c.c_size_t, c.c_void_p]),
    "hd_free": (c.c_int, [c.c_void_p]),
    "hd_hold_add": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_hold_create": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_hold_destroy": (c.c_int, [c.c_void_p]),
    "hd_import": (c.c_int, [c.c_void_p, c.c_int, c.c_uint64, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_import_descriptor": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_import_host": (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_kernel_file_build": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_kernel_get": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "hd_kernel_get_parameter": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_lane_add_dependency": (c.c_int, [c.c_void_p, Ticket, c.c_void_p]),
    "hd_lane_create": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_lane_destroy": (c.c_int, [c.c_void_p]),
    "hd_lane_device": (c.c_int, [c.c_void_p]),
    "hd_lane_get_default": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_lane_get_ticket": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_lane_keep_times": (c.c_int, [c.c_void_p, c.c_bool]),
    "hd_lane_number": (c.c_int, [c.c_void_p]),
    "hd_lane_reset": (c.c_int, [c.c_void_p, c.c_int64]),
    "hd_lane_run_native": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_lane_wait": (c.c_int, [c.c_void_p, c.c_int64]),
    "hd_last_error": (type(None), [c.c_void_p]),
    "hd_launch": (c.c_int, [c.c_void_p, c.c_void_p, Dims, Dims, c.c_size_t, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_launch_host": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_loss_descriptor": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_loss_next": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_map": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_matmul_get_info": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_memory_each": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_memory_get_lanes": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_memory_get_stats": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_memory_on_finding": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_memory_on_reclaim": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_memory_report": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_memory_report_of": (c.c_int, [c.c_int, c.c_int, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_memory_trim": (c.c_int, [c.c_void_p, c.c_int, c.c_size_t, c.c_void_p]),
    "hd_message": (c.c_char_p, []),
    "hd_module_compile": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p]),
    "hd_module_get_builtin": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_module_get_global": (c.c_int, [c.c_void_p, c.c_int, c.c_char_p, c.c_void_p]),
    "hd_module_link": (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_module_load": (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "hd_module_load_file": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "hd_module_unload": (c.c_int, [c.c_void_p]),
    "hd_open": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_option_get_info": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p]),
    "hd_peer_check": (c.c_int, [c.c_void_p, c.c_int, c.c_int, c.c_void_p]),
    "hd_peer_verdict_text": (c.c_char_p, [c.c_int]),
    "hd_peers_check": (c.c_int, [c.c_void_p, c.c_uint, c.c_void_p, c.c_void_p]),
    "hd_range_pop": (c.c_int, [c.c_void_p]),
    "hd_range_push": (c.c_int, [c.c_void_p, c.c_char_p]),
    "hd_read": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t]),
    "hd_read_box": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
    "hd_runtime_get_info": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_status_name": (c.c_char_p, [c.c_int]),
    "hd_status_text": (c.c_char_p, [c.c_int]),
    "hd_tensor_alloc": (c.c_int, [c.c_void_p, c.c_int, c.c_int, c.c_void_p, c.c_void_p]),
    "hd_tensor_broadcast": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_void_p]),
    "hd_tensor_copy": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_tensor_elements": (c.c_uint64, [c.c_void_p]),
    "hd_tensor_is_contiguous": (c.c_bool, [c.c_void_p]),
    "hd_tensor_make": (c.c_int, [c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_void_p, c.c_void_p]),
    "hd_tensor_make_strided": (c.c_int, [c.c_void_p, c.c_size_t, c.c_int, c.c_int, c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_tensor_matmul": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_double, c.c_double, c.c_void_p]),
    "hd_tensor_permute": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "hd_tensor_read": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_tensor_reshape": (c.c_int, [c.c_void_p, c.c_int, c.c_void_p, c.c_void_p]),
    "hd_tensor_slice": (c.c_int, [c.c_void_p, c.c_int, c.c_uint64, c.c_uint64, c.c_int64, c.c_void_p]),
    "hd_tensor_transpose": (c.c_int, [c.c_void_p, c.c_int, c.c_int, c.c_void_p]),
    "hd_tensor_write": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_ticket_get_elapsed": (c.c_int, [Ticket, Ticket, c.c_void_p]),
    "hd_trace_active": (c.c_bool, [c.c_void_p]),
    "hd_trace_add_message": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_trace_set_rank": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_trace_start": (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "hd_trace_stop": (c.c_int, [c.c_void_p, c.c_void_p]),
    "hd_type_name": (c.c_char_p, [c.c_int]),
    "hd_type_size": (c.c_size_t, [c.c_int]),
    "hd_unmap": (c.c_int, [c.c_void_p]),
    "hd_version": (c.c_char_p, []),
    "hd_wait": (c.c_int, [Ticket, c.c_int64]),
    "hd_write": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t]),
    "hd_write_box": (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]),
}
