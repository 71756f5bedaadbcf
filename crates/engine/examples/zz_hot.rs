#![allow(unsafe_code, missing_docs)]
use baio_engine::*;
use std::os::unix::fs::FileExt;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let path = &a[1];
    let n = 400_000u64;
    let set = 2048u64;
    let f = std::fs::File::open(path).unwrap();
    let mut buf = vec![0u8; 4096];
    for i in 0..set {
        f.read_exact_at(&mut buf, i * 4096).unwrap();
    }
    let mut e = Engine::new(&Config {
        arena_bytes: 4 << 20,
        ..Config::default()
    })
    .unwrap();
    let file = File::open(path.as_ref(), &Open::read()).unwrap();
    let mut r = 1u64;
    let mut next = move || {
        r = r.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((r >> 33) % set) * 4096
    };
    let pread = |next: &mut dyn FnMut() -> u64, buf: &mut [u8]| {
        let t = Instant::now();
        for _ in 0..n {
            f.read_exact_at(&mut buf[..4096], next()).unwrap();
        }
        t.elapsed().as_nanos() as f64 / n as f64
    };
    for _ in 0..5 {
        let p = pread(&mut next, &mut buf);
        let mut b = Some(Memory::from(e.buffer(4096).unwrap()));
        let t = Instant::now();
        for _ in 0..n {
            e.submit(Request::read(&file, next(), b.take().unwrap(), Policy::kernel()))
                .ok()
                .unwrap();
            e.turn(Wait::one()).unwrap();
            let c = e.next_completion().unwrap();
            b = Some(c.memory);
        }
        let one = t.elapsed().as_nanos() as f64 / n as f64;
        drop(b);
        let mut bs: Vec<Memory> = (0..16).map(|_| Memory::from(e.buffer(4096).unwrap())).collect();
        let mut big = vec![0u8; 65536];
        let t = Instant::now();
        for _ in 0..n / 16 {
            for i in 0..16 {
                f.read_exact_at(&mut big[i * 4096..(i + 1) * 4096], next()).unwrap();
            }
        }
        let p16 = t.elapsed().as_nanos() as f64 / n as f64;
        let t = Instant::now();
        for _ in 0..n / 16 {
            for b in bs.drain(..) {
                e.submit(Request::read(&file, next(), b, Policy::kernel()))
                    .ok()
                    .unwrap();
            }
            e.turn(Wait::for_count(16)).unwrap();
            while let Some(c) = e.next_completion() {
                bs.push(c.memory);
            }
        }
        let sixteen = t.elapsed().as_nanos() as f64 / n as f64;
        println!(
            "pread {p:.0} ns, one {one:.0} ns ({:.2}); 16 bufs pread {p16:.0}, batch16 {sixteen:.0} ns ({:.2})  hits {}",
            one / p,
            sixteen / p16,
            e.stats().trial_hits
        );
    }
}
