#!/usr/bin/env bash
# test_docs.sh - the documentation agrees with the code.
exec "$1/tools/check-docs" "$1"
