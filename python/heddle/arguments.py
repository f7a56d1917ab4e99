"""Arguments of launches: how a kernel uses a buffer, and numbers in the type of a parameter."""

from __future__ import annotations

import ctypes as c
import math
from typing import Any, NamedTuple

from . import _abi
from ._abi import Access, ArgKind
from .buffers import Buffer, use_of
from .dtypes import element_bits
from .tensors import Tensor

_INTEGERS = {
    ArgKind.I8: (-(1 << 7), (1 << 7) - 1), ArgKind.U8: (0, (1 << 8) - 1),
    ArgKind.I16: (-(1 << 15), (1 << 15) - 1), ArgKind.U16: (0, (1 << 16) - 1),
    ArgKind.I32: (-(1 << 31), (1 << 31) - 1), ArgKind.U32: (0, (1 << 32) - 1),
    ArgKind.I64: (-(1 << 63), (1 << 63) - 1), ArgKind.U64: (0, (1 << 64) - 1),
}  # fmt: skip
_C_KINDS = {
    c.c_int8: ArgKind.I8, c.c_uint8: ArgKind.U8, c.c_int16: ArgKind.I16, c.c_uint16: ArgKind.U16,
    c.c_int32: ArgKind.I32, c.c_uint32: ArgKind.U32, c.c_int64: ArgKind.I64, c.c_uint64: ArgKind.U64,
    c.c_float: ArgKind.F32, c.c_double: ArgKind.F64,
}  # fmt: skip


class Use(NamedTuple):
    """A tensor or buffer, and how a kernel uses it: in_(), out() or inout() make it."""

    target: Tensor | Buffer
    access: Access


def _use(target: Tensor | Buffer, access: Access) -> Use:
    if not isinstance(target, (Tensor, Buffer)):
        raise TypeError("heddle: in_(), out() and inout() take a tensor or buffer, got %r" % (target,))
    return Use(target, access)


def in_(target: Tensor | Buffer) -> Use:
    """The kernel reads the elements."""
    return _use(target, Access.READ)


def out(target: Tensor | Buffer) -> Use:
    """The kernel writes all elements, and reads none of their earlier values."""
    return _use(target, Access.WRITE)


def inout(target: Tensor | Buffer) -> Use:
    """The kernel reads and writes the elements."""
    return _use(target, Access.READ_WRITE)


class Parameter(NamedTuple):
    """A parameter of a kernel. If the kernel's image does not describe a fact, it is NONE, 0 or ""."""

    name: str
    kind: ArgKind
    access: Access
    nbytes: int


def buffer_argument(where: str, value: Any, access: Access) -> _abi.Arg:
    """A tensor or buffer, or a Use of one, as an argument. `access` is the kernel's own, 0 if unknown."""
    if isinstance(value, Use):
        value, access = value
    elif not access:
        raise TypeError(
            "heddle: %s: the kernel does not describe its accesses; pass in_(x), out(x) or inout(x)" % where
        )
    if isinstance(value, Buffer):
        return use_of(value, access, 0, 0)
    if not isinstance(value, Tensor):
        raise TypeError("heddle: %s: expects a tensor or buffer, got %r" % (where, value))
    if access & Access.WRITE and value.readonly:
        raise ValueError("heddle: %s: the tensor is read-only, and the kernel writes it" % where)
    if not value.is_contiguous:
        raise ValueError("heddle: %s: a kernel gets no strides; pass t.contiguous(), or t.buffer" % where)
    if value.size == 0:
        raise ValueError("heddle: %s: the tensor contains no elements" % where)
    return use_of(value.buffer, access, value.offset, value.nbytes, element_bits(value.dtype))


def _number(where: str, value: Any, kind: ArgKind) -> _abi.Arg:
    arg = _abi.Arg(kind=kind)
    if kind in (ArgKind.F32, ArgKind.F64):
        if isinstance(value, (str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
            raise TypeError("heddle: %s: expects a number, got %r" % (where, value))
        number = float(value)
        if kind == ArgKind.F32:
            arg.value.f32 = number
            if math.isinf(arg.value.f32) and not math.isinf(number):
                raise OverflowError("heddle: %s: %r is outside of f32" % (where, value))
        else:
            arg.value.f64 = number
        return arg
    try:
        whole = int(value) if getattr(getattr(value, "dtype", None), "kind", "") == "b" else value.__index__()
    except (AttributeError, TypeError):
        raise TypeError("heddle: %s: expects an integer (%s), got %r" % (where, kind.name.lower(), value)) from None
    low, high = _INTEGERS[kind]
    if not low <= whole <= high:
        raise OverflowError("heddle: %s: %d is outside of %d to %d" % (where, whole, low, high))
    arg.value.u64 = whole & 0xFFFFFFFFFFFFFFFF
    return arg


def _structure(value: Any, keep: list[Any]) -> _abi.Arg:
    """Bytes by value: of a structure of ctypes, or another object with contiguous memory."""
    raw = bytes(value)
    room = c.create_string_buffer(raw, max(1, len(raw)))
    keep.append(room)
    arg = _abi.Arg(kind=ArgKind.BYTES, size=len(raw))
    arg.value.bytes = c.addressof(room)
    return arg


def argument(where: str, value: Any, parameter: Parameter, keep: list[Any]) -> _abi.Arg:
    """The argument of C for a value of Python. `keep` gets the objects that must live until the launch."""
    if isinstance(value, (Use, Tensor, Buffer)):
        return buffer_argument(where, value, parameter.access)
    kind = parameter.kind
    if kind == ArgKind.BUFFER:
        raise TypeError("heddle: %s: expects a tensor or buffer, got %r" % (where, value))
    if kind in _INTEGERS or kind in (ArgKind.F32, ArgKind.F64):
        return _number(where, getattr(value, "value", value) if type(value) in _C_KINDS else value, kind)
    if type(value) in _C_KINDS:
        return _number(where, value.value, _C_KINDS[type(value)])
    if isinstance(value, (c.Structure, c.Union, c.Array, bytes, bytearray, memoryview)) or hasattr(value, "dtype"):
        return _structure(value, keep)
    raise TypeError(
        "heddle: %s: the kernel describes only the size of this parameter (%d bytes), and %r does not state its own; "
        "pass a number of ctypes or NumPy, such as ctypes.c_float(2)" % (where, parameter.nbytes, value)
    )
