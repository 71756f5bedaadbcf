//! One promise a file.

mod abandoning;
mod closing;
mod commands;
mod descriptor;
mod ends;
mod helper;
mod memory;
mod mixed;
mod places;
mod turns;
mod waiting;
