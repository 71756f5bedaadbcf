//! Promise: data is read from a volume that cannot be written, and reading changes no byte of it.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Place, assert_same, random_bytes};

#[test]
fn dd_and_stress_read_a_volume_without_writing_it() {
    let place = Place::new();
    place.volume("8M", "1M");
    let bytes = random_bytes(1 << 20, 9);
    place.write("in", &bytes);
    place.baio("dd if=in of=vol#a bs=64K").succeeds();
    let before = place.read("vol");
    let only_read = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(place.path("vol"), only_read).unwrap();
    place.baio("dd if=vol#a of=out bs=64K").succeeds();
    assert_same(&bytes, &place.read("out"), "what was read");
    place.baio("stress vol#a --rw randread --once").succeeds();
    place
        .baio("stress vol#a --rw read --once --mode cached --cache 1M")
        .succeeds();
    assert!(place.read("vol") == before, "a byte of the volume has changed");
}
