#!/usr/bin/env bash
# Runs the library under a sanitizer (tests/sanitize.sh).
#
#     crates/posix-aio/tests/sanitize.sh thread|address [SECONDS]
exec "$(dirname "$0")/../../../tests/sanitize.sh" posix-aio "$@"
