"""Claims: bytes that code outside of Heddle uses, in order with all work of Heddle."""

from __future__ import annotations

import ctypes as c
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from . import _abi, _waiting
from ._abi import Access, Status
from ._library import caller, check, encode, lib, sized, text
from ._objects import Single
from .buffers import Buffer, memory_at, use_of
from .dtypes import numpy_name
from .errors import Error
from .runtime import DeviceLike, Runtime, current, device_number
from .tensors import Tensor
from .tickets import Ticket

if TYPE_CHECKING:
    import numpy

Bytes = Union[Tensor, Buffer]


def span_of(target: Bytes) -> tuple[Buffer, int, int]:
    """The buffer of a tensor or buffer, and the place and number of its bytes."""
    if isinstance(target, Tensor):
        return (target.buffer, *target.span())
    if isinstance(target, Buffer):
        return target, 0, target.nbytes
    raise TypeError("heddle: %r is no tensor and no buffer" % (target,))


def _targets_of(what: str, given: Bytes | Iterable[Bytes]) -> tuple[Bytes, ...]:
    """The tensors of an argument, which is one tensor or several."""
    targets = (given,) if isinstance(given, (Tensor, Buffer)) else tuple(given)
    for target in targets:
        if not isinstance(target, (Tensor, Buffer)):
            raise TypeError("heddle.claim: %s contains %r; pass tensors and buffers" % (what, target))
    return targets


def stream_of(stream: Any) -> int:
    """The handle of a stream: a number, or a stream of PyTorch, CuPy, Numba or cuda.core."""
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            handle = getattr(stream, name)
            return int(getattr(handle, "value", handle) or 0)
    return int(stream)


class Claim(Single):
    """Bytes that code outside of Heddle uses. ``heddle.claim()`` makes it, and a ``with`` block begins and ends it."""

    def __init__(
        self,
        read: Iterable[Bytes],
        write: Bytes | Iterable[Bytes],
        out: Bytes | Iterable[Bytes],
        stream: Any,
        device: DeviceLike | None,
        label: str | None,
        timeout: float | None,
    ) -> None:
        self._targets = [
            *((target, Access.READ) for target in _targets_of("read", read)),
            *((target, Access.READ_WRITE) for target in _targets_of("write", write)),
            *((target, Access.WRITE) for target in _targets_of("out", out)),
        ]
        for target, access in self._targets:
            if access & Access.WRITE and isinstance(target, Tensor):
                target._refuse_readonly()
        self._stream = stream
        self._device = device_number(device)
        self._label = encode(label) or caller()
        self._timeout = timeout
        self._handle: int | None = None
        self._thread: int | None = None
        self._ticket: Ticket | None = None
        buffers = [span_of(target)[0] for target, _ in self._targets]
        self._runtime: Runtime = buffers[0].runtime if buffers else current()
        self._buffers = buffers

    # ---- begin and end ----

    def begin(self) -> Claim:
        """Begins the claim. Later work on its bytes waits for end(). The call does not wait for the bytes."""
        if self._handle is not None:
            raise RuntimeError("heddle: the claim has begun already")
        uses = (_abi.Arg * max(1, len(self._targets)))()
        n = 0
        for target, access in self._targets:
            buffer, offset, nbytes = span_of(target)
            if nbytes:
                uses[n] = use_of(buffer, access, offset, nbytes)
                n += 1
        options = sized(_abi.ClaimOptions, label=self._label)
        out = c.c_void_p()
        runtime = self._runtime._handle
        if self._stream is None:
            check(lib.hd_claim_begin_with(runtime, uses, n, c.byref(options), c.byref(out)))
        else:
            where = self._device if self._device is not None else self._first_device()
            stream = stream_of(self._stream)
            check(lib.hd_claim_begin_stream(runtime, where, stream, uses, n, c.byref(options), c.byref(out)))
        self._handle = out.value
        self._show(True)
        return self

    def _first_device(self) -> int:
        return next((b.device for b in self._buffers if b.device is not None), 0)

    def _show(self, begins: bool) -> None:
        """Lets tensors show __cuda_array_interface__ while a claim on a stream is open."""
        if self._stream is None:
            return
        for (_, access), buffer in zip(self._targets, self._buffers):
            writes = bool(access & Access.WRITE)
            buffer._stream_claims.append(writes) if begins else buffer._stream_claims.remove(writes)

    def _poll(self, nanoseconds: int) -> int:
        return int(lib.hd_claim_wait(self._handle, nanoseconds))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the bytes belong to the program, for at most `timeout` seconds. Ctrl-C ends the wait."""
        _waiting.wait(self._poll, timeout)

    @property
    def ticket(self) -> Ticket:
        """The ticket of the claim, which is done when the claim ends."""
        if self._ticket is None:
            out = _abi.Ticket()
            check(lib.hd_claim_get_ticket(self._handle, c.byref(out)))
            self._ticket = Ticket(self._runtime, out)
        return self._ticket

    def end(self, failed: bool = False) -> None:
        """Ends the claim. If it failed, later reads of the bytes that it writes also fail."""
        if self._handle is None:
            return
        self._ticket = self.ticket
        handle, self._handle = self._handle, None
        self._show(False)
        check(lib.hd_claim_end(handle, Status.FAILED if failed else Status.OK))

    def __enter__(self) -> Claim:
        self.begin()
        if self._stream is None:
            try:
                self.wait(self._timeout)
            except BaseException:
                self.end()  # the block did not begin, so nothing was written
                raise
        self._note_block()
        return self

    def __exit__(self, kind: type | None, value: object, traceback: object) -> None:
        self.end(failed=kind is not None)

    async def __aenter__(self) -> Claim:
        self.begin()
        if self._stream is None:
            try:
                await _Ready(self)
            except BaseException:
                self.end()  # the block did not begin, so nothing was written
                raise
        self._note_block()
        return self

    async def __aexit__(self, kind: type | None, value: object, traceback: object) -> None:
        self.end(failed=kind is not None)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and self._runtime.is_usable:
            self._show(False)
            lib.hd_claim_end(handle, Status.FAILED)

    # ---- the bytes ----

    def _note_block(self) -> None:
        """The block begins in this thread, which cannot wait for the claim until the block ends."""
        self._thread = threading.get_ident()
        for buffer in self._buffers:
            known = [one for one in buffer._block_claims if (claim := one()) is not None and claim._handle is not None]
            buffer._block_claims = [*known, weakref.ref(self)]

    def _refuse_own(self, buffer: Buffer, offset: int, nbytes: int, access: Access) -> None:
        """Refuses a wait for this claim by the thread that is in its block."""
        if self._handle is None or self._stream is not None or self._thread != threading.get_ident():
            return
        for target, own in self._targets:
            owner, first, count = span_of(target)
            if owner is buffer and first < offset + nbytes and offset < first + count and (own | access) & Access.WRITE:
                raise Error(
                    Status.ARGUMENT,
                    "heddle: the claim %s of this thread covers the bytes, so this call would wait without an end; "
                    "use the array claim.numpy(tensor) in the block" % text(self._label),
                )

    def _find(self, target: Tensor) -> int:
        """The number of the use that covers the tensor's bytes; a use that writes them comes first."""
        buffer, low, nbytes = span_of(target)
        covers = []
        for i, (one, access) in enumerate(self._targets):
            owner, first, count = span_of(one)
            if one is target or (owner is buffer and first <= low and low + nbytes <= first + count):
                covers.append((not access & Access.WRITE, i))
        if not covers:
            raise ValueError("heddle: the claim does not contain this tensor; pass the tensor to heddle.claim()")
        return min(covers)[1]

    def numpy(self, target: Tensor) -> numpy.ndarray[Any, Any]:
        """An array of NumPy over a claimed tensor in pinned or unified memory. Do not use it after the claim."""
        import numpy as np

        at = self._find(target)
        access = self._targets[at][1]
        buffer, low, nbytes = span_of(target)
        if nbytes == 0:
            return np.empty(target.shape, numpy_name(target.dtype))
        number = sum(span_of(one)[2] > 0 for one, _ in self._targets[:at])
        out = c.c_void_p()
        check(lib.hd_claim_get_pointer(self._handle, number, c.byref(out)))
        address = (out.value or 0) + low - span_of(self._targets[at][0])[1]
        view = memory_at(buffer, address, nbytes, readonly=target.readonly or not access & Access.WRITE)
        place = target.offset - low
        name = np.dtype(numpy_name(target.dtype))
        return np.ndarray(target.shape, name, buffer=view, offset=place, strides=target.strides)

    def __repr__(self) -> str:
        return "<heddle.Claim%s, %s>" % (
            " " + text(self._label),
            "not begun or ended" if self._handle is None else "open",
        )


class _Ready:
    """Awaits that the bytes of a claim belong to the program."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def __await__(self) -> Any:
        return _waiting.wait_in_loop(self.claim._poll)


def claim(
    *read: Bytes,
    write: Bytes | Iterable[Bytes] = (),
    out: Bytes | Iterable[Bytes] = (),
    stream: Any = None,
    device: DeviceLike | None = None,
    label: str | None = None,
    timeout: float | None = None,
) -> Claim:
    """Declares the tensors that other code uses in a ``with`` block: those it reads, and those it writes.

    `write` names tensors that the block reads and writes. `out` names tensors whose bytes the block writes all:
    it reads none of the earlier values, so it may also begin when an earlier write of them failed.
    Each of the two is one tensor or several.

    The block begins when earlier work on the bytes is finished, and later work waits for the end of the block.
    If the block raises an exception, later reads of the written bytes fail.
    If the block does not begin, because of the timeout, a cancelled task or Ctrl-C, the bytes stay as they were.
    Messages name the claim by its label; the default is the place of the call, such as "train.py:57".

    With `stream`, a stream of CUDA, the block begins at once. Work that the block puts into this stream runs
    after earlier work on the bytes, and later work waits for it.

    >>> import heddle
    >>> x = heddle.zeros(4, "f32", kind="pinned")
    >>> with heddle.claim(write=[x], label="fill") as claim:
    ...     claim.numpy(x)[:] = [1, 2, 3, 4]
    >>> x.numpy().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return Claim(read, write, out, stream, device, label, timeout)
