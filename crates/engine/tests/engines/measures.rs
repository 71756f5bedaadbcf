//! What an engine measures, always: counters and latencies by operation and caching mode.

use std::io::Write;

use baio_engine::{Caching, Choice, Durability, Engine, EngineOptions, File, Open, Policy, Request, Wait};

fn run(engine: &mut Engine, request: Request) -> baio_engine::Completion {
    engine.submit(request).unwrap();
    loop {
        if let Some(completion) = engine.next_completion() {
            return completion;
        }
        engine.turn(Wait::one()).unwrap();
    }
}

#[test]
fn every_completion_is_counted_where_it_belongs() {
    for backend in [Choice::Sync, Choice::Uring] {
        let config = EngineOptions {
            backend,
            ..EngineOptions::default()
        };
        let Ok(mut engine) = Engine::new(&config) else {
            eprintln!("skipped: {backend:?} does not start here");
            continue;
        };
        let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        kept.write_all(&[7; 8192]).unwrap();
        let file = File::open(kept.path(), &Open::read()).unwrap();
        for _ in 0..40 {
            let buffer = engine.buffer(4096).unwrap();
            run(&mut engine, Request::read(&file, 0, buffer, Policy::kernel()));
        }
        for _ in 0..3 {
            let buffer = engine.buffer(4096).unwrap();
            let failed = run(&mut engine, Request::write(&file, 0, buffer, Policy::kernel()));
            assert!(failed.result.is_err(), "the file is open for reading");
        }
        run(&mut engine, Request::sync(&file, Durability::Data));
        let measures = engine.measures();
        let reads = measures.of("read", Caching::Kernel).unwrap();
        assert_eq!((reads.completions, reads.errors, reads.bytes), (40, 0, 40 * 4096));
        // Of reads that need no backend, one turn in sixteen is timed.
        let timed = reads.latency.count();
        assert!(
            if backend == Choice::Sync {
                timed == 40
            } else {
                timed >= 2
            },
            "{timed}"
        );
        let writes = measures.of("write", Caching::Kernel).unwrap();
        assert_eq!((writes.completions, writes.errors, writes.bytes), (3, 3, 0));
        assert_eq!(writes.latency.count(), 3);
        assert!(writes.latency.percentile(0.5) <= writes.latency.max());
        assert!(measures.of("read", Caching::Direct).is_none());
        assert_eq!(measures.iter().map(|(_, _, m)| m.completions).sum::<u64>(), 44);
    }
}
