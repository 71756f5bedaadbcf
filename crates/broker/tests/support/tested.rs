//! What requests of the tests go to: a segment of a volume, or a plain file. Both are a core's.

use baio_broker::control::{Call, Reply};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, EngineOptions, File, Open};
use baio_storage::{Access, Command, Core, CreateOptions, FormatOptions, Identity, OperationName, format_on};
use baio_words::entry::HandleWords;

use super::Client;

pub(crate) const BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tested {
    Segment,
    File,
}

impl Tested {
    /// What a write past its end comes to: a segment keeps its size, a file grows.
    pub(crate) fn grows(self) -> bool {
        self == Tested::File
    }

    /// A core with a volume at this path.
    pub(crate) fn at(path: &std::path::Path, config: &EngineOptions) -> Core {
        Core::format(path, &format()).unwrap();
        Core::open(path, config).unwrap()
    }

    /// A core with a volume on a disk that this engine can do I/O on.
    pub(crate) fn simulated(engine: Engine, config: &EngineOptions) -> Core {
        let disk = Disk::new(4 << 20);
        let file = File::simulated(&disk, "disk");
        let mut first = Engine::simulated(Sim::new(1).unwrap(), config).unwrap();
        format_on(&mut first, &file, &format()).unwrap();
        Core::open_on(engine, &file, config).unwrap()
    }

    /// Opens one of [`BYTES`] that can be written.
    pub(crate) fn open(self, client: &mut Client) -> HandleWords {
        match self {
            Tested::Segment => segment(client),
            Tested::File if client.is_simulated => {
                let file = File::simulated(&Disk::new(BYTES), "file");
                opened(client.ask(Call::AddFile {
                    file,
                    access: Access::Write,
                }))
            }
            Tested::File => {
                let path = client.path().with_file_name("file");
                std::fs::File::create(&path).unwrap().set_len(BYTES).unwrap();
                opened(client.ask(Call::OpenFile {
                    path,
                    options: Open::write(),
                    truncate: false,
                }))
            }
        }
    }
}

fn format() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(4 << 20),
        ..FormatOptions::default()
    }
}

fn segment(client: &mut Client) -> HandleWords {
    let owner_uid = Identity::effective().uid;
    let name = "one".to_owned();
    client.ask(Command::Create {
        owner_uid,
        name: name.clone(),
        options: CreateOptions::of_size(BYTES),
        operation: OperationName::NONE,
    });
    opened(client.ask(Command::Open {
        owner_uid,
        name,
        access: Access::Write,
    }))
}

fn opened(reply: Reply) -> HandleWords {
    reply.handle().expect("not opened").into()
}

/// One test body, run on each.
#[macro_export]
macro_rules! of_each {
    ($($name:ident)*) => {
        mod segment {
            $(#[test] fn $name() { super::$name($crate::support::tested::Tested::Segment); })*
        }
        mod file {
            $(#[test] fn $name() { super::$name($crate::support::tested::Tested::File); })*
        }
    };
}
