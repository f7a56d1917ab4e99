"""Heddle: one process drives all devices of a machine, and keeps work on the same bytes in order.

>>> import heddle
>>> x = heddle.array([[1, 2], [3, 4]], "f32")
>>> y = x @ x.T
>>> y.numpy().tolist()
[[5.0, 11.0], [11.0, 25.0]]

Calls submit work and return at once; numpy(), wait() and await wait for it.

Three functions are missing in the list below, since `from heddle import *` leaves Python's own functions visible:
heddle.open() opens the devices, heddle.compile() compiles CUDA C++, and heddle.range() names work in traces.
"""

from . import _exchange as _exchange
from ._abi import VERSION as __version__
from ._abi import Access, LossCause, PeerVerdict, Status, Type
from .arguments import Parameter, Use, in_, inout, out
from .buffers import Buffer, alloc
from .claims import Claim, claim
from .dlpack import from_dlpack
from .errors import Error
from .kernels import Kernel, Module, builtin, load, load_image
from .kernels import compile as compile
from .lanes import Lane, current_lane
from .paths import cmake_dir, include_dir, library_dir, pkgconfig_dir
from .runtime import Device, Runtime, current, lane, memory_report
from .runtime import open as open
from .safetensors import load_safetensors
from .tensors import Tensor, array, copy, empty, matmul, zeros
from .tickets import Ticket
from .traces import Trace, mark, trace
from .traces import range as range

# Names of Python's own functions are missing here, so that `from heddle import *` does not hide them.
__all__ = [
    "Access",
    "Buffer",
    "Claim",
    "Device",
    "Error",
    "Kernel",
    "Lane",
    "LossCause",
    "Module",
    "Parameter",
    "PeerVerdict",
    "Runtime",
    "Status",
    "Tensor",
    "Ticket",
    "Trace",
    "Type",
    "Use",
    "__version__",
    "alloc",
    "array",
    "builtin",
    "claim",
    "cmake_dir",
    "copy",
    "current",
    "current_lane",
    "empty",
    "from_dlpack",
    "in_",
    "include_dir",
    "inout",
    "lane",
    "library_dir",
    "load",
    "load_image",
    "load_safetensors",
    "mark",
    "matmul",
    "memory_report",
    "out",
    "pkgconfig_dir",
    "trace",
    "zeros",
]
