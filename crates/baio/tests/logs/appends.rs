//! A descriptor with `O_APPEND` takes no places: what is written there lands at the end of the file, and says that all is well.

use std::fs::OpenOptions;

use baio::{Access, Errno, File, Local, LogOptions};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

#[test]
fn it_is_refused_where_it_comes_in_and_when_a_log_is_made_or_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let link = Local::new().unwrap();

    let appends = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    let error = File::from_std(&link, appends, Access::Write).expect_err("a refusal");
    assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}");
    assert!(error.to_string().contains("O_APPEND"), "{error}");
    // Who only reads is not harmed by it.
    let appends = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    File::from_std(&link, appends, Access::Read).unwrap().wait().unwrap();

    // The flag may come later, by another descriptor of the same description.
    let plain = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let other = plain.try_clone().unwrap();
    let file = File::from_std(&link, plain, Access::Write).unwrap().wait().unwrap();
    let flags = fcntl_getfl(&other).unwrap();
    fcntl_setfl(&other, flags | OFlags::APPEND).unwrap();
    let error = file.create_log(&LogOptions::default()).wait().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}");
    fcntl_setfl(&other, flags).unwrap();
    let log = file.create_log(&LogOptions::default()).wait().unwrap();
    log.append_durable(b"record").wait().unwrap();
    log.close().wait().unwrap();
    fcntl_setfl(&other, flags | OFlags::APPEND).unwrap();
    let error = file.open_log(&LogOptions::default()).wait().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}");
    fcntl_setfl(&other, flags).unwrap();
    let log = file.open_log(&LogOptions::default()).wait().unwrap();
    assert_eq!(crate::rig::payloads(&log), [b"record"]);
}
