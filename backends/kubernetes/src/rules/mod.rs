//! Decisions about objects, apart from reading and writing them: pure functions, tested on recorded JSON.

pub(crate) mod addresses;
pub(crate) mod configuration;
pub(crate) mod diagnostics;
pub(crate) mod digest;
pub(crate) mod drift;
pub(crate) mod failure;
pub(crate) mod fence;
pub(crate) mod image_owners;
pub(crate) mod instances;
pub(crate) mod jobs;
pub(crate) mod listed;
pub(crate) mod lives;
pub(crate) mod object;
pub(crate) mod observation;
pub(crate) mod patch;
pub(crate) mod pod_list;
pub(crate) mod pods;
pub(crate) mod pull_secrets;
pub(crate) mod quoted;
pub(crate) mod reduced;
pub(crate) mod references;
pub(crate) mod registration;
pub(crate) mod retained;
pub(crate) mod rollout_status;
pub(crate) mod scale;
pub(crate) mod secret_drift;
pub(crate) mod stuck_pods;
pub(crate) mod template;

#[cfg(test)]
pub(crate) mod samples;
