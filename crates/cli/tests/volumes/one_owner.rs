//! Promise: a volume in use has one owner; everybody else is told who, by process id, and can wait or go.

use crate::support::confined::{self, Confined, ORDINARY};
use crate::support::{self, BAIO, Holder, Place};

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
    let volume = place.json("stat vol");
    assert_eq!(volume["in_use"]["pid"], holder.pid());
    let said = place.text("stat vol");
    assert!(said.contains(&format!("by {told}")), "{said}");
    assert_eq!(holder.finish(), 0);
    let volume = place.json("stat vol");
    assert!(
        volume.get("in_use").is_none() && volume.get("torn").is_none(),
        "{volume}"
    );
}

/// On an overlay stat(2) tells other numbers of a file than the kernel's list of locks does.
#[test]
fn the_owner_is_named_on_an_overlay_too() {
    if !support::is_root() {
        return; // Only root mounts.
    }
    let place = Place::new();
    place
        .shell("mkdir lower upper work over && mount -t tmpfs none lower")
        .succeeds();
    let overlay = "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none over";
    let mounted = place.shell(overlay).status() == 0;
    if mounted {
        place.baio("format over/vol --size 8M").succeeds();
        let mut holder = place.spawn(BAIO, ["freeze", "over/vol", "--", "sh", "-c", "echo; read x"]);
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let error = place.error("create over/vol#a --size 4K", 1);
        let told = format!("process {}", holder.id());
        drop(holder.stdin.take());
        holder.wait().unwrap();
        place.shell("umount over").succeeds();
        assert!(error["message"].as_str().unwrap().contains(&told), "{error}");
    } else {
        support::skip("no overlay can be mounted here");
    }
    place.shell("umount lower").succeeds();
}

/// A sandbox without flock: a volume cannot have one owner there.
#[test]
fn where_no_file_can_be_locked_the_cure_is_told() {
    let place = Place::new();
    place.volume("8M", "1M");
    let vol = place.path("vol");
    if rustix::process::geteuid().is_root() {
        confined::give(&place.path(""), ORDINARY);
        confined::give(&vol, ORDINARY);
    }
    let confined = Confined::as_user(ORDINARY).without(&[libc::SYS_flock], libc::ENOSYS);
    let target = format!("{}#b", vol.display());
    let output = confined.run(BAIO, &["create", &target, "--size", "4K"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("needed: a kernel and a file system that lock files"),
        "{told}"
    );
    assert!(told.contains("cure: allow flock"), "{told}");
}
