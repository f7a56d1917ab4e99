"""exchange.py - NumPy and Heddle exchange tensors in DLPack capsules. ctypes calls the shared library.

usage: exchange.py LIBRARY        HEDDLE_DRIVER and HEDDLE_PLACEMENT as for any program
NumPy 2 asks for the versioned form; older releases take the form without a version. Prints the exchanged tensors.
Fails at the first difference.
"""

import ctypes as c
import gc
import sys
import time

import numpy as np

CPU, FOREVER = 0, -1
READ_ONLY, BOOL = 1, 2
NUMPY_VERSIONED = tuple(int(x) for x in np.__version__.split(".")[:2]) >= (2, 1)
TYPES = {  # NumPy's name of each type, and its number in hd_type
    "int8": 1, "uint8": 2, "int16": 3, "uint16": 4, "int32": 5, "uint32": 6, "int64": 7, "uint64": 8, "float16": 9,
    "float32": 11, "float64": 12, "complex64": 13, "complex128": 14,
}  # fmt: skip


class Tensor(c.Structure):
    _fields_ = [("buffer", c.c_void_p), ("offset", c.c_size_t), ("type", c.c_int), ("dims", c.c_int),
                ("shape", c.c_uint64 * 8), ("stride", c.c_int64 * 8)]  # fmt: skip


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("flags", c.c_uint), ("type", c.c_int), ("device", c.c_int), ("label", c.c_char_p)]


class Ticket(c.Structure):
    _fields_ = [("lane", c.c_void_p), ("sequence", c.c_uint64)]


heddle = c.CDLL(sys.argv[1])
heddle.hd_message.restype = heddle.hd_status_name.restype = c.c_char_p
heddle.hd_element.restype = c.c_void_p


def call(name, *arguments):
    """Calls a function of Heddle that returns a status, and fails with its message."""
    status = getattr(heddle, name)(*arguments)
    if status != 0:
        raise RuntimeError(heddle.hd_message().decode())


def fails(word, name, *arguments):
    try:
        call(name, *arguments)
    except RuntimeError as error:
        assert word in str(error), str(error)
        return
    raise AssertionError(name + " should have failed")


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in what))


# ---- capsules ----

python = c.pythonapi
python.PyCapsule_New.restype = c.py_object
python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
python.PyCapsule_GetPointer.restype = c.c_void_p
python.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
python.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]
python.PyCapsule_IsValid.argtypes = [c.py_object, c.c_char_p]
VERSIONED, PLAIN = b"dltensor_versioned", b"dltensor"
USED_VERSIONED, USED_PLAIN = b"used_dltensor_versioned", b"used_dltensor"
Deleter = c.CFUNCTYPE(None, c.c_void_p)


def delete(managed, versioned):
    """Calls the deleter of an unused capsule. It lies behind version and context, or behind tensor and context."""
    at = managed + (16 if versioned else 56)
    Deleter(c.c_void_p.from_address(at).value)(managed)


class Exported:
    """A tensor of Heddle, with the methods of Python's DLPack protocol."""

    def __init__(self, tensor, flags=0, versioned=True):
        self.tensor, self.flags, self.versioned = tensor, flags, versioned

    def __dlpack_device__(self):
        kind, number = c.c_int32(), c.c_int32()
        call("hd_dlpack_get_device", c.byref(self.tensor), c.c_int64(CPU), c.byref(kind), c.byref(number))
        return kind.value, number.value

    def __dlpack__(self, *, stream=None, max_version=None, **_):
        check(stream is None, "NumPy gives a stream")
        versioned = self.versioned and max_version is not None and max_version[0] >= 1
        options = Options(c.sizeof(Options), self.flags, 0, 0, b"numpy")
        managed = c.c_void_p()
        name = "hd_dlpack_export" if versioned else "hd_dlpack_export_unversioned"
        call(name, c.byref(self.tensor), c.c_int64(CPU), c.byref(options), c.byref(managed))
        return python.PyCapsule_New(managed.value, VERSIONED if versioned else PLAIN, None)


def take(array, flags=0, versioned=NUMPY_VERSIONED):
    """Imports an array by NumPy's capsule. Like every consumer, renames the capsule afterwards."""
    capsule = array.__dlpack__(max_version=(1, 3)) if versioned else array.__dlpack__()
    name = VERSIONED if versioned else PLAIN
    check(python.PyCapsule_IsValid(capsule, name), "NumPy gives another form")
    tensor, options = Tensor(), Options(c.sizeof(Options), flags, 0, 0, b"array")
    call("hd_dlpack_import" if versioned else "hd_dlpack_import_unversioned", runtime,
         c.c_void_p(python.PyCapsule_GetPointer(capsule, name)), c.c_int64(CPU), c.byref(options),
         c.byref(tensor))  # fmt: skip
    used.append(USED_VERSIONED if versioned else USED_PLAIN)  # the capsule keeps only the pointer to the name
    python.PyCapsule_SetName(capsule, used[-1])
    return tensor


used = []

# ---- a runtime ----

runtime, lane = c.c_void_p(), c.c_void_p()
call("hd_open", None, c.byref(runtime))
call("hd_lane_get_default", runtime, 0, c.byref(lane))


class Info(c.Structure):
    _fields_ = [("size", c.c_size_t), ("driver", c.c_char_p), ("placement", c.c_char_p), ("version", c.c_int),
                ("devices", c.c_int)]  # fmt: skip


info = Info(c.sizeof(Info))
call("hd_runtime_get_info", runtime, c.byref(info))
OF_DEVICES = info.driver == b"host" and info.placement != b"process"  # True if the CPU uses device memory


def tensor_of(array, where):
    """Makes a row-major tensor with the array's elements, in a new buffer."""
    flat = np.ascontiguousarray(array)
    size = max(flat.nbytes, 1)
    buffer = c.c_void_p()
    if where == "device":
        call("hd_alloc", lane, c.c_size_t(size), c.byref(buffer))
    elif where == "pinned":
        call("hd_alloc_host", runtime, c.c_size_t(size), c.byref(buffer))
    else:
        call("hd_alloc_unified", lane, c.c_size_t(size), c.byref(buffer))
    tensor = Tensor()
    shape = (c.c_uint64 * 8)(*array.shape)
    call("hd_tensor_make", buffer, c.c_size_t(0), TYPES[array.dtype.name], array.ndim, shape, c.byref(tensor))
    if flat.nbytes:
        call("hd_tensor_write", c.byref(tensor), flat.ctypes.data_as(c.c_void_p))
    return tensor


def read(tensor, like):
    out = np.empty(like.shape, like.dtype)
    if out.nbytes:
        call("hd_tensor_read", c.byref(tensor), out.ctypes.data_as(c.c_void_p))
    return out


def free(tensor):
    call("hd_free", c.c_void_p(tensor.buffer))


def places():
    return ["pinned", "unified"] + (["device"] if OF_DEVICES else [])


def arrays():
    """Exports tensors of all types, and with every number of dimensions."""
    random = np.random.default_rng(15)
    for name in TYPES:
        for shape in ((), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2, 2, 1, 2, 2), (0,), (3, 0, 2)):
            yield (random.random(shape) * 100).astype(name)


def to_numpy():
    count = 0
    for versioned in (True, False) if NUMPY_VERSIONED else (False,):
        for where in places():
            for array in arrays():
                tensor = tensor_of(array, where)
                got = np.from_dlpack(Exported(tensor, versioned=versioned))
                check(got.dtype == array.dtype and got.shape == array.shape, array.dtype, array.shape, got.shape)
                check(np.array_equal(got, array), "other elements", where, array.dtype, array.shape)
                del got
                free(tensor)
                count += 1
    print(count, "tensors to NumPy", np.__version__)


def order():
    """NumPy sees work submitted before the export. Work submitted later waits until NumPy drops the array."""
    array = np.arange(1000, dtype=np.uint32)
    for where in places():
        tensor = tensor_of(array, where)
        call("hd_fill", c.c_void_p(tensor.buffer), c.c_size_t(0), c.c_uint32(5), c.c_size_t(4000), None)
        got = np.from_dlpack(Exported(tensor))
        check((got == 5).all(), "the fill is missing")
        ticket = Ticket()
        call("hd_fill", c.c_void_p(tensor.buffer), c.c_size_t(0), c.c_uint32(6), c.c_size_t(4000), c.byref(ticket))
        waits = where != "unified"  # the fill changes only the device's bytes
        if waits:
            fails("not", "hd_wait", ticket, c.c_int64(5000000))
        view = got[10:20]
        del got
        gc.collect()
        if waits:
            fails("not", "hd_wait", ticket, c.c_int64(5000000))  # a view has the memory, too
        check((view == 5).all(), "overwritten in NumPy's hands")
        if view.flags.writeable:
            view[:] = 9
        del view
        gc.collect()
        call("hd_wait", ticket, c.c_int64(FOREVER))
        check((read(tensor, array) == 6).all(), "the fill was before NumPy's end")
        free(tensor)


def writes():
    """Heddle sees what NumPy writes. With the versioned form NumPy may write, except to a read-only tensor."""
    if not NUMPY_VERSIONED:
        return
    array = np.zeros((4, 6), np.float32)
    tensor = tensor_of(array, "unified")
    got = np.from_dlpack(Exported(tensor))
    got[1:3, ::2] = 2.5
    array[1:3, ::2] = 2.5
    del got
    check(np.array_equal(read(tensor, array), array), "what NumPy wrote is missing")
    got = np.from_dlpack(Exported(tensor, flags=READ_ONLY))
    check(not got.flags.writeable, "a read-only tensor can be written")
    check(np.array_equal(read(tensor, array), array), "no reader beside it")
    del got
    flags = tensor_of(np.array([0, 1, 1], np.uint8), "pinned")
    got = np.from_dlpack(Exported(flags, flags=BOOL))
    check(got.dtype == np.bool_ and got.tolist() == [False, True, True], "bool", got)
    del got
    free(flags)
    free(tensor)


def views():
    """Exports transposed, sliced and broadcast views."""
    array = np.arange(120, dtype=np.int64).reshape(6, 20)
    tensor = tensor_of(array, "pinned")
    view = Tensor()
    call("hd_tensor_transpose", c.byref(tensor), 0, 1, c.byref(view))
    check(np.array_equal(np.from_dlpack(Exported(view)), array.T), "transposed")
    call("hd_tensor_slice", c.byref(view), 0, c.c_uint64(15), c.c_uint64(4), c.c_int64(-3), c.byref(view))
    check(np.array_equal(np.from_dlpack(Exported(view)), array.T[15:5:-3]), "sliced backwards")
    shape = (c.c_uint64 * 3)(2, 6, 20)
    call("hd_tensor_broadcast", c.byref(tensor), 3, shape, c.byref(view))
    check(np.array_equal(np.from_dlpack(Exported(view)), np.broadcast_to(array, (2, 6, 20))), "broadcast")
    gc.collect()
    free(tensor)


def untaken():
    """A capsule that no consumer takes holds the bytes until its deleter is called."""
    tensor = tensor_of(np.zeros(10, np.uint32), "pinned")
    for versioned in (True, False):
        capsule = Exported(tensor).__dlpack__(max_version=(1, 0) if versioned else None)
        name = VERSIONED if versioned else PLAIN
        check(python.PyCapsule_IsValid(capsule, name), "the capsule's name")
        ticket = Ticket()
        call("hd_fill", c.c_void_p(tensor.buffer), c.c_size_t(0), c.c_uint32(6), c.c_size_t(40), c.byref(ticket))
        fails("not", "hd_wait", ticket, c.c_int64(1000000))
        delete(python.PyCapsule_GetPointer(capsule, name), versioned)
        call("hd_wait", ticket, c.c_int64(FOREVER))
    free(tensor)


def pages(array):
    """Copies the elements to pages that hold nothing else."""
    room = np.empty(array.nbytes + 8192, np.uint8)
    start = -room.ctypes.data % 4096
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def from_numpy():
    """Heddle reads every array in place, and calls NumPy's deleter once: the number of references is as before."""
    if info.placement == b"process":
        array = np.zeros(5, np.float32)
        before = sys.getrefcount(array)
        capsule = array.__dlpack__()
        managed = c.c_void_p(python.PyCapsule_GetPointer(capsule, PLAIN))
        fails("placement", "hd_dlpack_import_unversioned", runtime, managed, c.c_int64(CPU), None, c.byref(Tensor()))
        del capsule
        check(sys.getrefcount(array) == before, "a refused array is kept")
        return
    count = 0
    for versioned in (True, False) if NUMPY_VERSIONED else (False,):
        for array in arrays():
            array = pages(array) if array.nbytes else array
            before = sys.getrefcount(array)
            tensor = take(array, versioned=versioned)
            check(sys.getrefcount(array) == before + (array.size > 0), "NumPy's array is not kept")
            check(tensor.type == TYPES[array.dtype.name] and tensor.dims == array.ndim, "another form")
            check(np.array_equal(read(tensor, array), array), "other elements", array.dtype, array.shape)
            free(tensor)
            await_references(array, before)
            count += 1
    print(count, "arrays from NumPy", np.__version__)


def await_references(array, wanted):
    """Waits without Python's lock, because a thread of Heddle that calls the deleter needs the lock."""
    for _ in range(100000):
        if sys.getrefcount(array) - 1 == wanted:  # one less for the parameter
            return
        time.sleep(0.001)
    raise AssertionError("NumPy's deleter was not called, or more than once")


def in_place():
    """Heddle writes NumPy's own memory, also strided views. It takes a read-only array only if the caller allows it."""
    if info.placement == b"process":
        return
    array = pages(np.zeros((16, 256), np.uint32))
    before = sys.getrefcount(array)
    tensor = take(array)
    call("hd_fill", c.c_void_p(tensor.buffer), c.c_size_t(0), c.c_uint32(7), c.c_size_t(8192), None)
    free(tensor)  # the deleter runs after the fill
    await_references(array, before)
    check((array[:8] == 7).all() and (array[8:] == 0).all(), "what Heddle wrote is missing")
    array[...] = np.arange(4096).reshape(16, 256)
    view = array[::-2, 10:50:3]
    tensor = take(view)
    check(np.array_equal(read(tensor, view), view), "a view backwards")
    free(tensor)
    if NUMPY_VERSIONED:
        fixed = pages(np.arange(100, dtype=np.int16))
        fixed.flags.writeable = False
        try:
            take(fixed)
            raise AssertionError("a read-only array was taken")
        except RuntimeError as error:
            check("HD_DLPACK_READ_ONLY" in str(error), error)
        tensor = take(fixed, READ_ONLY)
        check(np.array_equal(read(tensor, fixed), fixed), "read-only")
        free(tensor)
        flags = pages(np.array([True, False, True]))
        tensor = take(flags)
        check(tensor.type == TYPES["uint8"] and read(tensor, flags.view(np.uint8)).tolist() == [1, 0, 1], "bool")
        free(tensor)
    gc.collect()


def there_and_back():
    """NumPy computes with a tensor, and Heddle takes the result."""
    if info.placement == b"process":
        return
    array = np.arange(3000, dtype=np.float64)
    tensor = tensor_of(array, "pinned")
    result = pages(np.sqrt(np.from_dlpack(Exported(tensor))) * 2)
    back = take(result)
    check(np.array_equal(read(back, array), np.sqrt(array) * 2), "there and back")
    free(back)
    free(tensor)


to_numpy()
from_numpy()
in_place()
there_and_back()
order()
writes()
views()
untaken()
call("hd_close", runtime)
