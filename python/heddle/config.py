"""``python -m heddle.config WORD`` prints a folder of this package, for C compilers and build systems.

The package contains a whole installation of Heddle:

    PKG_CONFIG_PATH=$(python -m heddle.config pkgconfig) pkg-config --cflags --libs heddle
    cmake -DHeddle_DIR=$(python -m heddle.config cmake) ...
"""

from __future__ import annotations

import sys

from . import paths

WORDS = {
    "include": paths.include_dir,
    "library": paths.library_dir,
    "cmake": paths.cmake_dir,
    "pkgconfig": paths.pkgconfig_dir,
    "tool": paths.tool,
}


def main(words: list[str] | None = None) -> int:
    """Prints the folder that the first word names."""
    words = sys.argv[1:] if words is None else words
    if len(words) != 1 or words[0] not in WORDS:
        sys.stderr.write("usage: python -m heddle.config %s\n" % "|".join(WORDS))
        return 2
    print(WORDS[words[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
