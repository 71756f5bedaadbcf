//! baio as an engine: submit, turn, take completions. What a program does that has a loop of its own.

use baio_engine::{Caching, Choice, Descriptions, Engine, EngineOptions, File, Open, Policy, Request, Wait};
use baio_peers::{BLOCK, Load, Outcome};

fn main() -> Outcome {
    let load = Load::from_arguments()?;
    let config = EngineOptions {
        backend: Choice::Uring,
        arena_bytes: load.depth * BLOCK,
        register_arena: true,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(&config)?;
    let open = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::read()
    };
    let file = File::open(&load.path, &open)?;
    assert!(engine.attach(&file), "the file could not be registered");
    let mut free = Vec::with_capacity(load.depth);
    for _ in 0..load.depth {
        let mut buffer = engine.buffer(BLOCK).ok_or("the arena is used up")?;
        buffer.fill(1);
        free.push(buffer);
    }
    load.start();
    let (mut since, mut under_way) = (None, 0);
    loop {
        while let Some(buffer) = free.pop() {
            let Some(offset) = load.next() else { break };
            since = load.clock();
            let read = Request::read(&file, offset, buffer, Policy::direct());
            engine.submit(read).map_err(|_| "every slot is taken")?;
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        engine.turn(Wait::one())?;
        while let Some(completion) = engine.next_completion() {
            load.ended(since, completion.result? as usize);
            under_way -= 1;
            free.extend(completion.memory.into_buffer());
        }
    }
    load.report("baio-engine");
    Ok(())
}
