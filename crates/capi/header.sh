#!/usr/bin/env bash
# Makes include/baio.h from the source; with --check it says whether it is what the source makes, and changes nothing.
#
#     crates/capi/header.sh [--check]
#
# It needs cbindgen (`cargo install cbindgen --locked`), in PATH or named by CBINDGEN.
set -euo pipefail
cd "$(dirname "$0")"
cbindgen=${CBINDGEN:-cbindgen}
made=$(mktemp)
trap 'rm -f "$made"' EXIT
"$cbindgen" --quiet --config cbindgen.toml --output "$made" .
sed -i -E 's/[[:space:]]+$//' "$made"
case ${1:-} in
--check) diff -u include/baio.h "$made" ;;
*) cp "$made" include/baio.h ;;
esac
