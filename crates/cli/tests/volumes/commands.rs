//! Promise: rename, resize, quota, check and defrag do what they say, tell it as one object under `--json`, and change
//! nothing when they refuse.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::server::Server;
use crate::support::{self, Place, Unchanged, assert_same, has, random_bytes};

const MIB: usize = 1 << 20;

/// A volume with the segment `a`, filled with known bytes.
fn filled(place: &Place, size: usize) -> Vec<u8> {
    place.volume("64M", &size.to_string());
    let bytes = random_bytes(size, 7);
    place.write("in", &bytes);
    place.baio("dd if=in of=vol#a bs=64K conv=fsync status=none").succeeds();
    bytes
}

fn contents(place: &Place, name: &str) -> Vec<u8> {
    place
        .baio(&format!("dd if=vol#{name} of=out bs=64K status=none"))
        .succeeds();
    place.read("out")
}

#[test]
fn a_renamed_segment_keeps_everything_but_its_name() {
    let place = Place::new();
    let bytes = filled(&place, MIB);
    let before = place.json("stat vol#a");
    let told = place.json("rename vol#a b");
    assert_eq!(told["name"], "b");
    for key in ["owner_uid", "size_bytes", "reserve_bytes", "start_block", "state"] {
        assert_eq!(told[key], before[key], "{key}");
    }
    assert_same(&contents(&place, "b"), &bytes, "the renamed segment");
    assert_eq!(place.error("stat vol#a", 1)["code"], "ENOENT");
}

#[test]
fn a_name_that_is_taken_or_cannot_be_changes_nothing() {
    let place = Place::new();
    filled(&place, MIB);
    place.baio("create vol#b --size 4K").succeeds();
    for (line, code) in [
        ("rename vol#nobody c", "ENOENT"),
        ("rename vol#a x/y", "EINVAL"),
        ("resize vol#nobody --size 1M", "ENOENT"),
        ("delete vol#nobody", "ENOENT"),
    ] {
        let watched = Unchanged::watch(&place.path("vol"));
        assert_eq!(place.error(line, 1)["code"], code, "{line}");
        watched.check(line);
    }
    assert_eq!(place.error("rename vol#a b", 1)["code"], "EEXIST");
    assert_eq!(place.json("list vol")["segments"].as_array().map(Vec::len), Some(2));
}

#[test]
fn what_grows_reads_as_zero_behind_its_old_end() {
    let place = Place::new();
    let mut bytes = filled(&place, MIB);
    // In place, as nothing stands behind it; then past a neighbour, which moves it.
    for (size, neighbour) in [(2 * MIB, "b"), (6 * MIB, "c")] {
        let told = place.json(&format!("resize vol#a --size {size}"));
        assert_eq!(told["size_bytes"], size);
        assert_eq!(told["state"], "live");
        bytes.resize(size, 0);
        assert_same(&contents(&place, "a"), &bytes, "the grown segment");
        place.baio(&format!("create vol#{neighbour} --size 64K")).succeeds();
    }
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let place = Place::new();
    let mut bytes = filled(&place, MIB);
    let told = place.json("resize vol#a --size 64K --reserve 1M --shrink");
    has(&told, json!({"size_bytes": 65536, "reserve_bytes": MIB}));
    let told = place.json("resize vol#a --size 1M");
    assert_eq!(told["reserve_bytes"], MIB);
    bytes[65536..].fill(0);
    assert_same(&contents(&place, "a"), &bytes, "shrunk and grown inside its reserve");

    let before = place.json("stat vol")["free_bytes"].as_u64().unwrap();
    place.baio("resize vol#a --size 4K --shrink").succeeds();
    let after = place.json("stat vol")["free_bytes"].as_u64().unwrap();
    assert_eq!(after - before, (MIB - 4096) as u64);
}

#[test]
fn a_reserve_is_room_to_grow_in_place() {
    let place = Place::new();
    place.baio("format vol --size 64M").succeeds();
    let made = place.json("create vol#a --size 1M --reserve 8M");
    assert_eq!(made["reserve_bytes"], 8 * MIB);
    place.baio("create vol#b --size 64K").succeeds();
    let grown = place.json("resize vol#a --size 8M");
    assert_eq!(grown["start_block"], made["start_block"]);
    let error = place.error("create vol#c --size 1M --reserve 4K", 1);
    assert_eq!(error["code"], "EINVAL");
}

#[test]
fn a_volume_grows_up_to_what_it_was_formatted_for() {
    let place = Place::new();
    place.baio("format vol --size 16M --max-size 64M").succeeds();
    let before = place.json("stat vol")["size_bytes"].as_u64().unwrap();
    place.baio("create vol#a --size 1M").succeeds();
    let told = place.json("resize vol --size 64M");
    let grown = told["size_bytes"].as_u64().unwrap();
    assert_eq!(grown - before, 48 * MIB as u64);
    assert_eq!(told["clean"], true, "{told}");
    place.baio("create vol#b --size 40M").succeeds();
    for (size, what) in [("65M", "beyond the maximum"), ("16M", "smaller")] {
        let error = place.error(&format!("resize vol --size {size}"), 1);
        assert_eq!(error["code"], "EINVAL", "{what}");
    }
    let told = place.json("stat vol");
    assert_eq!(told["size_bytes"].as_u64(), Some(grown));
    place.baio("resize vol --size 64M --reserve 1M").fails_with(2);
}

/// A path that cannot be looked at is not missing: who passes a size as he is told does not get on.
#[test]
fn a_format_of_what_cannot_be_reached_says_why() {
    let place = Place::new();
    place.write("file", b"x");
    for size in ["", "--size 8M"] {
        let told = place.baio(&format!("format file/vol {size} --json")).fails_with(1);
        assert_eq!(told.json()["error"]["code"], "ENOTDIR", "{size}");
    }
    place.baio("format missing").fails_with(2);
}

#[test]
fn a_quota_is_shown_set_kept_and_taken_back() {
    if !support::is_root() {
        return; // Only root sets quotas.
    }
    let place = Place::new();
    place.baio("format vol --size 64M").succeeds();
    place.baio("create vol#1000/a --size 1M").succeeds();
    let shown = place.json("quota vol 1000");
    has(&shown, json!({"used_bytes": MIB, "used_segments": 1}));
    assert!(shown["limit_bytes"].is_null() && shown["limit_segments"].is_null());

    let set = place.json("quota vol 1000 --blocks 2M --segments 3");
    has(&set, json!({"limit_bytes": 2 * MIB, "limit_segments": 3}));
    for line in ["create vol#1000/b --size 2M", "resize vol#1000/a --size 3M"] {
        let error = place.error(line, 1);
        assert_eq!(error["code"], "EDQUOT", "{line}");
        assert!(
            error["message"].as_str().unwrap().contains("may hold 2097152"),
            "{error}"
        );
    }
    place.baio("create vol#b --size 8M").succeeds();
    // Blocks are whole: a hundred bytes are none.
    let told = place.baio("quota vol 1001 --blocks 100 --json").succeeds();
    has(&told.json(), json!({"limit_bytes": 0}));
    assert!(
        told.errors().contains("100 bytes are rounded down to 0"),
        "{}",
        told.errors()
    );
    assert_eq!(place.baio("quota vol 1001 --blocks 1M").succeeds().errors(), "");
    // What is not given stays.
    let set = place.json("quota vol 1000 --blocks none");
    has(&set, json!({"limit_bytes": null, "limit_segments": 3}));
    place.baio("create vol#1000/b --size 8M").succeeds();
    place.baio("create vol#1000/c --size 4K").succeeds();
    assert_eq!(place.error("create vol#1000/d --size 4K", 1)["code"], "EDQUOT");
}

/// The owner of the file, whoever that is, limits all who have no limits of their own.
#[test]
fn the_default_quota_is_set_shown_and_survives_crash_and_close() {
    let place = Place::new();
    place.baio("format vol --size 64M").succeeds();
    let set = place.json("quota vol default --blocks 2M --segments 3");
    has(
        &set,
        json!({"owner_uid": u32::MAX, "limit_bytes": 2 * MIB, "limit_segments": 3}),
    );
    let text = place.text("quota vol default");
    assert!(text.contains("default") && !text.contains("4294967295"), "{text}");
    place.baio("create vol#a --size 1M").succeeds();
    support::Holder::start(&place).kill();
    for uid in ["1234", "default"] {
        let shown = place.json(&format!("quota vol {uid}"));
        assert_eq!(shown["limit_bytes"], 2 * MIB, "{uid}");
    }
    place.baio("quota vol 4294967295").fails_with(2);
    if support::is_root() {
        let error = place.error("create vol#1234/b --size 3M", 1);
        assert_eq!(error["code"], "EDQUOT", "{error}");
        let shown = place.json("quota vol 0");
        assert!(shown["limit_bytes"].is_null());
    }
    // One that is not given stays as it bound the user before.
    let set = place.json("quota vol 1234 --blocks 4M");
    has(&set, json!({"limit_bytes": 4 * MIB, "limit_segments": 3}));
    place.baio("quota vol default --blocks none --segments none").succeeds();
    let shown = place.json("quota vol 77");
    assert!(shown["limit_bytes"].is_null() && shown["limit_segments"].is_null());
}

#[test]
fn defrag_joins_the_free_space_and_loses_nothing() {
    let place = Place::new();
    place.baio("format vol --size 64M").succeeds();
    let mut kept = Vec::new();
    for index in 0..12 {
        place
            .baio(&format!("create vol#s{index} --size {}K", 256 + 64 * index))
            .succeeds();
        let bytes = random_bytes((256 + 64 * index) << 10, index as u64 + 1);
        place.write("in", &bytes);
        place
            .baio(&format!("dd if=in of=vol#s{index} bs=64K conv=fsync status=none"))
            .succeeds();
        kept.push(bytes);
    }
    for index in (0..12).step_by(2) {
        place.baio(&format!("delete vol#s{index}")).succeeds();
    }
    let before = place.json("stat vol");
    assert!(before["largest_free_bytes"].as_u64() < before["free_bytes"].as_u64());
    let told = place.json("defrag vol");
    assert!(told["segments_moved"].as_u64().unwrap() > 0, "{told}");
    let after = place.json("stat vol");
    assert_eq!(after["largest_free_bytes"], after["free_bytes"]);
    assert_eq!(after["free_bytes"], before["free_bytes"]);
    for index in (1..12).step_by(2) {
        assert_same(&contents(&place, &format!("s{index}")), &kept[index], "a segment");
    }
    let again = place.json("defrag vol");
    assert_eq!(again["segments_moved"], 0);
}

#[test]
fn check_names_a_problem_and_repairs_it() {
    let place = Place::new();
    let bytes = filled(&place, MIB);
    let watched = Unchanged::watch(&place.path("vol"));
    let sound = place.json("check vol");
    assert_eq!(sound["problems"].as_array().map(Vec::len), Some(0), "{sound}");
    watched.check("check");

    // A superblock copy that says nothing any more.
    let mut image = place.read("vol");
    image[65536..65536 + 4096].fill(0x5a);
    place.write("vol", &image);
    let watched = Unchanged::watch(&place.path("vol"));
    let told = place.baio("check vol --json").fails_with(3).json();
    let problems = told["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{told}");
    assert_eq!(problems[0]["offset"], 65536);
    assert!(problems[0]["what"].is_string() && problems[0]["kind"].is_string());
    watched.check("check of a damaged volume");

    place.baio("check vol --repair").succeeds();
    place.baio("check vol").succeeds();
    assert_same(&contents(&place, "a"), &bytes, "after the repair");
}

#[test]
fn a_segment_changes_its_mode_its_group_and_its_owner() {
    let place = Place::new();
    let bytes = filled(&place, MIB);
    let changed = |line: &str| place.json(line);
    assert_eq!(changed("chmod vol#a 640")["mode"], "0640");
    let gid = rustix::process::getegid().as_raw();
    assert_eq!(changed(&format!("chown vol#a :{gid}"))["owner_gid"], gid);
    assert_eq!(place.error("chmod vol#b 600", 1)["code"], "ENOENT");
    place.baio("chmod vol#a 1777").fails_with(2);
    place.baio("chown vol#a root").fails_with(2);
    if !support::is_root() {
        return; // Only root gives away.
    }
    let given = changed("chown vol#a 1000:77");
    has(&given, json!({"owner_uid": 1000, "owner_gid": 77, "mode": "0640"}));
    assert_same(&contents(&place, "1000/a"), &bytes, "the same bytes");
    place.baio("stat vol#a").fails_with(1);
    // Through a broker as well.
    let server = Server::start(&place, "serve vol --socket s").ready();
    let given = changed("chown unix:s#1000/a 0:0");
    has(&given, json!({"owner_uid": 0, "start_block": null}));
    assert_eq!(changed("chmod unix:s#a 0604")["mode"], "0604");
    server.stops_well();
    assert_same(&contents(&place, "a"), &bytes, "the same bytes");
    place.baio("check vol").succeeds();
}

/// The permissions of a file.
fn mode_of(place: &Place, name: &str) -> u32 {
    place.path(name).metadata().unwrap().permissions().mode() & 0o777
}

/// The warnings of an answer that has this word.
fn warned(answer: &serde_json::Value, word: &str) -> usize {
    let warnings = answer["warnings"].as_array().unwrap();
    let has = |warning: &&serde_json::Value| warning.as_str().unwrap().contains(word);
    warnings.iter().filter(has).count()
}

/// Who may open the file may read every segment.
#[test]
fn a_new_volume_is_its_owners_alone_unless_told_otherwise() {
    let place = Place::new();
    let format = |line: &str| {
        let line = format!(
            "umask {}; {} format {line} --json",
            if line.contains("--mode") { "77" } else { "0" },
            support::BAIO
        );
        place.shell(&line).succeeds().json()
    };
    let made = format("vol --size 16M");
    assert_eq!((mode_of(&place, "vol"), warned(&made, "may open it")), (0o600, 0));

    let made = format("shared --size 16M --mode 0664");
    assert_eq!(mode_of(&place, "shared"), 0o664);
    assert_eq!(warned(&made, "every user may open it"), 1, "{made}");
    // One that fails has given nobody anything.
    let refused = "format shared --force --mode 0666 --segments 4000000000";
    place.baio(refused).fails_with(1);
    assert_eq!(mode_of(&place, "shared"), 0o664);
    place.baio("format shared --force --mode 0600").succeeds();
    assert_eq!(mode_of(&place, "shared"), 0o600);

    // One that exists is somebody's to decide on: it keeps its mode, and that is said.
    place.write("there", &[]);
    let open_to_all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.path("there"), open_to_all).unwrap();
    let made = format("there --size 16M");
    assert_eq!(
        (mode_of(&place, "there"), warned(&made, "chmod 0600 there")),
        (0o644, 1)
    );
    // So do those who meet it later.
    let doctor = place.json("doctor there");
    assert!(doctor["path"]["advice"].to_string().contains("may open it"), "{doctor}");
    let mut server = Server::start(&place, "serve there --socket s");
    let said = server.says("its mode");
    assert!(said.contains("serve: there: its mode is 0644"), "{said}");
}

#[test]
fn a_volume_larger_than_what_is_free_says_so() {
    if !support::is_root() {
        return; // Only root mounts.
    }
    let place = Place::new();
    let on_tmpfs =
        |line: &str| format!("mkdir -p small && mount -t tmpfs -o size=4M none small && {line}; umount small");
    let line = format!("{} format small/vol --size 64M --json", support::BAIO);
    let made = place.shell(&on_tmpfs(&line)).succeeds().json();
    assert_eq!(warned(&made, "less than the volume may come to need"), 1, "{made}");
    let line = format!("{} format small/vol --size 2M --json", support::BAIO);
    let made = place.shell(&on_tmpfs(&line)).succeeds().json();
    assert_eq!(warned(&made, "may come to need"), 0, "{made}");
}

#[test]
fn nothing_is_cut_off_without_being_asked_for() {
    let place = Place::new();
    let bytes = filled(&place, MIB);
    let server = |place: &Place| Server::start(place, "serve vol --socket s").ready();
    for target in ["vol#a", "unix:s#a"] {
        let running = target.starts_with("unix").then(|| server(&place));
        let line = format!("resize {target} --size 512 --json");
        let error = place.baio(&line).fails_with(1).error();
        assert_eq!(error["code"], "EINVAL");
        assert!(error["need"].as_str().unwrap().contains("--shrink"), "{error}");
        assert!(error["message"].as_str().unwrap().contains("1048576 bytes"), "{error}");
        if let Some(server) = running {
            server.signal(rustix::process::Signal::TERM);
            server.ends_well();
        }
        assert_same(&contents(&place, "a"), &bytes, target);
    }
    let told = place.baio("resize vol#a --size 512 --shrink --json").succeeds();
    assert_eq!(told.json()["size_bytes"], 4096);
}

#[test]
fn rounding_is_said() {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let told = place.baio("create vol#a --size 1000 --json").succeeds();
    assert_eq!(told.json()["size_bytes"], 4096);
    let said = "baio: create: vol#a: 1000 bytes are rounded up to 4096, to whole blocks\n";
    assert_eq!(told.errors(), said);
    let told = place.baio("resize vol#a --size 5000").succeeds();
    assert!(
        told.errors().contains("5000 bytes are rounded up to 8192"),
        "{}",
        told.errors()
    );
    assert_eq!(place.baio("create vol#b --size 4K").succeeds().errors(), "");
}
