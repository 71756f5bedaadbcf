//! Opening a medium to judge it: what is there, said by an opening and by somebody who only looks.

use std::sync::Arc;

use baio_engine::Arena;
use baio_engine::sim::Random;
use baio_storage::log::{LogError, LogOptions, Recovered};

use super::medium::Medium;
use super::model::Seen;
use super::rig::{Event, Rig};
use super::workload::State;
use crate::violation::{Kind, Violation};

/// A log that was opened, or why not.
type Opened = Result<(Rig, Recovered, Vec<Seen>), LogError>;

/// Opens a medium, and reads all; now and then somebody looks at it before, and finds the same.
///
/// # Errors
/// A broken promise.
pub fn open(
    arena: &Arc<Arena>,
    medium: Medium,
    options: &LogOptions,
    random: &mut Random,
) -> Result<Opened, Violation> {
    let looked = match random.percent(LOOKS_PERCENT) {
        true => Some(look(arena, medium.clone(), options, random)?),
        false => None,
    };
    let mut rig = Rig::open(arena, medium, options, Random::from(&[random.bits()]))?;
    let opened = match rig.opened()? {
        Ok(recovered) => {
            rig.is_on_record = false;
            let seen = rig.read(recovered.head)?;
            Ok((rig, recovered, seen))
        }
        Err(error) => Err(nothing_written(&rig, error)?),
    };
    if let Some(looked) = looked {
        let found = opened.as_ref().map_err(Clone::clone);
        let found = found.map(|(_, recovered, seen)| (as_looked_at(recovered), seen.clone()));
        if looked != found {
            let told =
                |found: &Looked| format!("{:?}", found.as_ref().map(|(recovered, seen)| (recovered, seen.len())));
            let story = format!("a look finds {}, and an opening {}", told(&looked), told(&found));
            return Err(Violation::new(Kind::Failed, story));
        }
    }
    Ok(opened)
}

/// An opening that fails because of what it finds leaves everything as it was.
fn nothing_written(rig: &Rig, error: LogError) -> Result<LogError, Violation> {
    let is_write = |event: &Event| matches!(event, Event::Begun(..));
    match rig.record.iter().find(|event| is_write(event)) {
        Some(write) => {
            let story = format!("an opening that fails writes: {error}, {write:?}");
            Err(Violation::new(Kind::Failed, story))
        }
        None => Ok(error),
    }
}

/// Opens a medium on which any read may fail, now or later: all that was there, or an error. True: an error.
///
/// # Errors
/// A broken promise.
pub fn misread(
    arena: &Arc<Arena>,
    options: &LogOptions,
    state: &State,
    count: usize,
    random: &mut Random,
) -> Result<bool, Violation> {
    let mut rig = Rig::open(arena, state.medium.clone(), options, Random::from(&[random.bits()]))?;
    rig.misread_percent = [5, 30, 60][random.below(3) as usize];
    let say = |violation: Violation| violation.after(format!("where one read in a while fails, of {count} groups"));
    let recovered = match rig.opened().map_err(say)? {
        Ok(recovered) => recovered,
        Err(error) => {
            let error = nothing_written(&rig, error).map_err(say)?;
            let is_right = matches!(error, LogError::Read { .. });
            return match is_right || !state.model.is_made {
                true => Ok(true),
                false => Err(say(Violation::new(Kind::Refused, error.to_string()))),
            };
        }
    };
    rig.misread_percent = 0;
    let seen = rig.read(recovered.head).map_err(say)?;
    let found = state.model.check(&recovered, &seen, true).map_err(say)?;
    if found != count {
        let story = format!("{found} are found");
        return Err(say(Violation::new(Kind::Lost, story)));
    }
    Ok(false)
}

/// How often it is looked before it is opened.
const LOOKS_PERCENT: u64 = 20;

/// What somebody found who only looked, or why not.
type Looked = Result<(Recovered, Vec<Seen>), LogError>;

/// No epoch was raised.
fn as_looked_at(recovered: &Recovered) -> Recovered {
    let mut recovered = recovered.clone();
    recovered.epoch = 0;
    recovered
}

/// What is found by somebody who writes nothing.
fn look(arena: &Arc<Arena>, medium: Medium, options: &LogOptions, random: &mut Random) -> Result<Looked, Violation> {
    let mut rig = Rig::look(arena, medium, options, Random::from(&[random.bits()]))?;
    let looked = match rig.opened()? {
        Ok(recovered) => {
            let seen = rig.read(recovered.head)?;
            Ok((as_looked_at(&recovered), seen))
        }
        Err(error) => Err(error),
    };
    if !rig.record.is_empty() {
        let story = format!("a look writes: {:?}", rig.record);
        return Err(Violation::new(Kind::Failed, story));
    }
    Ok(looked)
}
