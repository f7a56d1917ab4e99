"""The base of objects that stand for a thing of the library, and the converter of whole numbers.

Threads: any. There are no locks, and the file keeps no state.
Always: no copy of such an object exists, so the end of an object ends a thing that no other object holds.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

INT = (1 << 31) - 1
"""The largest int of C."""
SIZE = (1 << 63) - 1
"""The largest size and offset: sums of two of them fit in 64 bits."""
WORD = (1 << 64) - 1
"""The largest number of 64 bits."""


class Single:
    """An object that is neither copied nor pickled: the end of a copy would end the original."""

    __slots__ = ()

    def _refuse_copy(self) -> NoReturn:
        name = type(self).__name__.lstrip("_")
        raise TypeError(
            "heddle: an object of the class %s cannot be copied or pickled; refer to the same object in both places, "
            "or copy a tensor's elements by t.numpy() or copy.deepcopy(t)" % name
        )

    def __copy__(self) -> Any:
        self._refuse_copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._refuse_copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._refuse_copy()


def whole(name: str, value: Any, low: int = 0, high: int = SIZE) -> int:
    """The whole number of an argument, which C would cut to its lowest bits without a word."""
    if isinstance(value, bool):
        raise TypeError("heddle: %s is %r; pass a whole number" % (name, value))
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError("heddle: %s is %r; pass a whole number" % (name, value)) from None
    if not low <= number <= high:
        raise ValueError("heddle: %s is %d; pass a number from %d to %d" % (name, number, low, high))
    return number
