//! `--metrics PATH`: a socket that answers with the broker's figures as Prometheus' text.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baio::Metrics;
use baio::metrics::{MetricsServer, serve_if};
use baio_broker::host::Figures;
use baio_console::failure::Failure;
use baio_console::printable::readable;

/// A broker comes to it at once, unless a device holds its thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket, which goes with this.
pub(super) struct Shown {
    figures: Arc<OnceLock<Figures>>,
    _server: MetricsServer,
}

/// Opens the socket. It has no figures yet: it comes before the volume, as the clients' does.
pub(super) fn open(path: &Path) -> Result<Shown, Failure> {
    let figures = Arc::new(OnceLock::<Figures>::new());
    let asked = Arc::clone(&figures);
    let snapshot = move || {
        let shown = asked.get()?.look(PATIENCE)?;
        let mut metrics = Metrics::from(shown.counters);
        metrics.broker = Some(shown.status);
        Some(metrics)
    };
    let server = serve_if(path, snapshot).map_err(|error| failed(path, &error))?;
    Ok(Shown {
        figures,
        _server: server,
    })
}

impl Shown {
    /// From here on it shows these.
    pub(super) fn show(&self, figures: Figures) {
        let _ = self.figures.set(figures); // Once.
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let failure = match error.kind() {
        ErrorKind::AddrInUse => Failure::new("serve", "EADDRINUSE", "another process answers there"),
        ErrorKind::AlreadyExists => Failure::new("serve", "EEXIST", "it exists and is not a socket"),
        _ => Failure::from_io("serve", error),
    };
    failure
        .on(readable(path))
        .needing("a place for the metrics socket in a directory that the broker's user may write")
        .cured_by("name another path with --metrics")
}
