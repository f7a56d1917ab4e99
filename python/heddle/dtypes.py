"""Types of elements: their names here, in NumPy, and in launches."""

from __future__ import annotations

from typing import Any, Union

from ._abi import ArgKind, Type

TypeLike = Union[Type, str, type, Any]
"""An element type: a Type, a name such as "f32" or "float32", or a type of NumPy."""

_NUMPY = {
    Type.I8: "int8", Type.U8: "uint8", Type.I16: "int16", Type.U16: "uint16", Type.I32: "int32", Type.U32: "uint32",
    Type.I64: "int64", Type.U64: "uint64", Type.F16: "float16", Type.F32: "float32", Type.F64: "float64",
    Type.C64: "complex64", Type.C128: "complex128",
}  # fmt: skip
_NAMES = {t.name.lower(): t for t in Type}
_NAMES.update({name: t for t, name in _NUMPY.items()})
_NAMES.update({"bfloat16": Type.BF16, "float": Type.F64, "int": Type.I64, "complex": Type.C128})
_SIZES = {t: int(t.name[1:].replace("F", "")) // 8 for t in Type}


def type_of(what: TypeLike) -> Type:
    """The element type that a name or a type of NumPy stands for.

    >>> type_of("float32") is type_of("f32") is Type.F32
    True
    """
    if isinstance(what, Type):
        return what
    if not getattr(what, "isnative", True):
        raise TypeError("heddle: elements of %r have another order of bytes; convert them first" % (what,))
    name = what if isinstance(what, str) else str(getattr(what, "name", None) or getattr(what, "__name__", ""))
    found = _NAMES.get(name)
    if found is None and name in ("bool", "bool_"):
        raise TypeError('heddle: there is no type bool; pass "u8" for bytes of 0 and 1, and t.numpy() != 0 is a mask')
    if found is None:
        raise TypeError("heddle: no type of elements is %r; it has: %s" % (what, ", ".join(_NAMES)))
    return found


def itemsize(dtype: Type) -> int:
    """The bytes of an element."""
    return _SIZES[dtype]


def numpy_name(dtype: Type) -> str:
    """The name of a type in NumPy."""
    if dtype not in _NUMPY:
        raise TypeError('heddle: NumPy has no type bf16; t.view("u16") shows the same bits as integers')
    return _NUMPY[dtype]


def element_bits(dtype: Type) -> int:
    """The type of the elements as bits of hd_arg.access; a launch compares it with the kernel's type."""
    kind = ArgKind.__members__.get(dtype.name, ArgKind.BYTES)
    return int(kind) << 8 | itemsize(dtype) << 16
