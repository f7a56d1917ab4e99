"""The memory manager of Numba that takes memory from Heddle.

Set the variable NUMBA_CUDA_MEMORY_MANAGER=heddle.numba before the program imports numba.cuda.

Numba frees memory without a stream. Heddle uses the memory again behind all work that the device's
streams contain at that time. Streams made with the flag CU_STREAM_NON_BLOCKING are an exception:
keep an array until work in such a stream is finished.
"""

from __future__ import annotations

import ctypes as c
import weakref
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

from ._abi import Status
from ._lenders import Lender, is_out_of_memory, lender
from .errors import Error

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class MemoryManager(cuda.HostOnlyCUDAMemoryManager):
    """Numba's memory on devices comes from the current runtime of Heddle. Numba itself makes pinned memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loans: dict[int, Lender] = {}

    def initialize(self) -> None:
        """Numba calls it before it uses the manager in a context."""

    def memalloc(self, size: int) -> Any:
        """Memory in Numba's context. Raises CudaAPIError with the message of Heddle."""
        loans = lender("numba")
        address = self._attempt_allocation(lambda: self._lend(loans, size))
        self._loans[address] = loans
        finalizer = _finalizer(address, self._loans)
        return cuda.MemoryPointer(weakref.proxy(self.context), c.c_void_p(address), size, finalizer=finalizer)

    def _lend(self, loans: Lender, size: int) -> int:
        try:
            return loans.lend(size, self.context.device.id)
        except Error as error:
            if is_out_of_memory(error):
                raise CudaAPIError(_OUT_OF_MEMORY, error.message) from error
            raise

    def get_memory_info(self) -> Any:
        """The bytes that Numba can still get, and all bytes, both below the limit of Heddle."""
        free, total = lender("numba").memory_info(self.context.device.id)
        return cuda.MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Raises UNSUPPORTED: the driver makes no IPC handle for this memory."""
        raise Error(
            Status.UNSUPPORTED,
            "heddle.numba: memory of Heddle has no IPC handle of CUDA; copy the array to memory of "
            "heddle.alloc(..., dedicated=True), and export this buffer (hd_buffer_export)",
        )

    def reset(self) -> None:
        """Takes all memory of the context back."""
        super().reset()
        for address in list(self._loans):
            _finalizer(address, self._loans)()

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface."""
        return 1


def _finalizer(address: int, loans: dict[int, Lender]) -> Callable[[], None]:
    """Ends a loan, unless reset() ended it."""

    def finalizer() -> None:
        owner = loans.pop(address, None)
        if owner is not None and owner.is_usable:
            owner.take_back(address)

    return finalizer


_numba_memory_manager = MemoryManager
