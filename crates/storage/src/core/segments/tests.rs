//! An event that an operation does not wait for ends it: the token goes to the next one, and the table is left alone.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Config, Engine, File};

use super::*;
use crate::operation::moving::Move;
use crate::volume::format::{Format, format_simulated};

const ME: Identity = Identity::new(7, 7);

fn core() -> Core {
    let disk = Disk::new(8 << 20);
    let file = File::simulated(&disk, "disk");
    let config = Config {
        slots: 64,
        arena_bytes: 4 << 20,
        ..Config::default()
    };
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config).unwrap();
    let options = Format {
        size_bytes: Some(8 << 20),
        ..Format::default()
    };
    format_simulated(&mut engine, &file, &options).unwrap();
    let mut core = Core::open_simulated(engine, &file, &config).unwrap();
    for name in ["data", "other"] {
        core.create(ME, ME.uid, name, &CreateOptions::of_size(8192)).unwrap();
    }
    core
}

#[test]
fn an_unexpected_event_ends_the_operation_and_frees_the_token() {
    type Make = fn(&Core) -> Operation;
    let makes: [(&str, Make); 7] = [
        ("create", |core| {
            let subject = core.subject("create", ME, ME.uid, "new").unwrap();
            Operation::Create(Create::new(subject, CreateOptions::of_size(4096)))
        }),
        ("delete", |core| {
            Operation::Delete(Delete::new(
                core.subject("delete", ME, ME.uid, "data").unwrap(),
                [0; 16],
            ))
        }),
        ("open", |core| {
            let subject = core.subject("open", ME, ME.uid, "data").unwrap();
            Operation::Open(OpenSegment::new(subject, Access::Read))
        }),
        ("rename", |core| core.rename_of(ME, ME.uid, "data", "new").unwrap()),
        ("resize", |core| {
            let subject = core.subject("resize", ME, ME.uid, "data").unwrap();
            Operation::Resize(Resize::new(subject, ResizeOptions::to_size(4096)))
        }),
        ("quota", |core| {
            let root = Identity::new(0, 0);
            core.quota_of(
                root,
                9,
                Limits {
                    blocks: Some(1),
                    segments: None,
                },
            )
            .unwrap()
        }),
        ("move", |core| {
            let subject = core.subject("move", ME, ME.uid, "data").unwrap();
            Operation::Move(Box::new(Move::new(subject, Some(100))))
        }),
    ];
    for (name, make) in makes {
        let mut core = core();
        let operation = make(&core);
        let id = core.begin(operation);
        assert_eq!(core.token, Some(id.0), "{name} looks something up");
        core.step(id.0, Event::Uncached(Ok(())));
        let error = core.take_answer(&id).expect(name).unwrap_err();
        assert!(matches!(error.fault, Fault::Unexpected(_)), "{name}: {error}");
        assert_eq!(core.token, None, "{name}");
        // Others go on, but nobody changes the table.
        core.open_segment(ME, ME.uid, "other", Access::Write).unwrap();
        let refused = core.delete(ME, ME.uid, "other").unwrap_err();
        assert!(matches!(refused.fault, Fault::Latched), "{name}: {refused}");
    }
}
