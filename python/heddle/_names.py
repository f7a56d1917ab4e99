"""Messages of the library with the names of this package in place of those of C.

Threads: any. There are no locks, and the file keeps no state.
Always: a name without an entry stays as it is, such as those of kernels.
"""

from __future__ import annotations

import re

_NAMES = {
    "hd_open": "heddle.open", "hd_close": "Runtime.close",
    "hd_alloc_with": "heddle.alloc", "hd_alloc_host": "heddle.alloc", "hd_alloc_unified": "heddle.alloc",
    "hd_write": "Buffer.write", "hd_read": "Buffer.read", "hd_fill": "Buffer.fill", "hd_copy": "Buffer.copy_from",
    "hd_map": "Buffer.map", "hd_unmap": "Buffer.map", "hd_free": "Buffer.free", "hd_buffer_wait": "Buffer.wait",
    "hd_buffer_save": "Buffer.save", "hd_buffer_set_label": "Buffer.set_label",
    "hd_tensor_copy": "heddle.copy", "hd_tensor_read": "Tensor.read_into", "hd_tensor_write": "Tensor.write",
    "hd_tensor_reshape": "Tensor.reshape", "hd_tensor_broadcast": "Tensor.broadcast_to",
    "hd_tensor_permute": "Tensor.transpose", "hd_tensor_matmul": "heddle.matmul", "hd_tensor_make": "Buffer.tensor",
    "hd_dlpack_import": "heddle.from_dlpack", "hd_dlpack_export": "Tensor.__dlpack__",
    "hd_lane_create": "Runtime.lane", "hd_lane_wait": "Lane.wait", "hd_lane_reset": "Lane.reset",
    "hd_lane_destroy": "Lane.close", "hd_lane_add_dependency": "Lane.add_dependency",
    "hd_lane_run_native": "Lane.run_native", "hd_lane_keep_times": "Lane.keep_times",
    "hd_wait": "Ticket.wait", "hd_ticket_get_elapsed": "Ticket.elapsed_since",
    "hd_claim_begin_with": "heddle.claim", "hd_claim_begin_stream": "heddle.claim", "hd_claim_wait": "Claim.wait",
    "hd_claim_end": "Claim.end", "hd_claim_get_pointer": "Claim.numpy",
    "hd_launch": "Kernel launch", "hd_kernel_get": "Module.kernel", "hd_module_compile": "heddle.compile",
    "hd_module_load": "heddle.load_image", "hd_module_load_file": "heddle.load",
    "hd_module_get_global": "Module.variable", "hd_module_unload": "Module.unload",
    "hd_memory_trim": "Runtime.trim", "hd_memory_get_stats": "Runtime.memory_stats", "hd_peer_check": "Runtime.peer",
    "hd_memory_report": "Runtime.memory", "hd_memory_report_of": "heddle.memory_report",
    "hd_device_restart": "Device.restart", "hd_trace_start": "heddle.trace", "hd_trace_stop": "heddle.trace",
    "hd_range_push": "heddle.range", "hd_range_pop": "heddle.range",
}  # fmt: skip
_NAME = re.compile(r"\bhd_[a-z_0-9]+\b")
_SITE = re.compile(r" of (?:libffi|_ctypes)[^ ,;:()]*")  # where C saw the call: between Python and the library


def in_python(message: str) -> str:
    """The message for a program in Python. Labels name the places of calls, so places in libffi go."""
    return _NAME.sub(lambda found: _NAMES.get(found.group(), found.group()), _SITE.sub("", message))
