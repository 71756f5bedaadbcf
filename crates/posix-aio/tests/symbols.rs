//! What the library exports: the names of glibc's POSIX AIO, without versions, and nothing else.

mod common;

use std::process::Command;

#[test]
fn exactly_the_names_of_posix_aio() {
    let told = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(common::ours())
        .output()
        .unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    names.sort_unstable();
    let both = [
        "aio_cancel",
        "aio_error",
        "aio_fsync",
        "aio_read",
        "aio_return",
        "aio_suspend",
        "aio_write",
        "lio_listio",
    ];
    let mut expected: Vec<String> = both
        .iter()
        .flat_map(|&name| [name.into(), format!("{name}64")])
        .collect();
    expected.push("aio_init".into());
    expected.sort_unstable();
    assert_eq!(names, expected);
}
