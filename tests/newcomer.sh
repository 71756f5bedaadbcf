#!/usr/bin/env bash
# What a newcomer does, to the letter: the shell blocks of README and docs, the commands at the head of each example, each Rust
# program of README and docs in a project of its own. It ends with an error at the first line that does not do what it should.
#
#     tests/newcomer.sh [PAGE]
#
# Any user may run it; it writes to a directory of its own, which goes when it ends. For that, `/tmp/` in what it runs becomes a
# directory in there. A block is one shell session, begun in the repository with `set -e`; blocks of one page share their files.
# Lines that take hours, or a device, are not run, and printed with the reason. So are the lines of $BAIO_RAN, one a line: whoever
# calls has just run these. Examples that it has built, in $BAIO_EXAMPLES, are run as they are, where a line would build them first.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

place=$(mktemp -d "${TMPDIR:-/tmp}/baio-newcomer.XXXXXX")
trap 'rm -rf "$place"' EXIT
mkdir "$place/bin" "$place/root"
# Where the `cargo install` of docs/use/commands.md puts the program; nobody's browser opens.
export CARGO_INSTALL_ROOT=$place/root PATH=$place/root/bin:$PATH BROWSER=true

# The blocks of a language in a page or in the head of an example, each into a file: $place/blocks.NUMBER.
blocks() { # page, language
    rm -f "$place"/blocks.*
    awk -v language="$2" -v to="$place/blocks" '
        FILENAME ~ /\.rs$/ { if ($0 !~ /^\/\/!/) exit; sub(/^\/\/! ?/, "") }
        /^```/ { if (inside) { inside = 0; wanted = 0; next } inside = 1; wanted = $0 == "```" language; number += wanted; next }
        wanted { print > sprintf("%s.%03d", to, number) }
    ' "$1"
}

# Why a line is not run here; nothing for one that is.
reason() { # line
    # Without its comment, and as it is written.
    local line
    line=$(sed 's/  *#.*//' <<<"$1")
    if [ -n "$line" ] && grep -qxF -- "$line" <<<"${BAIO_RAN:-}"; then
        echo "it was run a moment ago"
        return
    fi
    case $line in
    *" /dev/loop0 "*) echo "it needs a loop device" ;;
    "baio run -- fio job.fio") echo "it needs a job file of yours" ;;
    *" if=/dev/bad "*) echo "it needs a device whose reads fail" ;;
    *"/mnt/disk"*) echo "it needs a disk mounted there" ;;
    "baio report --only service --json") echo "it measures for minutes" ;;
    *"mutants/Cargo.toml"*) echo "it takes hours" ;;
    *"cargo +nightly"*) echo "it needs a nightly toolchain" ;;
    *" STORY" | *BAIO_SCHEDULES=*) echo "it is for whoever hunts a failure" ;;
    *"--test planted_faults"* | *"--test schedules"*) echo "a step of .ci/run of its own" ;;
    *"--example echo "*) echo "it serves until it is stopped; crates/baio/tests/links/local_io.rs talks to it" ;;
    "benches/peers/"*) echo "it measures for minutes, and needs the peers' crates" ;;
    *"/run/baio/"*) echo "it needs the broker of an installed service" ;;
    *"/run/mail/metrics.sock"*) echo "it needs a program that has opened that socket" ;;
    *COMMIT* | *" REV") echo "it needs a commit of yours" ;;
    "sudo "*) echo "it changes the machine" ;;
    "baio serve /tmp/vol.img --socket /tmp/vol.sock") echo "it serves until it is stopped; docs/use/serving.md does so in the background too" ;;
    .ci/kernels* | .ci/guest*) echo "it takes hours; a part of it is a step of .ci/run of its own" ;;
    "cargo build --release -p baio-cli -p baio-sim") echo "a step of .ci/long of its own" ;;
    *" powercut --"*) echo "it takes minutes; a step of .ci/long of its own" ;;
    "cargo semver-checks "*) echo "a step of .ci/long of its own" ;;
    esac
}

# A line as it is run here.
spoken() { # line
    local example line=$1
    for example in $(grep -oE -- '--example [a-z_]+' <<<"$line" | cut -d' ' -f2); do
        [ ! -x "${BAIO_EXAMPLES:-}/$example" ] ||
            line=$(sed -E "s#cargo run -p [a-z-]+ (--features [a-z]+ )?--example $example( --)?#$BAIO_EXAMPLES/$example#g" <<<"$line")
    done
    sed "s#/tmp/#$tmp/#g" <<<"$line"
}

# Runs a session: its lines but for those with a reason, in the repository.
session() { # name, file
    local line why to=$place/session.sh
    echo "set -euo pipefail" >"$to"
    while IFS= read -r line || [ -n "$line" ]; do
        why=$(reason "$line")
        if [ -n "$why" ]; then
            echo "SKIPPED: $line: $why"
        else
            spoken "$line" >>"$to"
        fi
    done <"$2"
    echo "-- $1"
    PS4='+ ' bash -x "$to" </dev/null >"$place/told" 2>&1 || {
        tail -n 60 "$place/told"
        echo "$1: the last line above that begins with + has failed" >&2
        exit 1
    }
    grep '^+ ' "$place/told"
}

shell_of() { # page
    local block
    tmp=$(mktemp -d "$place/tmp.XXXX")
    blocks "$1" sh
    for block in "$place"/blocks.*; do
        [ ! -e "$block" ] || session "$1" "$block"
    done
}

# The project of somebody who depends on baio, as the blocks `toml` of README and recipes say it, with the versions of this repository.
# Each Rust block of a page is a program of it.
project() {
    local project=$place/project page
    [ -e "$place/baio" ] || ln -s "$repository" "$place/baio"
    mkdir -p "$project/src/bin"
    cp Cargo.lock "$project/"
    printf '[package]\nname = "newcomer"\nversion = "0.0.0"\nedition = "2024"\n\n' >"$project/Cargo.toml"
    for page in README.md docs/program/recipes.md; do
        blocks "$page" toml
        cat "$place"/blocks.* >>"$project/Cargo.toml"
    done
    tmp=$(mktemp -d "$place/tmp.XXXX")
    for page in "$@"; do
        blocks "$page" rust
        for block in "$place"/blocks.*; do
            [ ! -e "$block" ] ||
                sed "s#/tmp/#$tmp/#g" "$block" >"$project/src/bin/$(basename "$page" .md | tr A-Z a-z)_${block##*.}.rs"
        done
    done
    [ -n "$(ls "$project/src/bin")" ] || return 0
    echo "-- the programs of $*"
    (cd "$project" && RUSTFLAGS="${RUSTFLAGS:-} -D warnings" CARGO_TARGET_DIR="$repository/target/newcomer" cargo build --quiet)
    for program in "$project"/src/bin/*.rs; do
        program=$(basename "$program" .rs)
        echo "+ $program"
        (cd "$tmp" && "$repository/target/newcomer/debug/$program")
    done
}

# The second one installs the program, which the others use.
pages=(README.md docs/use/commands.md CONTRIBUTING.md docs/*.md docs/{use,program,inside}/*.md benches/peers/README.md)
mapfile -t pages < <(printf '%s\n' "${pages[@]}" | awk '!seen[$0]++')
examples=(crates/baio/examples/*.rs crates/engine/examples/*/main.rs crates/storage/examples/*.rs)
programs=(README.md docs/program/recipes.md docs/program/log.md docs/program/cache.md)
if [ $# -gt 0 ]; then
    case $1 in
    *.rs) pages=() programs=() examples=("$1") ;;
    *) pages=("$1") examples=() programs=("$1") ;;
    esac
    # The other pages are for whoever has done what that one says first.
    [ "$1" = docs/use/commands.md ] || command -v baio >/dev/null || cargo install --quiet --locked --path crates/cli
fi

for page in "${pages[@]}"; do shell_of "$page"; done
for example in "${examples[@]}"; do
    blocks "$example" sh
    [ -e "$place/blocks.001" ] || {
        echo "$example: no command at its head says how it is run" >&2
        exit 1
    }
    shell_of "$example"
done
[ "${#programs[@]}" = 0 ] || project "${programs[@]}"
echo "all of it does what it says, in $SECONDS s"
