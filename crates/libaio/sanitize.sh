#!/usr/bin/env bash
# Runs the library under a sanitizer (tests/sanitize.sh).
#
#     crates/libaio/sanitize.sh thread|address [SECONDS]
exec "$(dirname "$0")/../../tests/sanitize.sh" libaio "$@"
