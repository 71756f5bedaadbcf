//! How a link to a broker begins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baio_client::{ConnectError, Session, Wishes};
use baio_engine::SetupError;
use baio_ring::{Bell, FarBell, Shared};
use baio_storage::{Error, Fault, Result};
use baio_words::{Errno, next_number};

use super::again::Again;
use super::carried::{Between, Carried, Client, Way};
use super::far::{self, Far};

/// A client of the broker at the other end of a session, and who it is there. It goes on with the next broker for so long as `limit` says.
pub(super) fn client(
    session: Session,
    path: &Path,
    wishes: &Wishes,
    limit: Option<Duration>,
) -> Result<(Arc<Client>, u32)> {
    let core = next_number();
    let again = limit.map(|limit| Again::new(&session, path, wishes, limit));
    let again = again.transpose().map_err(|error| unconnected(error, path))?;
    let (name, uid) = (session.welcome.volume.clone(), session.welcome.uid);
    let arena = far::arena(&session.memory, &name)?;
    let bell = Bell::far(Arc::clone(&session.wire) as Arc<dyn FarBell>);
    let shared: Option<Between> = Shared::far(&session.memory, session.welcome.places, bell);
    let crooked = || {
        let error = SetupError::new("use the memory of", name.clone(), Errno::EPROTO);
        Error::new("connect to", name.clone(), error)
    };
    let shared = Arc::new(shared.ok_or_else(crooked)?);
    let (far, kept) = Far::new(session, arena, core, again.is_some());
    let carried = Carried {
        way: Way::Far(Box::new(far)),
    };
    let client = Arc::new(Client::new(carried, kept, shared, core, name));
    if let Some(again) = again {
        again.belongs_to(&client);
    }
    Ok((client, uid))
}

/// Why there is no session, in this crate's words.
pub(super) fn unconnected(error: ConnectError, path: &Path) -> Error {
    let object = baio_engine::path_name(path);
    if let Some(failed) = error.refused {
        return Error::new("connect to", object, Fault::Told(failed));
    }
    let mut setup = SetupError::new("connect to", error.object, error.errno);
    if let Some(what) = error.what {
        setup.object = format!("{}, which is there: {what}", setup.object);
    }
    setup.need = error.need;
    setup.cure = error.cure;
    Error::new("connect to", object, setup)
}
