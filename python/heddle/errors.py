"""The exception of a failed call."""

from __future__ import annotations

from typing import Any

from ._abi import Status


class Error(Exception):
    """A call of Heddle failed, or an operation failed that the call waited for.

    ``str(error)`` is one line with the function, the problem and a remedy.

    The attributes describe the operation that failed; those that do not apply are None or "".
    After the loss of a device, they describe the operation that probably caused the loss.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        device: int | None = None,
        lane: int | None = None,
        ticket: int | None = None,
        operation: str = "",
        kernel: str = "",
        driver_code: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.device = device
        self.lane = lane
        self.ticket = ticket
        self.operation = operation
        self.kernel = kernel
        self.driver_code = driver_code

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.status, self.message, self.__dict__)


def _restore(status: Status, message: str, facts: dict[str, Any]) -> Error:
    """Makes the exception that was pickled, for example in another process."""
    error = Error(status, message)
    error.__dict__.update(facts)
    return error
