//! What tests of readers and writers share.

use std::pin::Pin;
use std::task::{Context, Poll};

use baio::{Link, Opened, Writer};
use futures_util::io::AsyncWriteExt;

/// How much a stream asks for at a time.
pub const PIECE: usize = 128 << 10;

pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

pub async fn write<L: Link>(opened: &Opened<L>, offset: u64, parts: &[&[u8]]) -> std::io::Result<()> {
    let mut writer = opened.writer(offset);
    for part in parts {
        writer.write_all(part).await?;
        writer.flush().await?;
    }
    writer.close().await?;
    assert!(writer.write_all(b"more").await.is_err());
    writer.close().await
}

pub fn futures_io_write<L: Link>(
    writer: &mut Writer<L>,
    context: &mut Context<'_>,
    from: &[u8],
) -> Poll<std::io::Result<usize>> {
    futures_util::io::AsyncWrite::poll_write(Pin::new(writer), context, from)
}
