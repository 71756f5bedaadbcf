//! The traits of `futures::io`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use super::{Reader, Writer};
use crate::transport::Transport;

impl<L: Transport> AsyncRead for Reader<L> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let reader = self.get_mut();
        let left = ready!(reader.poll_fill(context))?;
        let len = left.len().min(into.len());
        into[..len].copy_from_slice(&left[..len]);
        reader.used(len);
        Poll::Ready(Ok(len))
    }
}

impl<L: Transport> AsyncBufRead for Reader<L> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(context)
    }

    fn consume(self: Pin<&mut Self>, bytes: usize) {
        self.get_mut().used(bytes);
    }
}

impl<L: Transport> AsyncWrite for Writer<L> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(context)
    }
}
