//! What is decided about objects, apart from how they are read and written: pure functions, tested on recorded JSON.

pub(crate) mod digest;
pub(crate) mod fence;
pub(crate) mod object;
pub(crate) mod observation;
pub(crate) mod owner;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod proof;
pub(crate) mod registration;
pub(crate) mod standing;
pub(crate) mod stuck;
pub(crate) mod template;
pub(crate) mod trouble;

#[cfg(test)]
pub(crate) mod samples;
