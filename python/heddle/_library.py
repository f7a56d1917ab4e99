"""Loads the shared library, declares its functions, and turns statuses into exceptions.

Threads: every call releases the interpreter's lock, since threads of Heddle may need this lock: the
function that a producer of DLPack passed takes it, for example.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
from typing import Any

from . import _abi, paths
from ._names import in_python
from .errors import Error


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _load() -> c.CDLL:
    path = paths.library()
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise ImportError(
            "heddle: the library cannot be loaded: %s; install the package heddle-gpu, or let the variable %s name "
            "libheddle.so" % (error, paths.OVERRIDE)
        ) from error
    try:
        library.hd_version.restype = c.c_char_p
        version = library.hd_version().decode()
    except AttributeError:
        raise ImportError(
            "heddle: %s is no library of Heddle; let %s name libheddle.so" % (path, paths.OVERRIDE)
        ) from None
    if _numbers(version) < _numbers(_abi.VERSION):
        raise ImportError("heddle: %s is release %s; this package needs %s" % (path, version, _abi.VERSION))
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = None if result is type(None) else result
        function.argtypes = parameters
    return library


lib = _load()


def sized(structure: Any, **fields: Any) -> Any:
    """A structure that begins with its size."""
    made = structure(**fields)
    made.size = c.sizeof(structure)
    return made


def text(value: bytes) -> str:
    """Text of the library; bytes that are no UTF-8 become question marks."""
    return value.decode("utf-8", "replace")


def last_error() -> Error:
    """The calling thread's last failure."""
    e = sized(_abi.Error)
    lib.hd_last_error(c.byref(e))
    return Error(
        _abi.Status(e.status),
        in_python(text(e.message)),
        device=e.device if e.device >= 0 else None,
        lane=e.lane if e.lane >= 0 else None,
        ticket=e.ticket or None,
        operation=text(e.operation),
        kernel=text(e.kernel),
        driver_code=e.driver_code,
    )


def check(status: int) -> None:
    """Raises the exception of a call that failed."""
    if status:
        raise last_error()


def as_dict(structure: Any) -> dict[str, Any]:
    """The fields of a structure, as Python's own types."""
    out: dict[str, Any] = {}
    for field, *_ in structure._fields_:
        value = getattr(structure, field)
        if field == "size" and field == structure._fields_[0][0]:
            continue
        if isinstance(value, bytes):
            value = text(value)
        elif isinstance(value, c.Array):
            value = bytes(value) if value._type_ is c.c_uint8 else list(value)
        out[field] = value
    return out


_LABEL = 31  # bytes


def caller() -> bytes:
    """The place in the program that called this package, such as b"train.py:57": the default of labels."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame = frame.f_back
    line = b":%d" % frame.f_lineno
    name = os.fsencode(os.path.basename(frame.f_code.co_filename))[-(_LABEL - len(line)) :]
    return name.decode("utf-8", "ignore").encode() + line  # a character that the cut left in part goes


def encode(value: str | os.PathLike[str] | None) -> bytes | None:
    """Text for a parameter of the library, which ends at the first zero byte."""
    if value is None:
        return None
    out = os.fsencode(value)
    if b"\0" in out:
        raise ValueError("heddle: the text %r contains a zero byte; remove it" % (value,))
    return out
