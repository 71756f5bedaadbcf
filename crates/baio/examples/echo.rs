//! A server that sends back what it receives and logs it to a file: sockets and file in one loop of one thread.
//! ```sh
//! cargo run -p baio --example echo -- 127.0.0.1:7777 /tmp/echo.log
//! ```
//! Then `nc 127.0.0.1 7777` from elsewhere.
use std::cell::Cell;
use std::net::TcpListener;

use baio::{File, Link, Local, Result, Stream};
use futures_util::future::join_all;

pub(crate) async fn serve(listener: &Stream, log: &File<Local>, end: &Cell<u64>) -> Result<()> {
    loop {
        let client = listener.accept().await?;
        if let Err(error) = echo(&client, log, end).await {
            eprintln!("{error}");
        }
    }
}

async fn echo(client: &Stream, log: &File<Local>, end: &Cell<u64>) -> Result<()> {
    let mut received = client.read(vec![0; 4096]).await?;
    while received.bytes > 0 {
        received.buffer.truncate(received.bytes);
        let at = end.replace(end.get() + received.bytes as u64);
        let logged = log.write_all_at(at, received.buffer).await?;
        let mut buffer = client.write(logged.buffer).await?.buffer;
        buffer.resize(4096, 0);
        received = client.read(buffer).await?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let [address, path] = [1, 2].map(|number| std::env::args().nth(number).expect("an address and a file"));
    let link = Local::new()?;
    let listener = link.stream(TcpListener::bind(address)?)?;
    let log = File::options().write().create().open(&link, path).wait()?;
    let end = Cell::new(log.size().wait()?);
    link.block_on(join_all((0..64).map(|_| serve(&listener, &log, &end))))?; // So many clients at a time.
    Ok(())
}
