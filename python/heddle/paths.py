"""Where the parts of this package for C are: the library, the headers, and files for build systems."""

from __future__ import annotations

import ctypes
import os
import sys

PACKAGE = os.path.dirname(os.path.abspath(__file__))
OVERRIDE = "HEDDLE_SHARED_LIBRARY"  # names another libheddle.so, such as that of a build tree
LIBRARY = "libheddle.so.2"
_AT_SECURE = 23  # of the system's getauxval


def _chosen() -> str | None:
    """The library that the environment names. A program with more rights than its caller takes nothing from there."""
    if sys.flags.ignore_environment or ctypes.CDLL(None).getauxval(_AT_SECURE):
        return None
    return os.environ.get(OVERRIDE)


def library() -> str:
    """The path of the shared library that this package loads."""
    chosen = _chosen()
    return os.path.abspath(chosen) if chosen else os.path.join(PACKAGE, "lib", LIBRARY)


def library_dir() -> str:
    """The folder of the shared library, for the linker's option -L."""
    return os.path.dirname(library())


def include_dir() -> str:
    """The folder of heddle.h and heddle.hpp, for the compiler's option -I."""
    return os.path.join(PACKAGE, "include")


def cmake_dir() -> str:
    """The folder of HeddleConfig.cmake, for CMake's variable Heddle_DIR."""
    return os.path.join(PACKAGE, "lib", "cmake", "Heddle")


def pkgconfig_dir() -> str:
    """The folder of heddle.pc, for the variable PKG_CONFIG_PATH."""
    return os.path.join(PACKAGE, "lib", "pkgconfig")


def tool() -> str:
    """The path of the command line tool; ``python -m heddle`` runs it."""
    chosen = _chosen()
    beside = os.path.join(os.path.dirname(os.path.abspath(chosen)), "heddle") if chosen else ""
    return beside if beside and os.path.exists(beside) else os.path.join(PACKAGE, "bin", "heddle")
