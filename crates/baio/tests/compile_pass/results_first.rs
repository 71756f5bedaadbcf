//! The same as the programs that do not compile, done rightly.
#![deny(warnings)]

use baio::{
    Access, CreateOptions, Durability, Failed, File, FormatOptions, Link, Local, Mode, LinkOptions, Pin, Remote, Request, Segment,
};

/// On any link.
async fn requests<L: Link>(file: &File<L>) -> baio::Result<()> {
    let mut buffer = file.buffer(4096)?;
    buffer.fill(7);
    // The buffer comes back through the result.
    let mut buffer = file.write_all_at(0, buffer).durable(Durability::Data).await?.buffer;
    buffer.fill(0);
    let read = file.read_at(0, buffer).await?;
    assert_eq!(read.buffer[..read.bytes], [7; 4096]);
    // Or through the failure.
    let failed: Failed<_> = file.read_exact_at(4096, read.buffer).await.unwrap_err();
    assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(4096));
    file.discard(0, 4096)
        .await
        .or_else(|failed| match failed.error.code() {
            "EOPNOTSUPP" => Ok(failed_to_discard()),
            _ => Err(failed.error),
        })?;
    file.sync(Durability::Full).await?;
    file.fence(Durability::Full).await?;
    let mut cancelled: Request<L, ()> = file.sync(Durability::Data);
    cancelled.cancel();
    assert_eq!(cancelled.await.unwrap_err().error.code(), "ECANCELED");
    Ok(())
}

/// Nobody needs what a discard gives.
fn failed_to_discard() -> baio::Done<()> {
    unreachable!("the file system of this test discards")
}

async fn pages<L: Link>(link: &L, segment: &Segment<L>) -> baio::Result<()> {
    let pin: Pin<L> = segment.pin(0).await?;
    pin.changeable(0).await?;
    pin.change(0, |page| page.fill(5)).await?;
    assert_eq!(pin.read(|page| page[9]).await?, 5);
    pin.unpin();
    let handle = segment.handle();
    let seen = link
        .with_pool(move |pool| pool.read(handle, 0, |page| page[9]))
        .await??;
    assert_eq!(seen, Some(5));
    segment.sync(Durability::Data).await?;
    Ok(())
}

fn all<L: Link>(link: L, dir: &std::path::Path) -> baio::Result<()> {
    let file = File::options()
        .write()
        .create()
        .open(&link, dir.join(link.identity().uid.to_string()))
        .wait()?;
    link.block_on(requests(&file))??;
    link.create_segment("one", &CreateOptions::of_size(1 << 20)).wait()?;
    let segment = link.open_segment("one", Access::Write).wait()?.with_mode(Mode::Cached);
    link.block_on(pages(&link, &segment))??;
    drop((file, segment));
    link.delete_segment("one").wait()?;
    link.close()
}

/// What is of a service goes anywhere.
fn elsewhere(remote: &Remote, path: std::path::PathBuf) -> baio::Result<()> {
    let file = File::open(remote, path).wait()?;
    let request = file.read_at(0, file.buffer(10)?);
    let read = std::thread::spawn(move || request.wait()).join().expect("no panic")?;
    assert_eq!(read.bytes, 10);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("baio-results-first-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let volume = dir.join("volume.img");
    baio::format(
        &volume,
        &FormatOptions {
            size_bytes: Some(16 << 20),
            ..FormatOptions::default()
        },
    )?;
    let options = LinkOptions::default().with_cache(1 << 20);
    all(Local::open_with(&volume, &options)?, &dir)?;
    let remote = Remote::open_with(&volume, &options)?;
    elsewhere(&remote, volume.clone())?;
    all(remote, &dir)?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
