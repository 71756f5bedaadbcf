#!/usr/bin/env bash
# The pictures in docs/pictures, made anew with a program that is built:
#
#     tests/pictures.sh target/release/baio
#
# The tour and `baio top` as a terminal shows them, and the first screen of the report in docs/use/results as a desk and a phone show it,
# light and dark. It needs chromium, aha and optipng, and a machine on which nothing else runs: the figures of the tour are real.
set -euo pipefail
baio=$(realpath "$1")
cd "$(dirname "$0")/.."
to=$PWD/docs/pictures
place=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker"; rm -rf "$place"' EXIT
mkdir -p "$to"

# What a terminal of 80 columns shows of a command, as a picture as high as the text.
terminal() { # name, command
    local name=$1 lines
    (cd "$place" && TERM=xterm-256color script -qec "stty cols 80 rows 50; $2" /dev/null) | tr -d '\r' >"$place/$name.text"
    (printf '$ %s\n' "$2" && cat "$place/$name.text") | aha --black --title "$name" >"$place/$name.html"
    sed -i 's/<pre>/<pre style="font: 14px\/18px monospace; margin: 14px">/' "$place/$name.html"
    lines=$(wc -l <"$place/$name.text")
    picture "$name" "$((lines * 18 + 60))" "$place/$name.html"
}
picture() { # name, height, page
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="720,$2" --screenshot="$to/$1.png" "file://$3" 2>/dev/null
}

PATH=$(dirname "$baio"):$PATH
terminal tour "baio tour"

# A broker with two segments, each read and written by somebody.
baio format "$place/vol" --size 256M >/dev/null
for name in mail index; do baio create "$place/vol#$name" --size 64M --zero written >/dev/null; done
baio serve "$place/vol" --socket "$place/vol.sock" --name vol >/dev/null &
broker=$!
until [ -S "$place/vol.sock" ]; do sleep 0.1; done
for name in mail index; do
    baio stress "unix:$place/vol.sock#$name" --rw randrw --depth 8 --runtime 6s >/dev/null &
done
sleep 3
terminal top "baio top --socket vol.sock --once"
wait %2 %3

baio report --show docs/use/results/report.json --as page >"$place/report.html"
tests/page.py chromium --no-sandbox --screenshots "$place/pages" "$place/report.html"
for shown in desk-light desk-dark phone-light phone-dark; do cp "$place/pages/report-$shown-first.png" "$to/report-$shown.png"; done
optipng -quiet "$to"/*.png
ls -l "$to"
