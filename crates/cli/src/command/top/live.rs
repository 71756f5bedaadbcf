//! The table on a terminal.
//!
//! A thread of its own looks at the broker: one that does not answer keeps nobody from ending this. Whatever ends it, the terminal is
//! as it was: `ratatui` restores it when anything panics, and this when it returns.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use baio::Link;
use baio_console::failure::Failure;
use baio_console::printable::Printable;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::rates::{Look, View};
use super::{INTERVAL, Watched};
use baio_console::end_by::end_by;

/// So often keys and signals are looked for.
const TICK: Duration = Duration::from_millis(100);
/// A look that is older is told to be.
const OLD: Duration = Duration::from_secs(3);

/// Shows the table until it is told to end.
pub(super) fn run(watched: Watched) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::from_io("top", &error).on("the terminal");
    let signals = [SIGTERM, SIGINT, SIGHUP].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
    for (signal, heard) in &signals {
        signal_hook::flag::register(*signal, Arc::clone(heard)).map_err(failed)?;
    }
    let volume = watched.link.name();
    let (tell, looks) = sync_channel(1);
    let watch = move || {
        loop {
            let look = watched.look();
            let is_over = look.is_err();
            // Nobody wants it any more, or there is none any more.
            if tell.send(look).is_err() || is_over {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    };
    baio_process::thread::named("looks").start(watch).map_err(failed)?;
    let flags = signals.clone();
    let guard = move || guard(&flags);
    baio_process::thread::named("guard").start(guard).map_err(failed)?;

    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = show(&mut terminal, &volume, &looks, || heard(&signals).is_some());
    // Where it cannot show its cursor again its drop would say so, and panic where that cannot be said either, as on a terminal that is gone.
    match terminal.show_cursor() {
        Ok(()) => drop(terminal),
        Err(_) => std::mem::forget(terminal),
    }
    let restored = ratatui::try_restore().map_err(failed);
    if let Some(signal) = ends_by(&signals) {
        // Whoever waits for this process sees the signal.
        end_by(signal);
    }
    ended.and(restored)
}

/// The signal that was heard.
fn heard(signals: &[(i32, Arc<AtomicBool>)]) -> Option<i32> {
    let heard = signals.iter().find(|(_, heard)| heard.load(Ordering::Relaxed));
    heard.map(|(signal, _)| *signal)
}

/// The same; that of a terminal that is gone may come later than its failures, or never.
fn ends_by(signals: &[(i32, Arc<AtomicBool>)]) -> Option<i32> {
    heard(signals).or_else(|| is_gone().then_some(SIGHUP))
}

/// Ends the program where the loop that shows does not: it stays in `crossterm` for ever once its terminal is gone.
fn guard(signals: &[(i32, Arc<AtomicBool>)]) {
    let mut late = 0;
    loop {
        std::thread::sleep(INTERVAL);
        let Some(signal) = ends_by(signals) else { continue };
        // Once more, so that a loop that is there still leaves the terminal as it was.
        if late > 0 {
            end_by(signal);
        }
        late += 1;
    }
}

/// Has nobody the other end of the terminal any more?
fn is_gone() -> bool {
    let input = io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
}

fn show(
    terminal: &mut DefaultTerminal,
    volume: &str,
    looks: &Receiver<Result<Look, Failure>>,
    is_told_to_end: impl Fn() -> bool,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::from_io("top", &error).on("the terminal");
    let began = Instant::now();
    let (mut latest, mut view): (Option<Look>, Option<View>) = (None, None);
    while !is_told_to_end() {
        match looks.try_recv() {
            Ok(look) => {
                let look = look?;
                view = Some(View::of(volume.to_owned(), latest.as_ref(), &look));
                latest = Some(look);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(Failure::new("top", "EIO", "the terminal is gone")),
        }
        let age = latest.as_ref().map_or(began, |look| look.at).elapsed();
        let draw = |frame: &mut Frame<'_>| draw(frame, volume, view.as_ref(), age);
        terminal.draw(draw).map_err(failed)?;
        if event::poll(TICK).map_err(failed)? && ends(&event::read().map_err(failed)?) {
            return Ok(());
        }
    }
    Ok(())
}

/// Is it `q` or Ctrl-C, which is a key here?
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('q' | 'Q') => true,
            KeyCode::Char('c') => is_control,
            _ => false,
        }
}

fn draw(frame: &mut Frame<'_>, volume: &str, view: Option<&View>, age: Duration) {
    let [title, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    let mut said = vec!["baio top".bold(), format!(" {}  (q ends it)", Printable(volume)).into()];
    if age > OLD {
        said.push(format!("  no answer for {} s", age.as_secs()).red());
    }
    frame.render_widget(Line::from(said), title);
    let Some(view) = view else { return };
    let lines = view.table(Some(table.width.into())).lines();
    if lines.iter().any(|line| line.len() > table.width.into()) {
        return frame.render_widget(Line::from("too narrow"), table);
    }
    let mut lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    if let Some(headings) = lines.first_mut() {
        *headings = std::mem::take(headings).reversed();
    }
    frame.render_widget(Text::from(lines), table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_keys_end_it() {
        let key = |code, modifiers| Event::Key(event::KeyEvent::new(code, modifiers));
        assert!(ends(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(ends(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!ends(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!ends(&key(KeyCode::Enter, KeyModifiers::NONE)));
        assert!(!ends(&Event::Resize(1, 1)));
    }
}
