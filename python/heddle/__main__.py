"""``python -m heddle`` is the command line tool."""

import os
import sys

from . import paths


def main() -> None:
    """Replaces this process by the tool."""
    program = paths.tool()
    try:
        os.execv(program, ["heddle", *sys.argv[1:]])
    except OSError as error:
        sys.exit("heddle: %s: %s" % (program, error.strerror))


if __name__ == "__main__":
    main()
