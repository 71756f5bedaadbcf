//! The rules of who wakes whom are taken out of the client one at a time, and a story of `schedules` must fail each time, within
//! a number of schedules that a run of it takes anyway. All are planted at once, in a copy of the crates, each behind a question to the
//! environment (`planted` in `schedules/main.rs`); nothing of this is in the product.
//!
//! It builds the copy: a minute, so it is not run unless asked for:
//!
//!     cargo test -p baio-client --test planted_faults -- --ignored

#[path = "../../../tests/part.rs"]
mod part;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A rule: its name, the file, what stands there once, what stands there instead, and the story that must fail.
#[derive(Clone)]
struct Rule {
    name: &'static str,
    file: &'static str,
    there: &'static str,
    instead: &'static str,
    story: &'static str,
}

macro_rules! rules {
    ($($name:literal $file:literal $there:literal => $instead:literal $story:literal)*) => {
        &[$(Rule { name: $name, file: $file, there: $there, instead: $instead, story: $story }),*]
    };
}

/// `OUT` stands for "this rule is out".
const RULES: &[Rule] = rules! {
    // Sleeping and waking.
    "the-second-look" "ring/src/ring.rs"
        "if self.tail.load(Ordering::Relaxed) == at.mine {" => "if OUT || self.tail.load(Ordering::Relaxed) == at.mine {"
        "waiting::a_request_ends_as_its_waiter_falls_asleep"
    "who-sleeps-says-so" "ring/src/ring.rs"
        "self.sleeping.swap(1, Ordering::Relaxed);" => "self.sleeping.swap(u32::from(!OUT), Ordering::Relaxed);"
        "waiting::a_request_ends_as_its_waiter_falls_asleep"
    "the-service-is-rung-for" "client/src/client.rs"
        "any && ring.publish(&state.submissions)" => "any && ring.publish(&state.submissions) && !OUT"
        "waiting::a_request_ends_as_its_waiter_falls_asleep"
    "on-the-bell-it-looks-for-a-ring" "client/src/parker.rs"
        "if !self.is_rung() {" => "if OUT || !self.is_rung() {"
        "waiting::a_future_wakes_block_on_from_another_thread"
    "a-ring-goes-through-the-lock" "client/src/parker.rs"
        "                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));\n                self.condition.notify_one();" => "                if !OUT { drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner)); }\n                self.condition.notify_one();"
        "waiting::threads_wait_and_one_reaps_for_all"
    // The role.
    "a-follower-gets-the-role" "client/src/client.rs"
        "            parker.ring();\n        } else if" => "            if !OUT { parker.ring(); }\n        } else if"
        "waiting::threads_wait_and_one_reaps_for_all"
    "the-helper-gets-the-role" "client/src/client.rs"
        "needs_helper() {\n            state.helper.call();" => "needs_helper() {\n            if !OUT { state.helper.call(); }"
        "waiting::one_blocks_one_waits_and_the_helper_reaps_for_a_third"
    "the-role-is-free-while-wakers-run" "client/src/client.rs"
        "        self.hand_over(&mut state);\n        let mut fired" => "        if !OUT { self.hand_over(&mut state); }\n        let mut fired"
        "waiting::a_waker_may_wait_itself"
    "who-left-the-bell-is-gone" "client/src/client.rs"
        "state.sleeper = false;" => "state.sleeper = OUT;"
        "waiting::threads_wait_and_one_reaps_for_all"
    "beside-a-descriptor-the-helper-reaps" "client/src/state.rs"
        "self.event.is_some() || self" => "(self.event.is_some() && !OUT) || self"
        "descriptor::a_loop_sleeps_on_the_descriptor"
    "the-descriptor-is-told" "client/src/client.rs"
        "state.tell_event();\n        if state.sleeper {\n            return" => "if !OUT { state.tell_event(); }\n        if state.sleeper {\n            return"
        "descriptor::a_loop_sleeps_on_the_descriptor"
    "the-descriptor-is-told-before-a-sleep" "client/src/client.rs"
        "state.tell_event();\n        if state.sleeper {\n            state" => "if !OUT { state.tell_event(); }\n        if state.sleeper {\n            state"
        "descriptor::a_loop_sleeps_on_the_descriptor"
    // Wakers.
    "the-end-wakes" "client/src/table.rs"
        "        self.fired.extend(waker);\n        if for_queue" => "        if !OUT { self.fired.extend(waker); }\n        if for_queue"
        "waiting::one_blocks_one_waits_and_the_helper_reaps_for_a_third"
    "what-is-awaited-is-not-for-the-queue" "client/src/table.rs"
        "entry.awaited = true;" => "entry.awaited = !OUT;"
        "ends::a_service_dies_while_four_wait"
    "nobody-gives-up-while-others-are-woken" "client/src/waits.rs"
        "*patience == 0" => "*patience == 0 || OUT"
        "closing::one_closes_while_others_submit"
    "who-waits-for-what-was-given-up-looks" "client/src/reap.rs"
        "waker.data() == Arc" => "!OUT && waker.data() == Arc"
        "abandoning::who_waits_for_what_another_gives_up_is_told"
    "who-waits-for-what-another-took-looks" "client/src/waits.rs"
        "displaced.into_iter().for_each(Waker::wake);" => "if !OUT { displaced.into_iter().for_each(Waker::wake); }"
        "waiting::who_waits_for_what_another_took_is_told"
    // Any outcome.
    "who-takes-any-outcome-is-told" "client/src/reap.rs"
        "} else if for_queue ||" => "} else if (for_queue && !OUT) ||"
        "turns::who_turns_is_told_by_whoever_reaps"
    "that-nothing-is-under-way-is-told" "client/src/reap.rs"
        "self.table.in_flight() == 0)" => "self.table.in_flight() == 0 && !OUT)"
        "turns::nobody_turns_when_nothing_is_under_way"
    // The helper.
    "who-is-on-the-bell-sends-for-others" "client/src/client.rs"
        "let nudge = state.sleeper && state.table" => "let nudge = !OUT && state.sleeper && state.table"
        "helper::a_future_polled_while_the_helper_sleeps_is_sent"
    "and-may-be-asked-again" "client/src/client.rs"
        "state.nudged = false;" => "state.nudged = OUT;"
        "helper::a_future_polled_while_the_helper_sleeps_is_sent"
    "who-leaves-sends" "client/src/helper.rs"
        "needed && self.flush" => "needed && !OUT && self.flush"
        "waiting::what_block_on_leaves_behind_is_sent_and_reaped"
    "who-leaves-leaves-it-to-the-helper" "client/src/helper.rs"
        "state.table.leave_to_helper(reaper);" => "if !OUT { state.table.leave_to_helper(reaper); }"
        "waiting::what_block_on_leaves_behind_is_sent_and_reaped"
    "a-dismissal-is-heard" "client/src/helper.rs"
        "state.helper.dismissed = true;\n        state.helper.call();" => "state.helper.dismissed = true;\n        if !OUT { state.helper.call(); }"
        "helper::the_helper_is_dismissed_as_it_falls_asleep"
    "the-helper-forgets-no-ring" "client/src/helper.rs"
        "            me.park(None);" => "            if OUT { me.take(); }\n            me.park(None);"
        "helper::two_executors_share_the_helper"
    // Places.
    "a-free-place-is-told" "client/src/table.rs"
        "self.free.push(ticket.parts().0);\n            self.room.wake_next(1, &mut self.fired);" => "self.free.push(ticket.parts().0);\n            if !OUT { self.room.wake_next(1, &mut self.fired); }"
        "places::more_futures_than_places"
    "who-waits-for-a-place-looks-again" "client/src/room.rs"
        "state.table.wake_if_room();" => "if !OUT { state.table.wake_if_room(); }"
        "places::more_futures_than_places"
    "a-wake-is-handed-on" "client/src/waiters.rs"
        "if own.is_none() {" => "if own.is_none() && !OUT {"
        "places::who_was_woken_for_a_place_and_leaves_hands_it_on"
    // Memory.
    "memory-that-comes-back-calls" "client/src/room.rs"
        "self.table.memory_came(count);" => "if !OUT { self.table.memory_came(count); }"
        "memory::who_waits_for_memory_is_called"
    "a-call-for-memory-is-handed-on" "client/src/memory.rs"
        "let own = line.leave(place, fired);" => "let own = if OUT { line.served(place) } else { line.leave(place, fired) };"
        "memory::who_was_called_for_memory_and_leaves_hands_it_on"
    "the-first-deadline-ends-the-sleep" "client/src/client.rs"
        "state.table.room_until().and_then(instant_of)" => "state.table.room_until().and_then(instant_of).filter(|_| !OUT)"
        "places::who_waits_for_a_place_gives_up_in_time"
    "a-deadline-reaches-who-sleeps" "client/src/room.rs"
        "let nudge = until.is_some() && state.sleeper;\n        // Room" => "let nudge = until.is_some() && state.sleeper && !OUT;\n        // Room"
        "places::who_waits_for_a_place_gives_up_in_time"
    "full-is-full-of-what-nobody-awaits" "client/src/waits.rs"
        "if room || table.is_full_of_untaken() {" => "if room || table.is_full_of_untaken() || (OUT && table.in_flight() == 0) {"
        "closing::two_close_and_others_wait_for_places"
    // Leaving.
    "what-was-sent-is-the-services" "client/src/client.rs"
        "(left == Left::Queued).then" => "(OUT || left == Left::Queued).then"
        "abandoning::a_future_is_dropped_as_it_ends"
    "what-was-opened-for-nobody-is-closed" "client/src/reap.rs"
        "self.closing.extend(carrier.close(&mut self.kept, handle));" => "if !OUT { self.closing.extend(carrier.close(&mut self.kept, handle)); }"
        "commands::what_was_opened_for_nobody_is_closed"
    // The end.
    "the-end-is-looked-for-before-the-ring" "client/src/reap.rs"
        "if ended && !self.awaits_another(shared, carrier) {" => "if (ended && !self.awaits_another(shared, carrier)) || (OUT && shared.has_ended()) {"
        "closing::one_closes_while_others_submit"
    "the-end-ends-what-is-under-way" "client/src/reap.rs"
        "let mut from = 0;" => "let mut from = if OUT { u32::MAX } else { 0 };"
        "ends::a_service_dies_while_four_wait"
};

/// The crates that the model includes or needs.
const CRATES: [&str; 5] = ["words", "process", "memory", "ring", "client"];

/// Those crates, with the rules planted.
fn copy_with_rules(place: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let _ = fs::remove_dir_all(place.join("crates"));
    for name in CRATES {
        let (from, to) = (root.join("crates").join(name), place.join("crates").join(name));
        copy(&from.join("src"), &to.join("src"));
        fs::copy(from.join("Cargo.toml"), to.join("Cargo.toml")).unwrap();
    }
    let schedules = Path::new("crates/client/tests/schedules");
    copy(&root.join(schedules), &place.join(schedules));
    fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock")).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = format!("members = {:?}", CRATES.map(|name| format!("crates/{name}")));
    let kept = manifest.lines().map(|line| match line {
        line if line.starts_with("members = ") => &members,
        line if line.starts_with("exclude = ") || line.starts_with("default-members = ") => "",
        line => line,
    });
    fs::write(place.join("Cargo.toml"), kept.collect::<Vec<_>>().join("\n")).unwrap();
    for rule in RULES {
        let file = place.join("crates").join(rule.file);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(
            text.matches(rule.there).count(),
            1,
            "{}: {} has changed",
            rule.name,
            rule.file
        );
        let out = format!("crate::planted({:?})", rule.name);
        fs::write(&file, text.replace(rule.there, &rule.instead.replace("OUT", &out))).unwrap();
    }
    // The crates themselves are built too, and never run.
    for name in ["ring", "client"] {
        let file = place.join("crates").join(name).join("src/lib.rs");
        let text = fs::read_to_string(&file).unwrap() + "\npub(crate) fn planted(_: &str) -> bool {\n    false\n}\n";
        fs::write(&file, text).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The model as a program.
fn build(place: &Path) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "test",
        "--no-run",
        "--offline",
        "-p",
        "baio-client",
        "--test",
        "schedules",
    ]);
    cargo
        .args(["--message-format", "json", "--target-dir"])
        .arg(place.join("target"));
    let built = cargo.current_dir(place).output().unwrap();
    let (told, why) = (
        String::from_utf8_lossy(&built.stdout),
        String::from_utf8_lossy(&built.stderr),
    );
    assert!(built.status.success(), "{why}");
    let program = told
        .lines()
        .rev()
        .find_map(|line| line.split_once(r#""executable":""#)?.1.split('"').next());
    program.expect("cargo names what it has built").into()
}

#[test]
#[ignore = "builds a copy of the crates: a minute"]
fn are_found() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    fs::create_dir_all(&place).unwrap();
    copy_with_rules(&place);
    let program = build(&place);
    let run = |rule: &str, schedules: u32, arguments: &[&str]| {
        let mut model = Command::new(&program);
        model
            .args(arguments)
            .env("BAIO_PLANTED", rule)
            .env_remove("BAIO_REPLAY");
        model.env("BAIO_SCHEDULES", schedules.to_string());
        let told = model.current_dir(&place).output().unwrap();
        (
            told.status.success(),
            String::from_utf8_lossy(&told.stdout).into_owned(),
        )
    };
    let (kept, told) = run("", 1000, &[]);
    assert!(kept, "with every rule in place: {told}");
    let mut lives = Vec::new();
    for rule in part::ours(RULES) {
        let (kept, told) = run(rule.name, 20_000, &["--exact", &format!("stories::{}", rule.story)]);
        assert!(told.contains("running 1 test"), "{} is no story", rule.story);
        println!("{} {}: {}", if kept { "LIVES" } else { "found" }, rule.name, rule.story);
        if kept {
            lives.push(rule.name);
        }
    }
    assert!(lives.is_empty(), "no story fails without these rules: {lives:?}");
}
