//! A request that comes back.

use baio_words::SegmentRequest;

/// Why a request was not begun; it comes back.
#[derive(Debug)]
pub enum NotTaken<M> {
    /// Every place is taken, or nothing is taken any more.
    Full(SegmentRequest<M>),
    /// Its memory cannot be shown to the service where it lies.
    Hidden(SegmentRequest<M>),
}

impl<M> NotTaken<M> {
    /// The request, whyever.
    pub fn into_request(self) -> SegmentRequest<M> {
        match self {
            NotTaken::Full(request) | NotTaken::Hidden(request) => request,
        }
    }
}
