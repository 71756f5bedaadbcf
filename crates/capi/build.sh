#!/usr/bin/env bash
# Builds libbaio.so.0, libbaio.a, baio.h and baio.pc, and prints the directory that they are laid out in.
#
#     crates/capi/build.sh [CARGO PROFILE] [--prefix DIR]
#
# The profile is `release` if none is named. Without a prefix all goes to TARGET/PROFILE/capi; with one to DIR, or below DESTDIR if that is
# set: include, lib, lib/pkgconfig, share/man/man3. It needs a C compiler.
#
# rustc has a version script of its own for shared libraries, which collides with one that gives symbols versions. So Rust makes a static
# library, and the C compiler links it.
set -euo pipefail
crate=$(cd "$(dirname "$0")" && pwd)
profile=release prefix=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) prefix=${2:?--prefix needs a directory} && shift 2 ;;
    -*) echo "usage: build.sh [CARGO PROFILE] [--prefix DIR]" >&2 && exit 2 ;;
    *) profile=$1 && shift ;;
    esac
done
case $prefix in '' | /*) ;; *) prefix=$PWD/$prefix ;; esac
cd "$crate/../.."
cargo build --quiet --locked --profile "$profile" -p baio-capi >&2
built=$profile
[ "$profile" != dev ] || built=debug
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
prefix=${prefix:-$target/$built/capi}
to=${DESTDIR:-}$prefix
libraries="-lpthread -ldl -lm -lgcc_s -lc"
mkdir -p "$to/include" "$to/lib/pkgconfig" "$to/share/man/man3"
# Every name of the library that the header has, and no other. nodelete: threads of the library may be at work when a program unloads it.
${CC:-cc} -shared -fPIC -o "$to/lib/libbaio.so.0.new" \
    -Wl,--whole-archive "$target/$built/libbaio_c.a" -Wl,--no-whole-archive \
    -Wl,--version-script="$crate/c/baio.map" -Wl,-soname,libbaio.so.0 \
    -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-z,defs -Wl,--as-needed $libraries
# A program that has it open keeps the one it has.
mv "$to/lib/libbaio.so.0.new" "$to/lib/libbaio.so.0"
ln -sf libbaio.so.0 "$to/lib/libbaio.so"
install -m 644 "$target/$built/libbaio_c.a" "$to/lib/libbaio.a"
install -m 644 "$crate/include/baio.h" "$to/include/baio.h"
for page in "$crate"/man/*.3; do
    [ ! -e "$page" ] || install -m 644 "$page" "$to/share/man/man3/"
done
cat >"$to/lib/pkgconfig/baio.pc" <<PC
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: baio
Description: User-level asynchronous block I/O
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lbaio
Libs.private: $libraries
PC
echo "$to"
