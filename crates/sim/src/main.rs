//! sim
fn main(){}
