//! What is told of a failure, and how things show themselves.

use std::error::Error as _;

use baio::{Error, File, Mode, OpenOptions};

use crate::rig::{Bench, Case, Made, PAGE, buffer, open};

pub(crate) fn a_missing_file_is_named<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("missing"));
    let error = File::open(&link, &path).wait().unwrap_err();
    assert_eq!((error.operation, &error.object[..]), ("open", path.to_str().unwrap()));
    let told = error.to_string();
    assert!(told.starts_with(&format!("open {}", path.display())), "{told}");
    Ok(())
}

pub(crate) fn a_missing_file_is_named_once<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.path("missing"));
    let told = File::open(&link, &path).wait().unwrap_err().to_string();
    assert_eq!(told.matches(path.to_str().unwrap()).count(), 1, "{told}");
    Ok(())
}

pub(crate) fn a_refused_request_names_file_and_place<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = OpenOptions::new().open(&link, &path).wait().unwrap();
    let refused = file
        .write_at(1 << 20, buffer(&link, &[0; 10]))
        .wait()
        .unwrap_err()
        .error;
    let told = (refused.operation, &refused.object[..], refused.offset);
    assert_eq!(told, ("write", path.to_str().unwrap(), Some(1 << 20)));
    // As well where the link itself has ended it.
    let mut cancelled = file.read_at(4096, buffer(&link, &[0; 10]));
    cancelled.cancel();
    let cancelled = cancelled.wait().unwrap_err().error;
    let told = (cancelled.operation, &cancelled.object[..], cancelled.offset);
    assert_eq!(told, ("read", path.to_str().unwrap(), Some(4096)));
    let short = file
        .read_exact_at(4096, buffer(&link, &[0; 10]))
        .wait()
        .unwrap_err()
        .error;
    let told = (short.operation, &short.object[..], short.offset);
    assert_eq!(told, ("read", path.to_str().unwrap(), Some(4096)));
    Ok(())
}

pub(crate) fn a_failure_becomes_an_error_of_the_standard_library<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = OpenOptions::new().open(&link, &path).wait().unwrap();
    let refused = || file.write_at(0, buffer(&link, &[0; 10])).wait();
    let by_std = || -> std::io::Result<usize> { Ok(refused()?.bytes) };
    let by_us = || -> baio::Result<usize> { Ok(refused()?.bytes) };
    let (std, ours): (std::io::Error, Error) = (by_std().unwrap_err(), by_us().unwrap_err());
    assert_eq!(std.to_string(), ours.to_string());
    let failed = refused().unwrap_err();
    assert_eq!(failed.source().map(ToString::to_string), Some(ours.to_string()));
    assert_eq!(
        (failed.to_string(), failed.error.code()),
        (ours.to_string(), ours.code())
    );
    Ok(())
}

pub(crate) fn a_file_shows_its_name<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    assert_eq!(file.name(), path.to_str().unwrap());
    assert_eq!(format!("{file:?}"), format!("File({})", path.display()));
    Ok(())
}

pub(crate) fn a_request_shows_what_it_is<L: Made>(bench: &Bench<L>) -> Case {
    let (link, path) = (bench.link(), bench.file("one", PAGE));
    let file = open(&link, &path, Mode::Kernel);
    let mut read = file.read_at(0, buffer(&link, &[0; PAGE]));
    let name = path.display();
    assert_eq!(format!("{read:?}"), format!("Request({name}, read)"));
    link.block_on(async { crate::rig::once(&mut read).await.is_none() })
        .unwrap();
    assert_eq!(format!("{read:?}"), format!("Request({name}, under way)"));
    assert_eq!(read.wait().unwrap().bytes, PAGE);
    assert!(format!("{:?}", file.size()).contains(path.to_str().unwrap()));
    Ok(())
}
