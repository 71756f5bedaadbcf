#!/usr/bin/env bash
# Builds libaio.so.1, and libaio.so.1t64, its name on newer distributions; prints the directory that has both.
#
#     crates/libaio/build.sh [CARGO PROFILE]
#
# The profile is `release` if none is named. It needs a C compiler.
#
# rustc has a version script of its own for shared libraries, which collides with one that gives symbols versions. So Rust makes a static
# library, and the C compiler links it.
set -euo pipefail
crate=$(cd "$(dirname "$0")" && pwd)
profile=${1:-release}
cd "$crate/../.."
cargo build --quiet --locked --profile "$profile" -p baio-libaio >&2
built=$profile
[ "$profile" != dev ] || built=debug
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
to=$target/$built/libaio
mkdir -p "$to"
for name in libaio.so.1 libaio.so.1t64; do
    # -Bsymbolic-functions: a program that has an `io_submit` of its own, in front of ours, is not called from in here.
    # nodelete: threads of the library may be at work when a program unloads it, and contexts outlive that, as the kernel's do.
    ${CC:-cc} -shared -fPIC -O2 -o "$to/$name.$$" "$crate/c/exports.c" \
        -Wl,--whole-archive "$target/$built/libbaio_libaio.a" -Wl,--no-whole-archive \
        -Wl,--version-script="$crate/c/libaio.map" -Wl,-soname,"$name" \
        -Wl,-Bsymbolic-functions -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -lpthread -ldl -lm -lgcc_s -lc
    # A program that has it open keeps the one it has.
    mv "$to/$name.$$" "$to/$name"
done
echo "$to"
