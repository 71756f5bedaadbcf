//! What the tests ask of everything that a service serves.

use baio_broker::control::{Command, Reply};
use baio_broker::files::{FileCommand, FileReply, Files};
use baio_broker::served::Served;
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Config, Create, Engine, File, Open};
use baio_storage::{Access, Core, CreateOptions, Format, Handle, Identity, OperationName, format_simulated};
use baio_words::entry::HandleWords;

use super::Client;

pub(crate) const BYTES: u64 = 64 << 10;

pub(crate) trait Tested: Served + 'static {
    /// On a real file at this path.
    fn at(path: &std::path::Path, config: &Config) -> Self;
    /// On a disk that this engine can do I/O on.
    fn simulated(engine: Engine, config: &Config) -> Self;
    fn settle(client: &mut Client<Self>);
    fn open(client: &mut Client<Self>) -> HandleWords;
    fn end(client: &mut Client<Self>);
    /// What a write past the end of what [`Tested::open`] opens comes to: a segment keeps its size, a file grows.
    const GROWS: bool;
}

impl Tested for Core {
    const GROWS: bool = false;

    fn at(path: &std::path::Path, config: &Config) -> Core {
        let format = Format {
            size_bytes: Some(4 << 20),
            ..Format::default()
        };
        Core::format(path, &format).unwrap();
        Core::open(path, config).unwrap()
    }

    fn simulated(engine: Engine, config: &Config) -> Core {
        let format = Format {
            size_bytes: Some(4 << 20),
            ..Format::default()
        };
        let disk = Disk::new(4 << 20);
        let file = File::simulated(&disk, "disk");
        let mut first = Engine::simulated(Sim::new(1).unwrap(), config).unwrap();
        format_simulated(&mut first, &file, &format).unwrap();
        Core::open_simulated(engine, &file, config).unwrap()
    }

    fn settle(client: &mut Client<Core>) {
        assert!(matches!(client.ask(Command::Info), Reply::Volume(_)));
    }

    fn open(client: &mut Client<Core>) -> HandleWords {
        let identity = Identity::effective();
        let (owner_uid, name) = (identity.uid, "one".to_owned());
        client.ask(Command::Create {
            owner_uid,
            name: name.clone(),
            options: CreateOptions::of_size(BYTES),
            operation: OperationName::NONE,
        });
        let access = Access::Write;
        let Reply::Opened(handle, _) = client.ask(Command::Open {
            owner_uid,
            name,
            access,
        }) else {
            panic!("not opened")
        };
        handle.into()
    }

    fn end(client: &mut Client<Core>) {
        assert!(matches!(client.ask(Command::Close), Reply::Done));
    }
}

impl Tested for Files {
    const GROWS: bool = true;

    fn at(_: &std::path::Path, config: &Config) -> Files {
        Files::new(config).unwrap()
    }

    /// With the one file that is there, under its first handle.
    fn simulated(engine: Engine, _: &Config) -> Files {
        let mut files = Files::around(engine);
        files.add(File::simulated(&Disk::new(BYTES), "disk"), Access::Write);
        files
    }

    fn settle(client: &mut Client<Files>) {
        assert!(matches!(
            client.answer(FileCommand::Counters),
            Ok(FileReply::Counters(..))
        ));
    }

    fn open(client: &mut Client<Files>) -> HandleWords {
        let first = Handle::from_parts(client.connection.number, 0, 0);
        if let Ok(FileReply::Size(bytes)) = client.answer(FileCommand::Size(first)) {
            assert_eq!(bytes, BYTES);
            return first.into();
        }
        let path = client.path().to_owned();
        std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
        let options = Open {
            create: Create::IfMissing,
            ..Open::write()
        };
        match client.answer(FileCommand::Open { path, options }) {
            Ok(FileReply::Opened(handle, BYTES)) => handle.into(),
            other => panic!("{other:?}"),
        }
    }

    fn end(client: &mut Client<Files>) {
        assert!(matches!(client.answer(FileCommand::Close), Ok(FileReply::Done)));
    }
}

/// One test body, run on all that a service serves.
#[macro_export]
macro_rules! of_each {
    ($($name:ident)*) => {
        mod volume {
            $(#[test] fn $name() { super::$name::<baio_storage::Core>(); })*
        }
        mod files {
            $(#[test] fn $name() { super::$name::<baio_broker::files::Files>(); })*
        }
    };
}
