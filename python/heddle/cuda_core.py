"""A memory resource of cuda.core that takes memory from Heddle.

>>> import heddle.cuda_core                                          # doctest: +SKIP
>>> memory = heddle.cuda_core.MemoryResource(device)                 # doctest: +SKIP
>>> buffer = memory.allocate(1 << 20, stream=stream)                 # doctest: +SKIP

Heddle uses the memory of a closed buffer again behind the work that the stream of the close
contains at that time.
"""

from __future__ import annotations

from typing import Any

import cuda.core

from ._lenders import is_out_of_memory, lender
from .claims import stream_of
from .errors import Error
from .runtime import Runtime


class MemoryResource(cuda.core.MemoryResource):
    """Memory of a device for buffers of cuda.core. `device` is a device of cuda.core, or its number."""

    def __init__(self, device: Any = 0, runtime: Runtime | None = None) -> None:
        self._ordinal = int(getattr(device, "device_id", device))
        self._lender = lender("cuda_core", runtime)
        self._lender.device_of(self._ordinal)

    @property
    def count(self) -> int:
        """The number of buffers that exist now."""
        return self._lender.count

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Makes a buffer for work in a stream. Raises MemoryError with the message of Heddle."""
        try:
            address = self._lender.lend(size, self._ordinal, stream_of(stream))
        except Error as error:
            if is_out_of_memory(error):
                raise MemoryError(error.message) from error
            raise
        return cuda.core.Buffer.from_handle(address, size, mr=self, stream=stream)

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """cuda.core calls it when a buffer is closed."""
        if self._lender.is_usable:
            self._lender.take_back(int(ptr), None if stream is None else stream_of(stream))

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """False."""
        return False

    @property
    def is_managed(self) -> bool:
        """False."""
        return False

    @property
    def device_id(self) -> int:
        """The number of the device, as the driver counts."""
        return self._ordinal
