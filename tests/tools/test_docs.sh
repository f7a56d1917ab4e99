#!/usr/bin/env bash
# test_docs.sh - the documentation agrees with the code.
#
# Promise: The documentation names every option, command and function, and none that does not exist.
exec "$1/tools/check-docs" "$1"
