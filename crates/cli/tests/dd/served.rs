//! Promise: `baio dd` copies from and to a segment that a broker serves just as it does with the volume's own path: the same bytes, the
//! same records, the same failures; whatever `bs=`, `iodepth=` and the broker's arena are.

use rustix::process::Signal;

use crate::support::server::Server;
use crate::support::{self, Done, Place, assert_same, random_bytes};

const KIB: usize = 1 << 10;
/// Of segments: whole blocks, and no more than that.
const SIZE: usize = 1500 * KIB + 4096;

/// Served: `s` with a segment `a` and one `b`. Not served: the same in `vol`. All hold the same bytes.
struct Pair {
    place: Place,
    server: Option<Server>,
}

/// Does the line write to something else than standard output?
fn has_output(line: &str) -> bool {
    line.contains("of=@") || line.contains("of=out")
}

/// The whole of a line, with the segments of the one volume or of the other.
fn on(volume: &str, line: &str) -> String {
    let json = if has_output(line) { "--json " } else { "" };
    format!("dd {json}{}", line.replace('@', volume))
}

impl Pair {
    fn new(serve: &str) -> Pair {
        let place = Place::new();
        place.write("old", &random_bytes(SIZE, 7));
        for volume in ["vol", "far"] {
            place.baio(&format!("format {volume} --size 16M")).succeeds();
            for name in ["a", "b"] {
                place.baio(&format!("create {volume}#{name} --size {SIZE}")).succeeds();
                place.baio(&format!("dd if=old of={volume}#{name} bs=64K")).succeeds();
            }
        }
        let server = Server::start(&place, &format!("serve far --socket s {serve}")).ready();
        Pair {
            place,
            server: Some(server),
        }
    }

    /// Copies on both, and compares what they tell; the line may write a file `out.@`.
    #[track_caller]
    fn both(&self, line: &str, input: &[u8]) -> [Done; 2] {
        let near = self
            .place
            .baio_fed(&on("vol", &line.replace("out.@", "out.near")), input);
        let far = self
            .place
            .baio_fed(&on("unix:s", &line.replace("out.@", "out.far")), input);
        assert_eq!(near.records(), far.records(), "{line}: {}", far.errors());
        assert_eq!(
            near.status(),
            far.status(),
            "{line}: {} {}",
            near.errors(),
            far.errors()
        );
        if !has_output(line) {
            assert_same(near.out(), far.out(), line);
            return [near, far];
        }
        let (one, other) = (near.json(), far.json());
        for key in [
            "bytes",
            "records_in_full",
            "records_in_partial",
            "records_out_full",
            "depth",
        ] {
            assert_eq!(one[key], other[key], "{line}: {key}: {other}");
        }
        for key in ["code", "offset", "need", "cure"] {
            assert_eq!(one["error"][key], other["error"][key], "{line}: {key}: {other}");
        }
        [near, far]
    }

    #[track_caller]
    fn files_agree(&self, line: &str) {
        assert_same(&self.place.read("out.near"), &self.place.read("out.far"), line);
    }

    /// The segments hold the same as those that were not served, and their volume is whole.
    #[track_caller]
    fn segments_agree(&mut self) {
        let server = self.server.take().unwrap();
        server.signal(Signal::TERM);
        server.ends_well();
        for name in ["a", "b"] {
            for volume in ["vol", "far"] {
                self.place
                    .baio(&format!("dd if={volume}#{name} of={volume}.{name} bs=64K"))
                    .succeeds();
            }
            let read = |volume: &str| self.place.read(&format!("{volume}.{name}"));
            assert_eq!(read("far").len(), SIZE, "a copy changes no size");
            assert_same(&read("vol"), &read("far"), name);
        }
        self.place.baio("check far").succeeds();
    }
}

#[test]
fn out_of_a_segment() {
    let pair = Pair::new("");
    for line in [
        "if=@#a of=out.@",
        "if=@#a of=out.@ bs=4K iodepth=16",
        "if=@#a of=out.@ bs=1000 iodepth=3 skip=7 count=900",
        "if=@#a of=out.@ bs=64K skip=1001 iflag=skip_bytes",
        "if=@#a of=out.@ bs=100000 iodepth=32 conv=notrunc",
        "if=@#a of=out.@ bs=64K seek=3 conv=notrunc,fsync",
        "if=@#a of=out.@ bs=1M iodepth=64",
        "if=@#a of=out.@ bs=64K skip=100",
        "if=@#a bs=7777 iodepth=4",
        "if=@#a bs=64K count=5000 iflag=count_bytes",
    ] {
        let [_, far] = pair.both(line, b"");
        assert_eq!(far.status(), 0, "{line}: {}", far.errors());
        if line.contains("of=out") {
            pair.files_agree(line);
        }
    }
    assert_eq!(pair.place.read("out.far").len(), 0, "skipped to its end");
}

#[test]
fn into_a_segment() {
    let mut pair = Pair::new("");
    let new = random_bytes(SIZE - 300_000, 8);
    pair.place.write("new", &new);
    for line in [
        "if=new of=@#a bs=4K iodepth=16 count=30",
        "if=new of=@#a bs=1000 iodepth=5 seek=131 skip=7 count=900",
        "if=new of=@#a bs=64K seek=777 oflag=seek_bytes iodepth=32 conv=fsync",
        "if=new of=@#b bs=100000 conv=notrunc iodepth=8 seek=1",
        "if=new of=@#b bs=3 count=5 seek=100 conv=fdatasync",
    ] {
        let [_, far] = pair.both(line, b"");
        assert_eq!(far.status(), 0, "{line}: {}", far.json());
    }
    pair.segments_agree();
}

/// Where files cannot be opened so, both say the same.
#[test]
fn files_past_the_kernels_cache() {
    let mut pair = Pair::new("");
    pair.place.write("new", &random_bytes(SIZE - 100, 13));
    pair.both("if=new of=@#a bs=64K iflag=direct iodepth=8", b"");
    pair.both("if=@#a of=out.@ bs=64K oflag=direct iodepth=8", b"");
    pair.files_agree("direct");
    pair.segments_agree();
}

#[test]
fn pipes_on_the_other_side() {
    let mut pair = Pair::new("");
    let new = random_bytes(700_001, 9);
    for line in [
        "of=@#a bs=64K iflag=fullblock",
        "of=@#a bs=1000 seek=3 iodepth=9 iflag=fullblock",
        "of=@#b bs=4K skip=2 iflag=fullblock conv=fdatasync",
        "of=@#b bs=1M iflag=fullblock seek=5000 oflag=seek_bytes conv=fsync",
    ] {
        let [_, far] = pair.both(line, &new);
        assert_eq!(far.status(), 0, "{line}: {}", far.json());
    }
    pair.segments_agree();
}

#[test]
fn a_segment_is_full_like_a_device() {
    let mut pair = Pair::new("");
    pair.place.write("new", &random_bytes(SIZE + 5000, 10));
    for line in [
        "if=new of=@#a bs=300000 iodepth=8",
        "if=/dev/zero of=@#b bs=64K seek=20",
        "if=/dev/zero of=@#b bs=64K seek=100",
    ] {
        let [_, far] = pair.both(line, b"");
        assert_eq!(far.fails_with(1).error()["code"], "ENOSPC", "{line}");
    }
    let [_, far] = pair.both("of=@#b bs=64K iflag=fullblock", &random_bytes(SIZE + 1, 11));
    assert_eq!(far.fails_with(1).error()["offset"], SIZE);
    pair.segments_agree();
}

#[test]
fn from_one_segment_to_another() {
    let mut pair = Pair::new("");
    for line in [
        "if=@#a of=@#b bs=4K iodepth=16 skip=3 count=100",
        "if=@#a of=@#b bs=64K skip=1001 iflag=skip_bytes seek=777 oflag=seek_bytes iodepth=8",
        // One over itself: a record after the other.
        "if=@#b of=@#b bs=1000 seek=5 count=700",
        "if=@#b of=@#b bs=1M skip=300 iflag=skip_bytes conv=fsync",
    ] {
        let [_, far] = pair.both(line, b"");
        let told = far.succeeds().json();
        assert_eq!(told["backend"], "broker", "{told}");
    }
    pair.segments_agree();
}

#[test]
fn between_two_brokers_and_a_volume_of_ones_own() {
    let pair = Pair::new("");
    let place = &pair.place;
    place.baio("format third --size 16M").succeeds();
    place.baio(&format!("create third#c --size {SIZE}")).succeeds();
    let third = Server::start(place, "serve third --socket t").ready();
    place
        .baio("dd if=unix:s#a of=unix:t#c bs=30000 iodepth=8 conv=fsync")
        .succeeds();
    place.baio("dd if=unix:t#c of=back bs=64K").succeeds();
    assert_same(&place.read("old"), &place.read("back"), "the second broker's");
    place.baio("dd if=/dev/zero of=vol#a bs=64K count=5").succeeds();
    place.baio("dd if=unix:t#c of=vol#a bs=4000 iodepth=16").succeeds();
    third.signal(Signal::TERM);
    third.ends_well();
    place.baio("dd if=vol#a of=back bs=64K").succeeds();
    assert_same(&place.read("old"), &place.read("back"), "our own");
}

/// The buffers of the copy do not fit there: they go in parts.
#[test]
fn however_small_the_arena_is() {
    let mut pair = Pair::new("--arena 256K --places 4");
    let new = random_bytes(SIZE - 4096, 12);
    pair.place.write("new", &new);
    for line in [
        "if=@#a of=out.@ bs=1M iodepth=8",
        "if=@#a of=out.@ bs=700000 iodepth=3 skip=1",
        "if=@#a of=out.@ bs=4K iodepth=128",
        "if=@#a of=out.@ bs=4M",
    ] {
        let [_, far] = pair.both(line, b"");
        assert_eq!(far.status(), 0, "{line}: {}", far.errors());
        pair.files_agree(line);
    }
    for line in [
        "if=new of=@#a bs=1M iodepth=8 conv=fsync",
        "if=new of=@#a bs=4M seek=100 oflag=seek_bytes",
        "if=new of=@#b bs=4K iodepth=128 seek=1",
        "if=@#a of=@#b bs=1M iodepth=4 count=1 seek=99 oflag=seek_bytes",
    ] {
        let [_, far] = pair.both(line, b"");
        assert_eq!(far.status(), 0, "{line}: {}", far.json());
    }
    // The record that has no room is whole, or the input ends in it: no buffer holds what is left of it.
    for more in [700_000, 500_000] {
        pair.place.write("long", &random_bytes(SIZE + more, 14));
        let [_, far] = pair.both("if=long of=@#b bs=1M", b"");
        assert_eq!(far.fails_with(1).error()["code"], "ENOSPC", "{more}");
    }
    pair.segments_agree();
}

#[test]
fn what_cannot_be_copied_changes_nothing() {
    let pair = Pair::new("");
    let place = &pair.place;
    for (line, code, word) in [
        ("if=unix:s#nope of=new", "ENOENT", "baio list"),
        ("if=old of=unix:s#nope", "ENOENT", "baio list"),
        ("if=unix:missing#a of=new", "ENOENT", "baio serve"),
        ("if=unix:s of=new", "EUSAGE", "vol#log"),
    ] {
        let error = place.error(&format!("dd {line}"), 1);
        assert_eq!(error["code"], code, "{line}: {error}");
        assert!(error["cure"].as_str().unwrap().contains(word), "{line}: {error}");
        assert!(!place.path("new").exists(), "{line}");
    }
}

#[test]
fn a_broker_that_died_before_takes_no_more() {
    let mut pair = Pair::new("");
    let words = [
        "-s",
        "KILL",
        "60",
        support::BAIO,
        "dd",
        "--json",
        "of=unix:s#a",
        "bs=4K",
    ];
    let mut child = pair.place.spawn("timeout", words);
    let mut pipe = child.stdin.take().unwrap();
    let first = random_bytes(64 * KIB, 14);
    std::io::Write::write_all(&mut pipe, &first).unwrap();
    // It is there: nothing is under way.
    while pair.place.baio("dd if=unix:s#a bs=64K count=1").succeeds().out() != first {}
    pair.server.take().unwrap().killed();
    let _ = std::io::Write::write_all(&mut pipe, &first);
    drop(pipe);
    let error = Done(child.wait_with_output().unwrap()).fails_with(1).json()["error"].clone();
    assert_eq!(error["object"], "unix:s#a", "{error}");
}
