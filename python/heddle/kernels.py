"""Modules of code, kernels, and launches."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import _abi
from ._abi import Access, ArgKind, Status
from ._library import check, encode, lib, sized, text
from ._objects import Single, whole
from .arguments import Parameter, Use, argument, buffer_argument
from .buffers import Buffer
from .lanes import Lane, choose
from .runtime import DeviceLike, Runtime, current, number_of
from .tensors import Tensor
from .tickets import Ticket

Extents = Union[int, Sequence[int]]
DEFAULT_BLOCK = 256
_DIM = (1 << 32) - 1  # the most blocks or threads of a dimension
_RESERVED = ("threads", "grid", "block", "shared_bytes", "also", "lane", "arguments")
_BY_DICT = 'for a parameter of this name, pass arguments={"%s": ...}'


class Kernel(Single):
    """A kernel of a module. To launch it, call it with the arguments of its parameters.

    >>> import heddle
    >>> axpy = heddle.builtin().kernel("hd_axpy_f32")
    >>> x, y = heddle.array([1, 2, 3], "f32"), heddle.zeros(3, "f32")
    >>> ticket = axpy(y=y, x=x, a=2, n=3, threads=3)
    >>> y.numpy().tolist()
    [2.0, 4.0, 6.0]
    """

    def __init__(self, module: Module, name: str, handle: Any) -> None:
        self.module = module
        self.name = name
        self._handle = handle
        self._parameters: tuple[Parameter, ...] | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, as far as the kernel's image describes them."""
        if self._parameters is None:
            self._parameters = tuple(self._describe())
        return self._parameters

    def _describe(self) -> Iterable[Parameter]:
        info = sized(_abi.ParameterInfo)
        index = 0
        while True:
            status = lib.hd_kernel_get_parameter(self._handle, index, c.byref(info))
            if status == Status.NOT_FOUND:
                return
            check(status)
            access = Access(info.access & 3) if info.kind == ArgKind.BUFFER else Access(0)
            yield Parameter(text(info.name), ArgKind(info.kind), access, info.bytes)
            index += 1

    def _merged(self, named: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The values by name of both kinds."""
        for name in more:
            if name in named:
                raise TypeError("heddle: kernel %r: two values for %r" % (self.name, name))
        return {**named, **more}

    def _ordered(self, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The values in the order of the parameters."""
        names = [p.name for p in self.parameters]
        if len(values) > len(names):
            raise TypeError("heddle: kernel %r takes %d arguments, got %d" % (self.name, len(names), len(values)))
        if named and (len(set(names)) < len(names) or not all(name.isidentifier() for name in names)):
            raise TypeError("heddle: kernel %r does not name its parameters; pass them by position" % self.name)
        out = list(values)
        rest = dict(named)
        for name in names[: len(values)]:
            if name in rest:
                raise TypeError("heddle: kernel %r: two values for %r" % (self.name, name))
        for name in names[len(values) :]:
            if name not in rest:
                remedy = "; " + _BY_DICT % name if name in _RESERVED else ""
                raise TypeError("heddle: kernel %r: no value for %r%s" % (self.name, name, remedy))
            out.append(rest.pop(name))
        if rest:
            raise TypeError(
                "heddle: kernel %r has no parameter %r; it has: %s" % (self.name, min(rest), ", ".join(names))
            )
        return out

    def __call__(
        self,
        *values: Any,
        threads: int | None = None,
        grid: Extents | None = None,
        block: Extents | None = None,
        shared_bytes: int = 0,
        also: Iterable[Use] = (),
        lane: Lane | None = None,
        arguments: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Ticket:
        """Submits a launch, with values by position or by the names of parameters.

        `grid` and `block` are numbers of blocks and of threads in a block, in up to three dimensions.
        With `threads` in place of `grid`, the grid contains enough blocks for this number of threads.
        `also` lists buffers that the kernel reaches through pointers in other memory.

        For a plain tensor, the launch takes the access that the kernel describes. in_(), out() and inout() state an
        access, which the launch compares with the kernel's. The lane is `lane`, else that of ``with lane:``, else the
        thread's default lane on the device of the first buffer.

        `arguments` is a dict of more values by name. Only this way reaches a parameter whose name is that of an
        argument of the launch itself, such as "lane" or "threads".
        """
        if lane is not None and not isinstance(lane, Lane):
            raise TypeError("heddle: kernel %r: lane is %r, and no lane; %s" % (self.name, lane, _BY_DICT % "lane"))
        grid_dims, block_dims = _dims(threads, grid, block)
        ordered = self._ordered(values, self._merged(named, arguments or {}))
        keep: list[Any] = []
        args = [
            argument("kernel %r, argument %d (%s)" % (self.name, i, p.name), value, p, keep)
            for i, (value, p) in enumerate(zip(ordered, self.parameters))
        ]
        for use in also:
            more = buffer_argument("kernel %r, also" % self.name, use, Access(0))
            more.kind = ArgKind.ALSO
            args.append(more)
        lane = choose(lane, self.module.runtime, _device(ordered))
        ticket = _abi.Ticket()
        array = (_abi.Arg * max(1, len(args)))(*args)
        sizes = (grid_dims, block_dims, whole("shared_bytes", shared_bytes))
        check(lib.hd_launch(lane._handle, self._handle, *sizes, array, len(args), c.byref(ticket)))
        del keep
        return Ticket(self.module.runtime, ticket)

    def __repr__(self) -> str:
        return "<heddle.Kernel %s>" % self.name


class Module(Single):
    """Loaded code. ``heddle.load()`` and ``heddle.compile()`` make it."""

    def __init__(self, runtime: Runtime, handle: Any, owned: bool = True) -> None:
        self._runtime = runtime
        self._handle = handle
        self._owned = owned

    @property
    def runtime(self) -> Runtime:
        """The runtime of the module."""
        return self._runtime

    def kernel(self, name: str) -> Kernel:
        """The kernel with this name: in the source, with or without namespaces and types, or its symbol."""
        out = c.c_void_p()
        check(lib.hd_kernel_get(self._handle, encode(name), c.byref(out)))
        return Kernel(self, name, out.value)

    def __getitem__(self, name: str) -> Kernel:
        return self.kernel(name)

    def variable(self, name: str, device: DeviceLike = 0) -> Buffer:
        """A variable of the module on a device, as a buffer. The memory belongs to the module."""
        out = c.c_void_p()
        number = number_of(device, self._runtime)
        check(lib.hd_module_get_global(self._handle, number, encode(name), c.byref(out)))
        return Buffer(self._runtime, out.value, owned=False)

    def unload(self) -> None:
        """Unloads the module. Submitted launches still run; later launches fail."""
        handle, self._handle = self._handle, None
        if handle and self._owned and self._runtime.is_usable:
            check(lib.hd_module_unload(handle))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and self._owned and self._runtime.is_usable:
            lib.hd_module_unload(handle)


def _dims(threads: int | None, grid: Extents | None, block: Extents | None) -> tuple[_abi.Dims, _abi.Dims]:
    if (threads is None) == (grid is None):
        raise TypeError("heddle: a launch needs either threads or grid")
    if threads is not None:
        size = DEFAULT_BLOCK if block is None else block
        if isinstance(size, Sequence):
            raise TypeError("heddle: with threads, the block is one number")
        count, size = whole("threads", threads, 1), whole("block", size, 1, _DIM)
        return _extents("threads", -(-count // size)), _extents("block", size)
    if block is None:
        raise TypeError("heddle: a launch with grid needs block")
    return _extents("grid", grid), _extents("block", block)


def _extents(what: str, extents: Extents | None) -> _abi.Dims:
    given = tuple(extents) if isinstance(extents, Sequence) else (extents,)
    if not 1 <= len(given) <= 3:
        raise ValueError("heddle: %s is %r; pass one to three positive numbers" % (what, extents))
    numbers = [whole(what, n, 1, _DIM) for n in given]
    return _abi.Dims(*numbers, *(1,) * (3 - len(numbers)))


def _device(values: Iterable[Any]) -> int | None:
    """The device of the first buffer that is memory of a device."""
    for value in values:
        value = value.target if isinstance(value, Use) else value
        if isinstance(value, (Tensor, Buffer)) and value.device is not None:
            return value.device
    return None


# ---- making modules ----


def load(path: str | os.PathLike[str], runtime: Runtime | None = None) -> Module:
    """Loads a kernel file that ``python -m heddle cc`` made, or PTX, a cubin or a fatbin."""
    runtime = runtime or current()
    out = c.c_void_p()
    check(lib.hd_module_load_file(runtime._handle, encode(path), c.byref(out)))
    return Module(runtime, out.value)


def load_image(image: bytes | bytearray | memoryview, runtime: Runtime | None = None) -> Module:
    """Loads the content of such a file."""
    runtime = runtime or current()
    if not isinstance(image, (bytes, bytearray, memoryview)):
        raise TypeError("heddle.load_image: the image is %s; pass bytes, or heddle.load(path)" % type(image).__name__)
    image, out = bytes(image), c.c_void_p()
    check(lib.hd_module_load(runtime._handle, image, len(image), c.byref(out)))
    return Module(runtime, out.value)


def compile(
    source: str,
    *,
    name: str | None = None,
    options: Sequence[str] = (),
    kernels: Sequence[str] = (),
    runtime: Runtime | None = None,
) -> Module:
    """Compiles CUDA C++ with NVRTC, and loads the result. Needs a GPU.

    `options` are those of NVRTC, such as "-DN=4".
    `kernels` lists instances of templates that the module must contain, such as "scale<float>".
    """
    runtime = runtime or current()
    given = sized(
        _abi.CompileOptions,
        name=encode(name),
        options=_texts(options),
        n_options=len(options),
        kernels=_texts(kernels),
        n_kernels=len(kernels),
    )
    out = c.c_void_p()
    check(lib.hd_module_compile(runtime._handle, encode(source), c.byref(given), c.byref(out)))
    return Module(runtime, out.value)


def _texts(words: Sequence[str]) -> Any:
    """An array of texts, which its structure keeps."""
    return c.cast((c.c_char_p * max(1, len(words)))(*[encode(word) for word in words]), c.c_void_p)


def builtin(runtime: Runtime | None = None) -> Module:
    """The module of Heddle's own kernels, such as hd_axpy_f32 and hd_sum_f32."""
    runtime = runtime or current()
    out = c.c_void_p()
    check(lib.hd_module_get_builtin(runtime._handle, c.byref(out)))
    return Module(runtime, out.value, owned=False)
