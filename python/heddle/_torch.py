"""The C functions that PyTorch calls for memory: python/native/torch.c, for ctypes."""

from __future__ import annotations

import ctypes as c
import os

from . import paths

LIBRARY = os.path.join(paths.library_dir(), "libheddle_python.so")


class Figures(c.Structure):
    """The figures of PyTorch's memory on one device (torch_figures)."""

    _fields_ = [
        ("size", c.c_size_t),
        ("requested_bytes", c.c_uint64),
        ("requested_peak_bytes", c.c_uint64),
        ("live_bytes", c.c_uint64),
        ("live_peak_bytes", c.c_uint64),
        ("lent_bytes", c.c_uint64),
        ("cached_bytes", c.c_uint64),
        ("graph_bytes", c.c_uint64),
        ("allocations", c.c_uint64),
        ("fetches", c.c_uint64),
        ("releases", c.c_uint64),
        ("graphs", c.c_uint64),
    ]


_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "hd_torch_begin": (c.c_int, [c.c_void_p, c.c_void_p, c.c_int]),
    "hd_torch_end": (None, []),
    "hd_torch_try_alloc": (c.c_void_p, [c.c_size_t, c.c_int, c.c_void_p]),
    "hd_torch_free": (None, [c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]),
    "hd_torch_record_stream": (None, [c.c_void_p, c.c_void_p]),
    "hd_torch_empty_cache": (None, []),
    "hd_torch_set_fraction": (None, [c.c_double, c.c_int]),
    "hd_torch_set_label": (None, [c.c_char_p]),
    "hd_torch_pool_alloc": (c.c_void_p, [c.c_size_t, c.c_int, c.c_void_p]),
    "hd_torch_pool_free": (None, [c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]),
    "hd_torch_get_figures": (c.c_int, [c.c_int, c.c_void_p]),
    "hd_torch_reset_peak": (None, [c.c_int]),
    "hd_torch_find": (c.c_void_p, [c.c_void_p]),
}


def _load() -> c.CDLL:
    library = c.CDLL(LIBRARY)
    for name, (result, parameters) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters
    return library


native = _load()


def address_of(name: str) -> int:
    """The address of a function of C."""
    return c.cast(getattr(native, name), c.c_void_p).value or 0


# ---- large pages of the host ----

LARGE_PAGE = 2 << 20
LARGE_PAGES_LEAST = 32 << 20
"""The C library's malloc takes larger memory from the system and gives it back alone, so nothing else is in it."""
_MADV_HUGEPAGE = 14
_libc = c.CDLL(None)
_libc.madvise.argtypes = [c.c_void_p, c.c_size_t, c.c_int]


def use_large_pages(address: int, nbytes: int) -> None:
    """Asks the system for large pages in fresh memory, whose first use otherwise takes longer than a copy into it."""
    first = -(-address // LARGE_PAGE) * LARGE_PAGE
    end = (address + nbytes) // LARGE_PAGE * LARGE_PAGE
    if nbytes >= LARGE_PAGES_LEAST and first < end:
        _libc.madvise(first, end - first, _MADV_HUGEPAGE)  # a system that refuses uses small pages
