//! What nobody may leave unread: each of these lines ignores a failure, or begins nothing.
#![deny(warnings)]
#![allow(dead_code)]

use baio::{CreateOptions, Durability, File, Link, Local, Pin, Remote};

/// An operation that may have failed.
async fn ignored_answer(link: &Remote) {
    link.create_segment("one", &CreateOptions::of_size(1 << 20)).await;
    link.delete_segment("one").wait();
}

/// A close that may have failed to write back.
fn ignored_close(link: Remote) {
    link.close();
}

/// A range that may not have been given back.
async fn ignored_discard(file: &File<Remote>) -> baio::Result<()> {
    file.discard(0, 4096).await;
    file.zero(0, 4096).await;
    Ok(())
}

/// A short read that nobody looks at.
async fn ignored_exact(file: &File<Remote>) -> baio::Result<()> {
    file.read_exact_at(0, file.buffer(4096)?).await;
    file.write_all_at(0, file.buffer(4096)?).await;
    Ok(())
}

/// A fence that may not have made anything safe.
async fn ignored_fence(file: &File<Remote>) -> baio::Result<()> {
    file.fence(Durability::Full).await;
    Ok(())
}

/// That the link could be driven says nothing of the request.
fn ignored_inside(link: &Local, file: &File<Local>) -> baio::Result<()> {
    link.block_on(file.write_at(0, file.buffer(4096)?))?;
    Ok(())
}

/// An operation that never begins.
fn ignored_operation(link: &Local) {
    link.create_segment("one", &CreateOptions::of_size(1 << 20));
}

/// Options that open nothing.
fn ignored_options() {
    File::options().write().create();
}

/// A change that never happens, and one that may have failed.
async fn ignored_pin(pin: &Pin<Remote>) {
    pin.change(1, |bytes| bytes.fill(0));
    pin.changeable(1).await;
}

/// A read whose failure nobody looks at.
async fn ignored_read(file: &File<Remote>) -> baio::Result<()> {
    file.read_at(0, file.buffer(4096)?).await;
    Ok(())
}

/// A sync that may not have made anything safe.
async fn ignored_sync(file: &File<Remote>) -> baio::Result<()> {
    file.sync(Durability::Data).await;
    Ok(())
}

/// A list that may not have been written.
async fn ignored_vectored(file: &File<Remote>) -> baio::Result<()> {
    file.write_vectored_at(0, vec![file.buffer(4096)?]).await;
    Ok(())
}

/// The blocking form is no way around.
fn ignored_wait(file: &File<Local>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?).wait();
    Ok(())
}

/// A write whose failure nobody looks at.
async fn ignored_write(file: &File<Remote>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?).await;
    Ok(())
}

/// A request that never starts.
async fn never_awaited(file: &File<Remote>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?);
    Ok(())
}

/// Shaping a request does not start it.
async fn never_awaited_when_shaped(file: &File<Remote>) -> baio::Result<()> {
    file.write_at(0, file.buffer(4096)?).direct().durable(Durability::Data);
    Ok(())
}

fn main() {}
