//! Under a multi-threaded runtime a remote link needs no adapter: tasks move between threads with their futures.

#![cfg(feature = "tokio")]

mod common;

use baio::{Backend, Link};
use common::remote;

#[test]
fn tasks_on_many_threads_await_it() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    let link = volume.clone();
    runtime.block_on(async move {
        link.create_segment("tasks", &baio::CreateOptions::of_size(1 << 20))
            .await
            .unwrap();
        let segment = link.open_segment("tasks", baio::Access::Write).await.unwrap();
        let tasks: Vec<_> = (0..16_u64)
            .map(|task| {
                let segment = segment.clone();
                tokio::spawn(async move {
                    for round in 0..50_u64 {
                        let offset = (task * 16 + round % 16) * 4096;
                        let mut page = segment.buffer(4096).unwrap();
                        page.fill((task + round) as u8);
                        segment.write_at(offset, page).await.unwrap();
                        let read = segment.read_at(offset, segment.buffer(4096).unwrap());
                        let done = read.await.unwrap();
                        assert_eq!(done.bytes, 4096);
                        assert!(done.buffer.iter().all(|&byte| byte == (task + round) as u8));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    volume.close().unwrap();
}
