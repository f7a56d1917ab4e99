"""DLPack: tensors given to other libraries and taken from them, without a copy."""

from __future__ import annotations

import ctypes as c
import os
from typing import TYPE_CHECKING, Any

from . import _abi, paths
from ._abi import DLPACK_CPU, DLPACK_UNORDERED, DlpackFlags
from ._library import caller, check, encode, lib, sized
from .buffers import Buffer, await_bytes
from .runtime import Runtime, current

if TYPE_CHECKING:
    from .tensors import Tensor

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # kinds of devices
_VERSION = (1, 3)  # of DLPack, that this package asks for
_FLAGS_AT = 24  # in DLManagedTensorVersioned: version, context and deleter are in front
_LEGACY_STREAM = 1

_native = c.CDLL(os.path.join(paths.library_dir(), "libheddle_python.so"))
_python = c.pythonapi
_native.hd_python_begin.argtypes = [c.c_void_p, c.c_void_p]
_native.hd_python_begin(c.cast(_python.PyCapsule_IsValid, c.c_void_p), c.cast(_python.PyCapsule_GetPointer, c.c_void_p))
_END = c.cast(_native.hd_python_capsule_end, c.c_void_p)
_new = c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_void_p, c.c_void_p)(("PyCapsule_New", _python))
_is = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_void_p)(("PyCapsule_IsValid", _python))
_get = c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_void_p)(("PyCapsule_GetPointer", _python))
_rename = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_void_p)(("PyCapsule_SetName", _python))


def _name(which: str) -> int:
    return c.addressof(c.c_char.in_dll(_native, "hd_python_" + which))


_VERSIONED, _PLAIN = _name("versioned"), _name("plain")
_USED_VERSIONED, _USED_PLAIN = _name("used_versioned"), _name("used_plain")


# ---- to others ----


def _is_cuda(t: Tensor) -> bool:
    """True if consumers get CUDA memory; otherwise the CPU uses the elements."""
    runtime = t.runtime
    return runtime.driver == "nvidia" and runtime.placement != "process" and t.device is not None


def exchange_stream(t: Tensor) -> int:
    """The number of the stream in which a package that uses the functions of C puts its work."""
    return _LEGACY_STREAM if _is_cuda(t) else DLPACK_CPU


def device_of(t: Tensor) -> tuple[int, int]:
    """The kind and number of the device that an export names."""
    kind, number = c.c_int32(), c.c_int32()
    stream = _LEGACY_STREAM if _is_cuda(t) else DLPACK_CPU
    check(lib.hd_dlpack_get_device(c.byref(t._value), stream, c.byref(kind), c.byref(number)))
    return kind.value, number.value


def _stream(stream: int | None, cuda: bool) -> int:
    """Converts the consumer's stream to a number for the library."""
    if not cuda:
        if stream not in (None, DLPACK_UNORDERED):
            raise BufferError("heddle: the stream is %r, but the tensor is memory of the CPU; pass None" % (stream,))
        return DLPACK_CPU if stream is None else DLPACK_UNORDERED
    if stream == 0:
        raise BufferError("heddle: stream 0 is ambiguous in DLPack; pass 1, 2, or a stream's handle")
    return _LEGACY_STREAM if stream is None else int(stream)


def export(
    t: Tensor,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The method __dlpack__ of a tensor."""
    own = device_of(t)
    wanted = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    versioned = max_version is not None and max_version[0] >= 1
    if wanted != own and not (wanted[0] == CPU and own[0] == CUDA_HOST):
        if wanted[0] != CPU:
            raise BufferError("heddle: DLPack's device %r is asked for; call t.to(device) first" % (wanted,))
        if copy is False:
            raise BufferError("heddle: the CPU cannot use this memory without a copy")
        host = t.numpy()
        return host.__dlpack__(max_version=max_version) if versioned else host.__dlpack__()
    if copy:
        from .tensors import copy as copy_elements
        from .tensors import empty

        kind = "pinned" if t.device is None else "device"
        out = empty(t.shape, t.dtype, kind=kind, device=t.device, runtime=t.runtime)
        copy_elements(out, t)
        t = out
    return _capsule(t, _stream(stream, own[0] == CUDA), versioned)


def flags_of(t: Tensor) -> int:
    """The flags of an export with a version."""
    repeats = any(n > 1 and s == 0 for n, s in zip(t.shape, t.strides))
    return int(DlpackFlags.READ_ONLY) if t.readonly or repeats else 0


def _capsule(t: Tensor, stream: int, versioned: bool) -> Any:
    if t.readonly and not versioned:
        raise BufferError("heddle: the tensor is read-only, and the consumer asks for DLPack without a version")
    flags = flags_of(t) if versioned else 0
    if stream == DLPACK_CPU:
        await_bytes(t.buffer, *t.span())
    options = sized(_abi.DlpackOptions, flags=flags, label=caller())
    managed = c.c_void_p()
    call = lib.hd_dlpack_export if versioned else lib.hd_dlpack_export_unversioned
    check(call(c.byref(t._value), stream, c.byref(options), c.byref(managed)))
    return _new(managed.value, _VERSIONED if versioned else _PLAIN, _END)


def cuda_array_interface(t: Tensor) -> dict[str, Any]:
    """The property __cuda_array_interface__ of a tensor."""
    if not _is_cuda(t):
        raise AttributeError("heddle: the tensor is no CUDA memory of this process")
    claims = t.buffer._stream_claims
    if not claims:
        raise AttributeError("heddle: use the tensor inside of `with heddle.claim(..., stream=s):`, or by DLPack")
    return interface_of(t, t.buffer.address, t.readonly or not any(claims))


def interface_of(t: Tensor, address: int, readonly: bool) -> dict[str, Any]:
    """A tensor whose buffer is at this address, in the form of the CUDA Array Interface, version 3."""
    from .dtypes import numpy_name

    name = numpy_name(t.dtype)
    kind = name[0]
    return {
        "shape": t.shape,
        "typestr": "%s%s%d" % ("|" if t.itemsize == 1 else "<", kind, t.itemsize),
        "data": (address + t.offset if t.size else 0, readonly),
        "strides": None if t.is_contiguous else t.strides,
        "version": 3,
        "stream": None,  # the claim has ordered the stream already
    }


# ---- from others ----


def _number_of(stream: Any) -> int:
    """DLPack's number of a stream: DLPack counts the default stream as 1."""
    from .claims import stream_of

    return stream_of(stream) or _LEGACY_STREAM


def _ask(producer: Any, stream: int | None) -> Any:
    """The producer's capsule; older producers accept fewer arguments."""
    where = {} if stream is None else {"stream": stream}
    try:
        return producer.__dlpack__(max_version=_VERSION, **where)
    except TypeError:
        return producer.__dlpack__(**where)


def from_dlpack(
    producer: Any,
    *,
    stream: Any = None,
    runtime: Runtime | None = None,
    label: str | None = None,
) -> Tensor:
    """Makes a tensor over memory of another library: NumPy, PyTorch, CuPy, JAX and others.

    The elements stay in place, and the producer keeps them until Heddle no longer uses them.
    For memory of a GPU, uses by Heddle run after the work that is in the producer's `stream` now: a number of DLPack
    or a stream of PyTorch, CuPy, Numba or cuda.core. Without this argument, it is CUDA's legacy default stream.
    The producer may also be an array that only has `__cuda_array_interface__`, as the arrays of Numba.
    """
    from ._exchange import lent
    from .tensors import Tensor

    if isinstance(producer, Tensor):
        return producer
    if not hasattr(producer, "__dlpack_device__") and hasattr(producer, "__cuda_array_interface__"):
        return _from_cuda_array(producer, stream, runtime, label)
    kind = producer.__dlpack_device__()[0]
    if kind in (CUDA, CUDA_MANAGED):
        stream = _LEGACY_STREAM if stream is None else _number_of(stream)
    elif stream is not None:
        raise ValueError("heddle.from_dlpack: the argument stream is for memory of a GPU")
    capsule = _ask(producer, stream)
    versioned = bool(_is(capsule, _VERSIONED))
    if not versioned and not _is(capsule, _PLAIN):
        raise TypeError("heddle.from_dlpack: the producer's capsule contains no tensor")
    managed = _get(capsule, _VERSIONED if versioned else _PLAIN)
    number = DLPACK_CPU if stream is None else stream
    tensor = lent(managed, versioned, number, runtime)
    if tensor is None:
        tensor = _import(runtime or current(), managed, versioned, number, label)
    _rename(capsule, _USED_VERSIONED if versioned else _USED_PLAIN)
    return tensor


def _from_cuda_array(producer: Any, stream: Any, runtime: Runtime | None, label: str | None) -> Tensor:
    """A tensor over an array that has no DLPack, only the CUDA Array Interface."""
    from . import _cuda_arrays
    from ._exchange import lent

    managed, own = _cuda_arrays.managed_of(producer, runtime or current())
    try:
        if own is None and stream is not None:
            raise ValueError("heddle.from_dlpack: the argument stream is for memory of a GPU")
        number = DLPACK_CPU if own is None else own if stream is None else _number_of(stream)
        tensor = lent(managed, True, number, runtime)
        return _import(runtime or current(), managed, True, number, label) if tensor is None else tensor
    except BaseException:
        _cuda_arrays.drop(managed)
        raise


def _import(runtime: Runtime, managed: int, versioned: bool, stream: int, label: str | None) -> Tensor:
    """A tensor over the memory of a managed tensor, which then belongs to Heddle."""
    from .tensors import Tensor

    readonly = versioned and bool(c.c_uint64.from_address(managed + _FLAGS_AT).value & 1)
    flags = int(DlpackFlags.READ_ONLY) if readonly else 0
    options = sized(_abi.DlpackOptions, flags=flags, label=encode(label) or caller())
    out = _abi.Tensor()
    call = lib.hd_dlpack_import if versioned else lib.hd_dlpack_import_unversioned
    check(call(runtime._handle, managed, stream, c.byref(options), c.byref(out)))
    return Tensor(Buffer(runtime, out.buffer, readonly=readonly), out, readonly)
