"""Tensors: shapes and strides over buffers."""

from __future__ import annotations

import ctypes as c
import math
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Union

from . import _abi, dlpack
from ._abi import Type
from ._library import check, lib
from ._objects import Single, whole
from .buffers import Buffer, alloc, await_bytes, await_write, memory_of
from .dtypes import TypeLike, itemsize, numpy_name, type_of
from .lanes import Lane, choose
from .runtime import DeviceLike, Runtime
from .tickets import Ticket

if TYPE_CHECKING:
    import numpy

Shape = Union[int, Sequence[int]]


class Tensor(Single):
    """Elements in a buffer, with a shape and strides.

    Slices, `transpose`, `reshape`, `broadcast_to` and `view` are other tensors over the same bytes.
    `numpy()` copies the elements to the host.

    >>> import heddle
    >>> x = heddle.zeros((2, 3), "f32")
    >>> x[1, ::2] = 5
    >>> x.T.numpy().tolist()
    [[0.0, 5.0], [0.0, 0.0], [0.0, 5.0]]
    """

    def __init__(self, buffer: Buffer, value: _abi.Tensor, readonly: bool = False) -> None:
        self._buffer = buffer
        self._value = value
        self._address = c.addressof(value)  # for python/native/exchange.c
        self._readonly = readonly or buffer.readonly
        self.shape: tuple[int, ...] = tuple(value.shape[: value.dims])
        self.strides: tuple[int, ...] = tuple(value.stride[: value.dims])
        self.dtype = Type(value.type)

    # ---- facts ----

    @property
    def readonly(self) -> bool:
        """True if calls that write the elements fail: of read-only memory, and of repeated elements."""
        return self._readonly

    @property
    def buffer(self) -> Buffer:
        """The buffer with the elements."""
        return self._buffer

    @property
    def runtime(self) -> Runtime:
        """The runtime of the buffer."""
        return self._buffer.runtime

    @property
    def device(self) -> int | None:
        """The number of the device with the elements; None for pinned memory."""
        return self._buffer.device

    @property
    def offset(self) -> int:
        """The place in the buffer of the element with all indices 0, in bytes."""
        return int(self._value.offset)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return itemsize(self.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True if the elements lie next to each other in row-major order."""
        return bool(lib.hd_tensor_is_contiguous(c.byref(self._value)))

    def span(self) -> tuple[int, int]:
        """The place of the tensor's first byte in the buffer, and the number of bytes to its last one."""
        if self.size == 0:
            return self.offset, 0
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides))
        return self.offset + low, high - low + self.itemsize

    # ---- other views of the same elements ----

    def _other(self, offset: int, dtype: Type, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        value = _strided(self._buffer, offset, dtype, shape, strides)
        return Tensor(self._buffer, value, self.readonly)

    def __getitem__(self, index: Any) -> Tensor:
        offset, shape, strides = _select(self, index)
        return self._other(offset, self.dtype, shape, strides)

    def transpose(self, *axes: int) -> Tensor:
        """Reorders the dimensions; without arguments, reverses them."""
        order = axes or tuple(reversed(range(self.ndim)))
        out = _abi.Tensor()
        _check_axes(order, self.ndim)
        numbers = (c.c_int * max(1, self.ndim))(*[axis % self.ndim for axis in order])
        check(lib.hd_tensor_permute(c.byref(self._value), numbers, c.byref(out)))
        return Tensor(self._buffer, out, self.readonly)

    @property
    def T(self) -> Tensor:
        """The tensor with its dimensions in reverse order."""
        return self.transpose()

    def reshape(self, *shape: int) -> Tensor:
        """Gives the elements another shape, if no element must move. One extent may be -1."""
        extents = _completed(shape, self.size)
        out = _abi.Tensor()
        check(lib.hd_tensor_reshape(c.byref(self._value), len(extents), _extents(extents), c.byref(out)))
        return Tensor(self._buffer, out, self.readonly)

    def broadcast_to(self, shape: Shape) -> Tensor:
        """Repeats elements until the shape is `shape`. The result is read-only."""
        extents = _shape(shape)
        out = _abi.Tensor()
        check(lib.hd_tensor_broadcast(c.byref(self._value), len(extents), _extents(extents), c.byref(out)))
        return Tensor(self._buffer, out, readonly=True)

    def view(self, dtype: TypeLike) -> Tensor:
        """Shows the same bytes as elements of another type of the same size."""
        wanted = type_of(dtype)
        if itemsize(wanted) != self.itemsize:
            raise ValueError("heddle: a view as %s needs elements of the same size" % wanted.name.lower())
        return self._other(self.offset, wanted, self.shape, self.strides)

    # ---- moving elements ----

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Copies the elements to a new array of NumPy, after all submitted writes. Ctrl-C ends the wait."""
        import numpy as np

        out = np.empty(self.shape, numpy_name(self.dtype))
        self.read_into(out)
        return out

    def read_into(self, out: Any) -> None:
        """Copies the elements in row-major order to writable memory of the same size.

        An array must have elements of the tensor's type. Memory of plain bytes takes any type.
        """
        _refuse_other_type(out, self.dtype)
        address, nbytes, keep = memory_of(out, writable=True)
        if nbytes != self.nbytes:
            raise ValueError("heddle: the memory is of %d bytes, and the tensor of %d" % (nbytes, self.nbytes))
        if nbytes:
            await_bytes(self._buffer, *self.span())
            check(lib.hd_tensor_read(c.byref(self._value), address))
        del keep

    def item(self) -> Any:
        """The value of a tensor with one element."""
        if self.size != 1:
            raise ValueError("heddle: item() needs one element, and the tensor contains %d" % self.size)
        return self.numpy().item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            copy(self[index], value)
        else:
            self[index].write(value)

    def write(self, data: Any) -> None:
        """Copies elements from the host: an array of NumPy, numbers, or other memory of the same size.

        NumPy converts numbers and lists to the tensor's type, and broadcasts them to its shape.
        """
        self._refuse_readonly()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            data = _array(data, self.dtype, self.shape)
        address, nbytes, keep = memory_of(data)
        if nbytes != self.nbytes:
            raise ValueError("heddle: the memory is of %d bytes, and the tensor of %d" % (nbytes, self.nbytes))
        if nbytes:
            await_write(self._buffer, *self.span())
            check(lib.hd_tensor_write(c.byref(self._value), address))
        del keep

    def to(self, device: DeviceLike) -> Tensor:
        """Copies the elements to a new tensor on a device. The call does not wait for the elements."""
        out = empty(self.shape, self.dtype, device=device, runtime=self.runtime)
        copy(out, self)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        kind = "pinned" if self.device is None else "device"
        out = empty(self.shape, self.dtype, kind=kind, device=self.device, runtime=self.runtime)
        copy(out, self)
        return out

    def contiguous(self) -> Tensor:
        """The tensor itself if it is contiguous, else a row-major copy on the same device."""
        if self.is_contiguous:
            return self
        return self.__deepcopy__({})

    def __matmul__(self, other: object) -> Tensor:
        return matmul(self, other) if isinstance(other, Tensor) else NotImplemented

    # ---- exchange with other libraries ----

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError(
            "heddle: a tensor does not become an array of NumPy by itself, since this would copy it without a word; "
            "call t.numpy() for a copy, or numpy.from_dlpack(t) to share memory that the CPU can use"
        )

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for a consumer of DLPack. A claim covers the bytes until the consumer drops the tensor."""
        return dlpack.export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and number of the device, as DLPack counts them."""
        return dlpack.device_of(self)

    __dlpack_c_exchange_api__: ClassVar[Any]  # _exchange.py sets it

    @property
    def _exchange_stream(self) -> int:
        return dlpack.exchange_stream(self)

    @property
    def _exchange_flags(self) -> int:
        return dlpack.flags_of(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For work in the program's own stream, inside of ``with heddle.claim(..., stream=s):``."""
        return dlpack.cuda_array_interface(self)

    # ---- Python ----

    def _refuse_readonly(self) -> None:
        if self.readonly:
            raise ValueError("heddle: the tensor is read-only; copy it first")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("heddle: a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if other is None or isinstance(other, str):
            return False
        raise TypeError(
            "heddle: == and != of a tensor are not defined; compare t.numpy(), or use `is` for the same object"
        )

    __hash__ = object.__hash__

    def __contains__(self, value: object) -> bool:
        raise TypeError("heddle: `in` of a tensor is not defined; write `value in t.numpy()`")

    def __bool__(self) -> bool:
        raise TypeError("heddle: the truth of a tensor is not defined; call t.item() or t.numpy() first")

    def __repr__(self) -> str:
        where = "pinned" if self.device is None else "device %d" % self.device
        return "<heddle.Tensor %s of %s, %s>" % (self.shape, self.dtype.name.lower(), where)


# ---- making tensors ----


def over(buffer: Buffer, dtype: TypeLike, shape: Shape | None, offset: int) -> Tensor:
    """A row-major tensor over a buffer."""
    kind = type_of(dtype)
    at = whole("offset", offset)
    extents = (max(0, buffer.nbytes - at) // itemsize(kind),) if shape is None else _shape(shape)
    out = _abi.Tensor()
    check(lib.hd_tensor_make(buffer._handle, at, kind, len(extents), _extents(extents), c.byref(out)))
    return Tensor(buffer, out)


def empty(
    shape: Shape,
    dtype: TypeLike = "f32",
    *,
    kind: str = "device",
    device: DeviceLike | None = None,
    lane: Lane | None = None,
    runtime: Runtime | None = None,
    label: str | None = None,
) -> Tensor:
    """Makes a tensor whose elements are undefined. The other arguments are those of alloc()."""
    extents = _shape(shape)
    nbytes = math.prod(extents) * itemsize(type_of(dtype))
    room = max(4, nbytes + -nbytes % 4)  # zeros() fills words of 4 bytes
    buffer = alloc(room, kind=kind, device=device, lane=lane, runtime=runtime, label=label)
    return over(buffer, dtype, extents, 0)


def zeros(shape: Shape, dtype: TypeLike = "f32", **where: Any) -> Tensor:
    """Makes a tensor whose elements are 0. The other arguments are those of alloc()."""
    out = empty(shape, dtype, **where)
    out.buffer.fill(0)
    return out


def array(data: Any, dtype: TypeLike | None = None, **where: Any) -> Tensor:
    """Copies an array of NumPy, or numbers, to a new tensor. The other arguments are those of alloc()."""
    import numpy as np

    host = np.asarray(data) if dtype is None else _converted(data, np.dtype(numpy_name(type_of(dtype))))
    out = empty(host.shape, type_of(host.dtype), **where)
    out.write(host)
    return out


# ---- operations ----


def copy(destination: Tensor, source: Tensor) -> Ticket:
    """Copies elements between tensors of one type on any devices. The shape of `source` may broadcast."""
    destination._refuse_readonly()
    out = _abi.Ticket()
    check(lib.hd_tensor_copy(c.byref(destination._value), c.byref(source._value), c.byref(out)))
    return Ticket(destination.runtime, out)


def matmul(
    a: Tensor,
    b: Tensor,
    out: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    lane: Lane | None = None,
) -> Tensor:
    """Computes alpha a b + beta out for each matrix of a batch. The call does not wait for the product."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError("heddle.matmul: the operands need two dimensions or more")
    if out is None:
        if beta:
            raise ValueError("heddle.matmul: beta needs the argument out")
        batch = _broadcast(a.shape[:-2], b.shape[:-2])
        where = a.device if a.device is not None else b.device
        shape = (*batch, a.shape[-2], b.shape[-1])
        out = empty(shape, a.dtype, device=where, lane=lane, runtime=a.runtime)
    out._refuse_readonly()
    lane = choose(lane, a.runtime, out.device)
    ticket = _abi.Ticket()
    operands = (c.byref(out._value), c.byref(a._value), c.byref(b._value))
    check(lib.hd_tensor_matmul(lane._handle, *operands, alpha, beta, c.byref(ticket)))
    return out


# ---- shapes ----


def _shape(shape: Shape) -> tuple[int, ...]:
    return tuple(whole("an extent of a shape", n) for n in (shape if isinstance(shape, Sequence) else (shape,)))


def _extents(extents: Sequence[int]) -> Any:
    if len(extents) > _abi.TENSOR_DIMS:
        raise ValueError("heddle: %d dimensions; a tensor takes at most %d" % (len(extents), _abi.TENSOR_DIMS))
    return (c.c_uint64 * _abi.TENSOR_DIMS)(*extents)


def _strided(buffer: Buffer, offset: int, dtype: Type, shape: Sequence[int], strides: Sequence[int]) -> _abi.Tensor:
    out = _abi.Tensor()
    steps = (c.c_int64 * _abi.TENSOR_DIMS)(*strides[: _abi.TENSOR_DIMS])
    check(lib.hd_tensor_make_strided(buffer._handle, offset, dtype, len(shape), _extents(shape), steps, c.byref(out)))
    return out


def _completed(shape: Sequence[Any], size: int) -> tuple[int, ...]:
    """The shape with a number in place of -1."""
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = shape[0]
    extents = [whole("an extent of a shape", n, -1) for n in shape]
    if extents.count(-1) == 1:
        others = math.prod(n for n in extents if n != -1)
        if others == 0 or size % others:
            raise ValueError("heddle: %d elements do not fit the shape %r" % (size, tuple(extents)))
        extents[extents.index(-1)] = size // others
    return _shape(extents)


def _check_axes(order: Sequence[int], ndim: int) -> None:
    if len(order) != ndim or any(not -ndim <= axis < ndim for axis in order):
        raise ValueError("heddle: the dimensions %r do not reorder %d dimensions" % (tuple(order), ndim))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape to which both shapes broadcast; the library checks the product."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (1,) * (len(longer) - len(shorter)) + tuple(shorter)
    return tuple(m if n == 1 else n for n, m in zip(longer, padded))


def _select(t: Tensor, index: Any) -> tuple[int, list[int], list[int]]:
    """Offset, shape and strides of the elements that an index selects: numbers, slices, ... and None."""
    words = list(index) if isinstance(index, tuple) else [index]
    taken = sum(word is not None and word is not Ellipsis for word in words)
    if sum(word is Ellipsis for word in words) > 1:
        raise IndexError("heddle: an index contains ... more than once")
    if taken > t.ndim:
        raise IndexError("heddle: %d indices of a tensor with %d dimensions" % (taken, t.ndim))
    rest: list[Any] = [slice(None)] * (t.ndim - taken)
    at = next((i for i, word in enumerate(words) if word is Ellipsis), None)
    words = words + rest if at is None else words[:at] + rest + words[at + 1 :]
    offset, shape, strides, dim = t.offset, [], [], 0
    for word in words:
        if word is None:
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = t.shape[dim], t.strides[dim]
        if isinstance(word, slice):
            first, stop, step = word.indices(extent)
            count = len(range(first, stop, step))
            offset += first * stride if count else 0
            shape.append(count)
            strides.append(step * stride)
        else:
            if isinstance(word, bool):
                raise TypeError("heddle: an index is %r; pass numbers, slices, ... or None" % word)
            number = operator.index(word)
            if not -extent <= number < extent:
                raise IndexError("heddle: index %d of dimension %d, whose extent is %d" % (number, dim, extent))
            offset += number % extent * stride
        dim += 1
    return (t.offset if 0 in shape else offset), shape, strides  # without elements, any place in the buffer is right


def _converted(data: Any, wanted: Any) -> Any:
    """Data of the program as an array of the wanted type. A number outside of a type of integers is an error."""
    import numpy as np

    given = np.asarray(data)
    if not isinstance(data, np.ndarray) and wanted.kind in "iu" and given.dtype.kind in "iufO" and given.size:
        limits = np.iinfo(wanted)
        for number in (given.min(), given.max()):
            if not limits.min <= int(number) <= limits.max:
                raise OverflowError("heddle: %s is outside of the type %s" % (number, wanted))
    return np.asarray(data, wanted)


_FORMATS = {"?": "b", "e": "f", "f": "f", "d": "f", "Zf": "c", "Zd": "c"}
_FORMATS.update(dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQN", "u"))


def _refuse_other_type(out: Any, dtype: Type) -> None:
    """Refuses memory that declares elements of another type; plain bytes declare none."""
    array = getattr(out, "__array_interface__", None)
    if array is not None:
        given = str(array["typestr"]).lstrip("<|")
    else:
        view = memoryview(out)
        if view.format in ("B", "b", "c"):
            return
        given = "%s%d" % (_FORMATS.get(view.format.lstrip("@=<"), "?"), view.itemsize)
    accepted = ("V2", "u2") if dtype == Type.BF16 else ("%s%d" % (dtype.name[0].lower(), itemsize(dtype)),)
    if given not in accepted:
        raise TypeError(
            "heddle: the memory contains elements of type %s, and the tensor of %s; pass an array of this type, or "
            "memoryview(array).cast('B') for the bytes" % (given, dtype.name.lower())
        )


def _array(data: Any, dtype: Type, shape: tuple[int, ...]) -> Any:
    """Data of the program as a contiguous array with this type and shape."""
    import numpy as np

    wanted = np.dtype(numpy_name(dtype))
    if isinstance(data, np.ndarray) and not np.can_cast(data.dtype, wanted, "same_kind"):
        raise TypeError("heddle: elements of %s do not fit into those of %s; convert them first" % (data.dtype, wanted))
    return np.ascontiguousarray(np.broadcast_to(_converted(data, wanted), shape)).reshape(shape)
