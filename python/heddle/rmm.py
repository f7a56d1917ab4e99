"""A memory resource of RMM, for libraries such as cuDF, that takes memory from Heddle.

>>> import heddle.rmm                                                # doctest: +SKIP
>>> rmm.mr.set_current_device_resource(heddle.rmm.resource())        # doctest: +SKIP

RMM calls Python for each allocation. Programs in C++ use heddle/resource.hpp, which does not.
"""

from __future__ import annotations

from typing import Any

import rmm.mr

from ._lenders import is_out_of_memory, lender
from .claims import stream_of
from .errors import Error
from .runtime import Runtime


def resource(device: int = 0, runtime: Runtime | None = None) -> Any:
    """Makes a memory resource for a device of the driver.

    An allocation that fails raises MemoryError with the message of Heddle.
    """
    loans = lender("rmm", runtime)
    loans.device_of(device)

    def allocate(nbytes: int, stream: Any) -> int:
        try:
            return loans.lend(nbytes, device, stream_of(stream))
        except Error as error:
            if is_out_of_memory(error):
                raise MemoryError(error.message) from error
            raise

    def deallocate(address: int, nbytes: int, stream: Any) -> None:
        if loans.is_usable:
            loans.take_back(address, stream_of(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
