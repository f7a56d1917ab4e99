"""The functions of C that packages find at heddle.Tensor.__dlpack_c_exchange_api__ (python/native/exchange.c).

Threads: any. C calls the functions of this file with the interpreter's lock.
"""

from __future__ import annotations

import ctypes as c
import weakref
from typing import Any

from . import _abi
from ._abi import DLPACK_CPU, Status
from ._lenders import lender, lent_at
from ._library import caller, check, last_error, lib, sized
from .buffers import Buffer
from .dlpack import _LEGACY_STREAM, CPU, CUDA, CUDA_MANAGED, _import, _name, _native, _new
from .dtypes import type_of
from .runtime import Runtime, opened_first
from .tensors import Tensor, _strided

_INTERPRETER = (
    "PyObject_GetAttrString", "PyLong_AsVoidPtr", "PyLong_FromVoidPtr", "Py_DecRef",
    "PyObject_CallFunctionObjArgs", "PyEval_SaveThread", "PyEval_RestoreThread", "PyGILState_Ensure",
    "PyGILState_Release", "PyErr_Clear",
)  # fmt: skip
_LABEL = "dlpack"


class _View(c.Structure):
    """DLTensor"""

    _fields_ = [
        ("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("dims", c.c_int32),
        ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64),
    ]  # fmt: skip


class _Managed(c.Structure):
    """DLManagedTensorVersioned"""

    _fields_ = [
        ("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", c.c_void_p),
        ("flags", c.c_uint64), ("tensor", _View),
    ]  # fmt: skip


class _Unversioned(c.Structure):
    """DLManagedTensor"""

    _fields_ = [("tensor", _View), ("context", c.c_void_p), ("deleter", c.c_void_p)]


_TYPES = {
    (code, bits): kind
    for kind, code, bits in (
        ("i8", 0, 8), ("i16", 0, 16), ("i32", 0, 32), ("i64", 0, 64), ("u8", 1, 8), ("u16", 1, 16), ("u32", 1, 32),
        ("u64", 1, 64), ("f16", 2, 16), ("f32", 2, 32), ("f64", 2, 64), ("bf16", 4, 16), ("c64", 5, 64),
        ("c128", 5, 128), ("u8", 6, 8),
    )
}  # fmt: skip


def _fail() -> None:
    raise last_error()


def _lender_for(device_type: int) -> int:
    """The address of the lender for new tensors; 0 after a failure, with its message for C."""
    try:
        runtime = opened_first()
        wanted = CUDA if runtime.driver == "nvidia" else CPU
        if device_type != wanted:
            text = "heddle: DLPack's device type %d is asked for, and new tensors are of type %d" % (
                device_type,
                wanted,
            )
            lib.hd_error_set(Status.UNSUPPORTED, text.encode())
            return 0
        return int(lender(_LABEL, runtime).handle)
    except Exception as error:
        lib.hd_error_set(Status.FAILED, str(error).encode())
        return 0


def _take(address: int) -> Tensor:
    """Makes a tensor of a managed tensor, which it then owns."""
    stream = _LEGACY_STREAM if _Managed.from_address(address).tensor.device_type in (CUDA, CUDA_MANAGED) else DLPACK_CPU
    out = lent(address, True, stream, None)
    return _import(opened_first(), address, True, stream, None) if out is None else out


def lent(address: int, versioned: bool, stream: int, runtime: Runtime | None) -> Tensor | None:
    """The tensor over memory that a package took from Heddle; None for other memory.

    The tensor owns the managed tensor at `address`. Uses by Heddle run after the work that is in the stream now.
    """
    managed = (_Managed if versioned else _Unversioned).from_address(address)
    view = managed.tensor
    found = lent_at(view.data, runtime) if view.data else None
    if found is None:
        return None
    dtype = _TYPES.get((view.code, view.bits))
    if dtype is None or view.lanes != 1:
        raise BufferError("heddle: no type of elements is DLPack's (%d, %d, %d)" % (view.code, view.bits, view.lanes))
    buffer = Buffer(*found, owned=False)
    if stream > 0:
        _begin_after(buffer, stream)
    width = view.bits // 8
    shape = [view.shape[i] for i in range(view.dims)]
    strides = [view.strides[i] * width for i in range(view.dims)] if view.strides else _row_major(shape, width)
    offset = view.data - buffer.address + view.byte_offset
    readonly = versioned and bool(managed.flags & _abi.DlpackFlags.READ_ONLY)
    out = Tensor(buffer, _strided(buffer, offset, type_of(dtype), shape, strides), readonly)
    if managed.deleter:
        weakref.finalize(buffer, c.CFUNCTYPE(None, c.c_void_p)(managed.deleter), address).atexit = False
    return out


def _begin_after(buffer: Buffer, stream: int) -> None:
    """Later uses of the buffer run after the work that is in the stream now."""
    use, claim = _abi.Arg(kind=_abi.ArgKind.BUFFER, access=int(_abi.Access.READ_WRITE)), c.c_void_p()
    use.value.buffer = buffer._handle
    where, runtime = buffer.device or 0, buffer.runtime._handle
    options = sized(_abi.ClaimOptions, label=caller())
    check(lib.hd_claim_begin_stream(runtime, where, stream, c.byref(use), 1, c.byref(options), c.byref(claim)))
    check(lib.hd_claim_end(claim, 0))


def _row_major(shape: list[int], itemsize: int) -> list[int]:
    strides = [itemsize] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def _table() -> Any:
    """The capsule with the table of functions."""
    functions = [c.cast(getattr(c.pythonapi, name), c.c_void_p).value for name in _INTERPRETER]
    begin = _native.hd_python_exchange_begin
    begin.restype = c.c_void_p
    begin.argtypes = [c.POINTER(c.c_void_p)]
    table = (c.c_void_p * (len(functions) + 3))(*functions, id(_fail), id(_take), id(_lender_for))
    return _new(begin(table), _name("exchange_name"), None)


Tensor.__dlpack_c_exchange_api__ = _table()
