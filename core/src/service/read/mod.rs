//! Reading apps, histories, progress, logs and images at their registries, and waiting for a change.

mod app_events;
mod build_log;
mod configuration;
mod ends;
mod following;
mod history_lists;
mod image;
mod instance_logs;
mod nearest_tags;
mod progress;
mod queries;
mod release_log;
mod runs;
mod shared_reads;
mod shared_values;

pub use build_log::LogPart;
pub use configuration::ShownConfiguration;
pub use ends::Waited;
pub use following::{Following, ListedTag, Place};
pub use image::LookedUpImage;
pub use progress::Progress;

pub(crate) use app_events::{AppEvents, Subscription};
pub(crate) use build_log::BuildStates;
pub(crate) use history_lists::HistoryLists;
pub(crate) use instance_logs::InstanceReads;
pub(crate) use progress::Observations;
pub(crate) use shared_reads::{SharedRead, SharedReads};
pub(crate) use shared_values::SharedValues;
