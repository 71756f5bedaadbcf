#!/usr/bin/env bash
# Builds libbaio-posix-aio.so; prints the directory that has it.
#
#     crates/posix-aio/build.sh [CARGO PROFILE]
#
# The profile is `release` if none is named. It needs a C compiler. Why the C compiler links it: see crates/libaio/build.sh.
set -euo pipefail
crate=$(cd "$(dirname "$0")" && pwd)
profile=${1:-release}
cd "$crate/../.."
cargo build --quiet --locked --profile "$profile" -p baio-posix-aio >&2
built=$profile
[ "$profile" != dev ] || built=debug
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
to=$target/$built/posix-aio
mkdir -p "$to"
name=libbaio-posix-aio.so
# nodelete: threads of the library may be at work when a program unloads it.
${CC:-cc} -shared -fPIC -O2 -fexceptions -Wall -Wextra -o "$to/$name.new" "$crate/c/exports.c" \
    -Wl,--whole-archive "$target/$built/libbaio_posix_aio.a" -Wl,--no-whole-archive \
    -Wl,--version-script="$crate/c/posix-aio.map" -Wl,-soname,"$name" \
    -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lpthread -ldl -lm -lgcc_s -lc
# A program that has it open keeps the one it has.
mv "$to/$name.new" "$to/$name"
echo "$to"
