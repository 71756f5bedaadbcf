//! What is somebody else's, or gone.
#![deny(warnings)]
#![allow(dead_code)]

use baio::{File, Link, Pin, Remote};

/// It comes back through the result, and else not.
async fn buffer_after_its_request(file: &File<Remote>) -> baio::Result<()> {
    let buffer = file.buffer(4096)?;
    file.write_at(0, buffer).await?;
    assert!(buffer.is_empty());
    Ok(())
}

/// A buffer that was given to a request is the request's.
async fn buffer_in_flight(file: &File<Remote>) -> baio::Result<()> {
    let mut buffer = file.buffer(4096)?;
    let write = file.write_at(0, buffer);
    buffer[0] = 1;
    write.await?;
    Ok(())
}

/// A page is given back once.
fn unpinned_twice(pin: Pin<Remote>) {
    pin.unpin();
    pin.unpin();
}

/// A link that was closed is gone.
fn used_after_close(link: Remote) -> baio::Result<usize> {
    link.close()?;
    Ok(link.in_flight())
}

/// What was given back is not looked at.
async fn used_after_unpin(pin: Pin<Remote>) -> baio::Result<u8> {
    pin.unpin();
    pin.read(|bytes| bytes[0]).await
}

fn main() {}
