"""Buffers: memory whose uses Heddle tracks and orders."""

from __future__ import annotations

import ctypes as c
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _abi, _waiting
from ._abi import Access
from ._library import caller, check, encode, lib, sized
from ._objects import Single, whole
from .errors import Error
from .lanes import Lane, choose
from .runtime import DeviceLike, Runtime, device_number, runtime_for
from .tickets import Ticket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .claims import Claim
    from .dtypes import TypeLike
    from .tensors import Tensor

KINDS = ("device", "pinned", "unified")


class Buffer(Single):
    """Memory on a device, or pinned memory of the host. ``heddle.alloc()`` makes it.

    Heddle frees the memory when no object of Python refers to the buffer any more, and submitted work
    no longer uses it.

    >>> import heddle
    >>> b = heddle.alloc(16)
    >>> b.write(b"0123456789abcdef")
    >>> b.read(offset=10, nbytes=4)
    b'abcd'
    """

    def __init__(self, runtime: Runtime, handle: Any, owned: bool = True, readonly: bool = False) -> None:
        self._runtime = runtime
        self._handle = handle
        self._owned = owned
        self._readonly = readonly
        self._stream_claims: list[bool] = []  # open claims on streams; True for one that writes
        self._block_claims: list[weakref.ref[Claim]] = []  # claims whose ``with`` block began
        self._is_unified = False
        self._mappings = 0  # blocks of map() that did not end

    @property
    def runtime(self) -> Runtime:
        """The runtime of the buffer."""
        return self._runtime

    @property
    def readonly(self) -> bool:
        """True for the memory of an array that its library gave away as read-only: each call that writes it fails."""
        return self._readonly

    def _refuse_readonly(self) -> None:
        if self._readonly:
            raise ValueError("heddle: the buffer is read-only memory of another library; copy it first")

    @property
    def nbytes(self) -> int:
        """The size in bytes; 0 after free()."""
        return int(lib.hd_buffer_size(self._handle))

    @property
    def device(self) -> int | None:
        """The number of the device with the memory; None for pinned memory."""
        number = int(lib.hd_buffer_device(self._handle))
        return number if number >= 0 else None

    @property
    def address(self) -> int:
        """The address at which kernels see the buffer. Heddle does not order uses of this address."""
        return int(lib.hd_buffer_address(self._handle))

    def set_label(self, label: str | None) -> None:
        """Names the buffer in messages and reports."""
        check(lib.hd_buffer_set_label(self._handle, encode(label)))

    def write(self, data: Any, offset: int = 0) -> None:
        """Copies bytes to the buffer: of `bytes`, an array of NumPy, or another object with contiguous memory."""
        self._refuse_readonly()
        at = whole("offset", offset)
        address, nbytes, keep = memory_of(data)
        await_write(self, at, nbytes)
        check(lib.hd_write(self._handle, at, address, nbytes))
        del keep

    def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Copies bytes of the buffer, after all submitted writes to them. Ctrl-C ends the wait."""
        at = whole("offset", offset)
        count = max(0, self.nbytes - at) if nbytes is None else whole("nbytes", nbytes)
        if self._handle and count > self.nbytes:
            raise Error(_abi.Status.RANGE, "heddle: nbytes is %d, and the buffer has %d bytes" % (count, self.nbytes))
        out = bytearray(count)
        self.read_into(out, at)
        return bytes(out)

    def read_into(self, out: Any, offset: int = 0) -> None:
        """Copies bytes of the buffer to writable memory, such as a bytearray or an array of NumPy."""
        at = whole("offset", offset)
        address, nbytes, keep = memory_of(out, writable=True)
        await_bytes(self, at, nbytes)
        check(lib.hd_read(self._handle, at, address, nbytes))
        del keep

    def copy_from(self, source: Buffer, offset: int = 0, source_offset: int = 0, nbytes: int | None = None) -> Ticket:
        """Copies bytes of another buffer of the runtime to this buffer. The call does not wait for the bytes."""
        self._refuse_readonly()
        at, start = whole("offset", offset), whole("source_offset", source_offset)
        count = max(0, source.nbytes - start) if nbytes is None else whole("nbytes", nbytes)
        out = _abi.Ticket()
        check(lib.hd_copy(self._handle, at, source._handle, start, count, c.byref(out)))
        return Ticket(self._runtime, out)

    def fill(self, pattern: int, offset: int = 0, nbytes: int | None = None) -> Ticket:
        """Fills bytes with a repeated pattern of 32 bits. Offset and size must be multiples of 4."""
        self._refuse_readonly()
        at, bits = whole("offset", offset), whole("pattern", pattern, -(1 << 31), (1 << 32) - 1) & 0xFFFFFFFF
        count = max(0, self.nbytes - at) if nbytes is None else whole("nbytes", nbytes)
        out = _abi.Ticket()
        check(lib.hd_fill(self._handle, at, bits, count, c.byref(out)))
        return Ticket(self._runtime, out)

    def save(self) -> Ticket:
        """Copies a buffer made with keep=True to the host. A restart of a lost device brings the copy back."""
        out = _abi.Ticket()
        check(lib.hd_buffer_save(self._handle, c.byref(out)))
        return Ticket(self._runtime, out)

    def wait(self, access: Access = Access.READ, timeout: float | None = None) -> None:
        """Waits until submitted work that writes the buffer is finished; with WRITE also work that reads it."""
        _waiting.wait(lambda ns: int(lib.hd_buffer_wait(self._handle, access, ns)), timeout)

    @contextmanager
    def map(self, access: Access = Access.READ_WRITE) -> Iterator[memoryview]:
        """Gives the content of pinned or unified memory as a memoryview, for a ``with`` block.

        The block must not keep the view, nor an array over it.
        """
        if access & Access.WRITE:
            self._refuse_readonly()
        out = c.c_void_p()
        if self.device is None:
            self.wait(access)
        check(lib.hd_map(self._handle, access, c.byref(out)))
        self._mappings += 1
        try:
            view = memory_at(self, out.value or 0, self.nbytes, readonly=not access & Access.WRITE)
            try:
                yield view
            finally:
                view.release()
        finally:
            self._mappings -= 1
            check(lib.hd_unmap(self._handle))

    def tensor(self, dtype: TypeLike, shape: Sequence[int] | None = None, offset: int = 0) -> Tensor:
        """A row-major tensor over the buffer; without a shape, one dimension up to the buffer's end."""
        from .tensors import over

        return over(self, dtype, shape, offset)

    def free(self) -> None:
        """Frees the buffer now. Submitted work still uses the memory until it is finished."""
        if self._mappings:
            raise Error(_abi.Status.ARGUMENT, "heddle: the buffer is mapped; free it after the block of map()")
        handle, self._handle = self._handle, None
        if handle and self._owned and self._runtime.is_usable:
            check(lib.hd_free(handle))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and self._owned and self._runtime.is_usable:
            lib.hd_free(handle)

    def __repr__(self) -> str:
        where = "pinned" if self.device is None else "device %d" % self.device
        return "<heddle.Buffer of %d bytes, %s>" % (self.nbytes, where if self._handle else "freed")


def alloc(
    nbytes: int,
    *,
    kind: str = "device",
    device: DeviceLike | None = None,
    lane: Lane | None = None,
    runtime: Runtime | None = None,
    keep: bool = False,
    dedicated: bool = False,
    label: str | None = None,
) -> Buffer:
    """Allocates a buffer, whose content is undefined.

    `kind` is "device", "pinned" (host memory that every device uses), or "unified" (moves to the side that needs it).
    Messages and reports name the buffer by its label; the default is the place of the call, such as "train.py:57".
    If memory runs out, the call collects garbage of Python (gc.collect(), unless gc is disabled) and tries again.
    With `keep`, save() copies the content to the host; with `dedicated`, the buffer is one piece of memory.
    """
    if kind not in KINDS:
        raise ValueError("heddle.alloc: the kind is %r; it can be one of %s" % (kind, ", ".join(KINDS)))
    if kind != "device" and (keep or dedicated):
        raise ValueError('heddle.alloc: only a buffer of kind "device" can set keep or dedicated')
    count = whole("the size of a buffer", nbytes)
    runtime = runtime_for(runtime, lane, device)
    number = device_number(device, runtime)
    out = c.c_void_p()
    if kind == "pinned":
        _collecting(lambda: lib.hd_alloc_host(runtime._handle, count, c.byref(out)))
    else:
        where = choose(lane, runtime, number)
        if kind == "unified":
            _collecting(lambda: lib.hd_alloc_unified(where._handle, count, c.byref(out)))
        else:
            flags = _abi.AllocFlags.KEEP * keep | _abi.AllocFlags.DEDICATED * dedicated
            options = sized(_abi.AllocOptions, flags=int(flags), label=encode(label) or caller())
            _collecting(lambda: lib.hd_alloc_with(where._handle, count, c.byref(options), c.byref(out)))
    buffer = Buffer(runtime, out.value)
    buffer._is_unified = kind == "unified"
    if kind != "device":
        check(lib.hd_buffer_set_label(buffer._handle, encode(label) or caller()))
    return buffer


def _collecting(allocate: Callable[[], int]) -> None:
    """Allocates. If memory runs out, buffers in dead cycles of references may hold it: collects them once."""
    status = allocate()
    if status == _abi.Status.MEMORY and gc.isenabled():
        gc.collect()
        status = allocate()
    check(status)


# ---- memory of the program ----


def memory_of(data: Any, writable: bool = False) -> tuple[int, int, Any]:
    """Address and size of contiguous memory, and an object that keeps it."""
    array = getattr(data, "__array_interface__", None)
    if array is not None and array.get("strides") is None:
        address, readonly = array["data"]
        if writable and readonly:
            raise TypeError("heddle: the array is read-only")
        return address, data.nbytes, data
    if isinstance(data, bytes) and not writable:
        return c.cast(c.c_char_p(data), c.c_void_p).value or 0, len(data), data
    view = memoryview(data)
    if not view.c_contiguous:
        raise TypeError("heddle: the memory is not contiguous; copy it first, for example with numpy.ascontiguousarray")
    if view.readonly:
        if writable:
            raise TypeError("heddle: the memory is read-only")
        return memory_of(view.tobytes())
    nbytes = view.nbytes
    if nbytes == 0:
        return 0, 0, view
    array = (c.c_char * nbytes).from_buffer(view.cast("B") if view.ndim != 1 or view.format != "B" else view)
    return c.addressof(array), nbytes, array


def memory_at(buffer: Buffer, address: int, nbytes: int, readonly: bool) -> memoryview:
    """A view of host memory that keeps its buffer."""
    array: Any = (c.c_ubyte * nbytes).from_address(address)
    array.buffer = buffer
    view = memoryview(array).cast("B")
    return view.toreadonly() if readonly else view


def use_of(buffer: Buffer, access: int, offset: int, nbytes: int, elements: int = 0) -> _abi.Arg:
    """An argument of C that is a part of a buffer."""
    if access & Access.WRITE:
        buffer._refuse_readonly()
    arg = _abi.Arg(kind=_abi.ArgKind.BUFFER, access=int(access) | elements, offset=offset, size=nbytes)
    arg.value.buffer = buffer._handle
    return arg


def await_write(buffer: Buffer, offset: int, nbytes: int) -> None:
    """Waits as await_bytes does, if the library's own write would wait: it waits for memory that the CPU uses."""
    if buffer._is_unified or buffer.device is None:
        try:
            await_bytes(buffer, offset, nbytes, Access.READ_WRITE)
        except Error as error:
            if error.status in (_abi.Status.TIMEOUT, _abi.Status.ARGUMENT):
                raise
            # an earlier write failed: this one replaces the bytes, or reports another failure


def await_bytes(buffer: Buffer, offset: int, nbytes: int, access: Access = Access.READ) -> None:
    """Waits for submitted work that conflicts with this access to the bytes, so that Ctrl-C ends the wait.

    The library's own read would wait without a way to end it. A claim waits for exactly these bytes.
    Raises Error if the wait could not end, since the calling thread is in the block of a claim on the bytes.
    """
    is_known = not buffer._is_unified  # hd_buffer_wait does not see claims on unified memory
    if nbytes == 0 or (is_known and lib.hd_buffer_wait(buffer._handle, access, 0) == 0):
        return
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        return  # the read or write reports it
    for claim_of in buffer._block_claims:
        holder = claim_of()
        if holder is not None:
            holder._refuse_own(buffer, offset, nbytes, access)
    use = use_of(buffer, access, offset, nbytes)
    options = sized(_abi.ClaimOptions, label=b"write" if access & Access.WRITE else b"read")
    claim = c.c_void_p()
    status = lib.hd_claim_begin_with(buffer.runtime._handle, c.byref(use), 1, c.byref(options), c.byref(claim))
    if status == _abi.Status.LIMIT:
        return  # no lane is left for the claim; the read or write waits by itself
    check(status)
    try:
        limit = buffer.runtime.transfer_timeout
        _waiting.wait(lambda ns: int(lib.hd_claim_wait(claim, ns)), limit)
    finally:
        lib.hd_claim_end(claim, 0)
