#!/usr/bin/env bash
# Runs a drop-in library under a sanitizer: its own tests, then eight threads that hammer it (tests/hammered.rs of its crate).
#
#     tests/sanitize.sh libaio|posix-aio thread|address [SECONDS]
#
# 60 seconds if none are named. It needs a nightly toolchain with rust-src, and the network or cargo's cache for the crates of Rust's
# standard library. Library, standard library and test are all built with the sanitizer, in a target directory of their own, and rustc
# links the runtime that it ships. The test calls the functions that C programs call.
#
# What the sanitizer cannot see: the kernel. That it writes a request's bytes, reads its queue or posts a result is no access to it, nor is
# a system call that is made without libc. So a buffer that the kernel still writes to is found only when its freed memory shows it.
set -euo pipefail
cd "$(dirname "$0")/.."
library=${1:-}
sanitizer=${2:-}
seconds=${3:-60}
case $library/$sanitizer in
libaio/thread | libaio/address | posix-aio/thread | posix-aio/address) ;;
*)
    echo "usage: tests/sanitize.sh libaio|posix-aio thread|address [SECONDS]" >&2
    exit 2
    ;;
esac
host=$(rustc -vV | sed -n 's/^host: //p')
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
# rustix makes system calls itself, unless it is asked to go through libc, where the sanitizer sees that memory is mapped anew: without
# that the first words of a new context look like a race with those of the one that was there before.
export RUSTFLAGS="-Zsanitizer=$sanitizer --cfg rustix_use_libc"
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=1 ${ASAN_OPTIONS:-}"
export BAIO_SECONDS=$seconds
# ThreadSanitizer keeps one signal of a kind for each thread until its handler may run, and loses the next.
[ "$sanitizer" = address ] || export BAIO_SIGNALS=lossy
nice -n 10 cargo +nightly test --locked -Zbuild-std --target "$host" --target-dir "$target/sanitize-$sanitizer" -p "baio-$library" \
    --lib --test hammered -- --nocapture
echo "nothing reported by the $sanitizer sanitizer in $seconds seconds"
