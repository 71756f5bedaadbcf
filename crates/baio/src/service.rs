//! A service of plain files on a thread of its own, without a volume, and its client.
//!
//! ```
//! use baio::service::{Access, Carried, Client, Create, Ended, FileCommand, FileReply, Files, Open, Setup, start};
//! use baio::{Config, Durability, Identity, Mode, SegmentOp, SegmentRequest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("baio-service-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("journal");
//! let setup = Setup { identity: Identity::effective(), places: 64 };
//! // The engine is made on the service's thread, and stays there.
//! let config = Config { slots: 64, ..Config::default() };
//! let (client, thread) = Carried::client(start(setup, move || Files::new(&config))?);
//! // Any thread may use a client; behind an `Arc` its requests are futures too (`Client::poll`, `Client::block_on`).
//! let client: Client<Carried<Files>> = client;
//!
//! let options = Open { create: Create::IfMissing, ..Open::write() };
//! let FileReply::Opened(handle, _) = client.ask(Box::new(FileCommand::Open { path: path.clone(), options }))?? else {
//!     unreachable!("another reply")
//! };
//! client.remember(handle, path.display().to_string()); // Its name in errors.
//!
//! // Memory of the service's arena goes there and back without a copy.
//! let mut page = client.carrier().arena().buffer(4096).ok_or("no buffer is free")?;
//! page.fill(7);
//! let write = SegmentRequest {
//!     mode: Mode::Kernel,
//!     durability: Durability::Data,
//!     ..SegmentRequest::new(handle, SegmentOp::Write { offset: 8192 }, page)
//! };
//! let ticket = client.start(write).map_err(|_| "every place is taken")?;
//! match client.wait(ticket) {
//!     Some(Ended::Request(outcome)) => assert_eq!(outcome.result?, 4096),
//!     _ => unreachable!("the end of another request"),
//! }
//!
//! client.close_handle(handle);
//! let close = client.begin_close(Box::new(FileCommand::Close)).ok_or("it was closed before")?;
//! assert!(matches!(client.wait(close), Some(Ended::Command(Ok(Ok(FileReply::Done))))));
//! thread.join().map_err(|_| "the service has panicked")?;
//! assert_eq!(std::fs::metadata(&path)?.len(), 8192 + 4096);
//! # std::fs::remove_dir_all(dir)?;
//! # Ok(()) }
//! ```
//!
//! Files are opened by path as this process may ([`FileCommand::Open`]), or made in the service and given to it ([`Files::add`]).
//! Requests of [`Mode::Cached`](crate::Mode::Cached) need a volume's core: see [`Remote`](crate::Remote).
//!
//! | name | what it is |
//! |---|---|
//! | [`start`], [`Setup`], [`Connection`] | the service's thread, what it is started with, and the client's end |
//! | [`Files`], [`FileCommand`], [`FileReply`], [`FileError`] | an engine with plain files, and what it can be asked besides requests |
//! | [`Client`], [`Carried`] | who asks, from any thread, and how that reaches a service of this process |
//! | [`Ended`], [`Outcome`], [`RequestError`], [`Unasked`] | how requests and commands end |
//! | [`Served`] | what a service can serve |

pub use baio_broker::files::{FileCommand, FileError, FileReply, Files};
pub use baio_broker::served::{NotStarted, Served};
pub use baio_broker::{Connection, Setup, start};
pub use baio_client::{Carrier, Client, Ended, Unasked};
pub use baio_engine::{Arena, Create, Engine, File, Open, SetupError};
pub use baio_words::{Access, Failure, Outcome, RequestError, RequestFault};

pub use crate::remote::Carried;
