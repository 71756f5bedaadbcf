//! The promise: plain files on a service's thread, without a volume, from any thread: by waiting, by turns, and as futures.

use std::sync::Arc;
use std::task::Context;

use baio::{Carried, Durability, Identity, Mode, SegmentOp, SegmentRequest};
use baio_broker::files::{FileCommand, FileReply, Files};
use baio_broker::{Setup, start};
use baio_client::{Client, Ended};
use baio_engine::{Config, Create, Memory, Open};
use baio_storage::Handle;

type Plain = Client<Carried<Files>>;

fn open(client: &Plain, path: &std::path::Path) -> Handle {
    let options = Open {
        create: Create::IfMissing,
        ..Open::write()
    };
    let path = path.to_owned();
    match client.ask(Box::new(FileCommand::Open { path, options })) {
        Ok(Ok(FileReply::Opened(handle, _))) => handle,
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_share_a_service_of_plain_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shared");
    let setup = Setup {
        identity: Identity::effective(),
        places: 64,
    };
    let config = Config {
        slots: 64,
        arena_bytes: 1 << 20,
        ..Config::default()
    };
    let (client, thread) = Carried::client(start(setup, move || Files::new(&config)).unwrap());
    let client = Arc::new(client);
    let handle = open(&client, &path);
    client.remember(handle, path.display().to_string());
    std::thread::scope(|scope| {
        for part in 0..4_u8 {
            let client = Arc::clone(&client);
            scope.spawn(move || {
                let mut buffer = client.carrier().arena().buffer(5000).unwrap();
                buffer.fill(part + 1);
                let offset = u64::from(part) * 5000;
                let write = SegmentRequest {
                    mode: Mode::Kernel,
                    durability: Durability::Data,
                    ..SegmentRequest::new(handle, SegmentOp::Write { offset }, buffer)
                };
                let ticket = client.start(write).unwrap();
                let ended = std::future::poll_fn(|context: &mut Context<'_>| client.poll(ticket, context.waker()));
                match client.block_on(ended).unwrap() {
                    Some(Ended::Request(outcome)) => assert_eq!(outcome.result, Ok(5000)),
                    _ => panic!("no outcome"),
                }
            });
        }
    });
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 20_000);
    assert!(
        bytes
            .chunks(5000)
            .zip(1..)
            .all(|(part, byte)| part.iter().all(|it| *it == byte))
    );

    // What goes wrong names the file, the offset and the cure.
    client.close_handle(handle);
    let again = open(&client, &path);
    client.remember(again, path.display().to_string());
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..SegmentRequest::new(again, SegmentOp::Read { offset: 512 }, Memory::None)
    };
    let ticket = client.start(request).unwrap();
    let Some(Ended::Request(outcome)) = client.wait(ticket) else {
        panic!("no outcome")
    };
    let error = outcome.result.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("read {} at 512: ", path.display())),
        "{error}"
    );
    assert!(error.contains("cure: "), "{error}");

    let ticket = client.begin_close(Box::new(FileCommand::Close)).unwrap();
    assert!(matches!(
        client.wait(ticket),
        Some(Ended::Command(Ok(Ok(FileReply::Done))))
    ));
    thread.join().unwrap();
}
