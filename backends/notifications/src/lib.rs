//! Tells receivers of deploys, each kind in its own form.
//!
//! ```text
//!   Notification ─┬─ cloud_event.rs ──────────────────────────► Request ── rollhook_https (bounded) ──► receiver
//!                 ╰─ slack.rs · github.rs · gitlab.rs ── api.rs ──╯                                        │
//!   Delivered · DeliveryFailure ◄────────────────────────────── answer.rs ◄────────────────────────────────╯
//! ```

mod answer;
mod api;
mod cd_event;
mod cloud_event;
mod facts;
mod github;
mod gitlab;
mod hosts;
mod notifier;
mod phrases;
#[cfg(test)]
mod samples;
mod slack;

pub use hosts::AllowedReceivers;
pub use notifier::HttpNotifier;
