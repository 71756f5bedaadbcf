//! Promise: a volume in use has one owner; everybody else is told who, by process id, and can wait or go.

mod support;

use support::{Holder, Place};

#[test]
fn others_are_told_who_holds_it() {
    let place = Place::new();
    place.volume("8M", "1M");
    place.write("in", b"something");
    let holder = Holder::start(&place);
    let told = format!("process {}", holder.pid());
    for attempt in [
        "create vol#b --size 4K --json",
        "delete vol#a --json",
        "dd if=in of=vol#a --json",
        "format vol --force --json",
    ] {
        let error = place.baio(attempt).fails_with(1).error();
        assert_eq!(error["code"], "EBUSY", "{attempt}: {error}");
        assert!(error["message"].as_str().unwrap().contains(&told), "{attempt}: {error}");
        assert!(error["cure"].as_str().unwrap().contains(&told), "{attempt}: {error}");
    }
    // Who only looks does it beside the owner.
    place.baio("list vol").succeeds();
    let volume = place.baio("stat vol --json").succeeds().json();
    assert_eq!(volume["in_use"]["pid"], holder.pid());
    let said = String::from_utf8(place.baio("stat vol").succeeds().out().to_vec()).unwrap();
    assert!(said.contains(&format!("by {told}")), "{said}");
    assert_eq!(holder.finish(), 0);
    let volume = place.baio("stat vol --json").succeeds().json();
    assert!(
        volume.get("in_use").is_none() && volume.get("torn").is_none(),
        "{volume}"
    );
}

#[test]
fn a_killed_owner_is_none() {
    let place = Place::new();
    place.volume("8M", "1M");
    Holder::start(&place).kill();
    place.baio("create vol#b --size 4K").succeeds();
}
