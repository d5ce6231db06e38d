//! Receivers are told of deploys from the history itself: at least once, in order, whatever fails or ends in between.

pub(crate) mod bench;
mod failing;
mod managing;
mod records;
mod telling;
