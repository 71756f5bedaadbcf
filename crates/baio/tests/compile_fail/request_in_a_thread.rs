//! And its requests.
#![deny(warnings)]

use baio::{Buffer, Local, Request};

fn program(request: Request<Local, Buffer>) -> std::thread::JoinHandle<bool> {
    std::thread::spawn(move || request.wait().is_ok())
}

fn main() {
    let _ = program;
}
