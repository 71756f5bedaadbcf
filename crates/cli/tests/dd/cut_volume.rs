//! Promise: a copy out of a segment is whole or fails. A volume whose file is cut under it is an error of `dd`, not the end of
//! its input.

use std::fs::OpenOptions;
use std::io::Read;

use crate::support::{BAIO, Place, random_bytes};

#[test]
fn dd_fails_when_the_volume_is_cut_under_it() {
    let place = Place::new();
    place.volume("32M", "16M");
    place.write("in", &random_bytes(16 << 20, 5));
    place.baio("dd if=in of=vol#a bs=1M conv=fsync").succeeds();
    let words = "dd if=vol#a bs=64K iodepth=2 status=none".split(' ');
    let mut child = place.spawn(BAIO, words);
    let mut out = child.stdout.take().unwrap();
    let mut first = vec![0; 64 << 10];
    out.read_exact(&mut first).unwrap();
    // The copy waits for room in the pipe, far from the end.
    let volume = OpenOptions::new().write(true).open(place.path("vol")).unwrap();
    volume.set_len(8 << 20).unwrap();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("cut while the volume was open"), "{said}");
    assert!(rest.len() < 16 << 20);
}
