//! Decisions about containers, as functions of what was read.

pub(crate) mod addresses;
pub(crate) mod at_rest;
pub(crate) mod container;
pub(crate) mod creation;
pub(crate) mod diagnostics;
pub(crate) mod disk;
pub(crate) mod fence;
pub(crate) mod given;
pub(crate) mod images;
pub(crate) mod instances;
pub(crate) mod listed;
pub(crate) mod lives;
pub(crate) mod made_with;
pub(crate) mod notes;
pub(crate) mod observation;
pub(crate) mod origin;
pub(crate) mod plan;
pub(crate) mod recreation;
pub(crate) mod registration;
pub(crate) mod release;
pub(crate) mod rest;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod silence;
pub(crate) mod variables;
pub(crate) mod volumes;
