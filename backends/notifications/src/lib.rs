//! Tells receivers of deploys: each kind of receiver is a pure function from a notification to a request, and from the
//! answer to what it means.
//!
//! ```text
//!   Notification ── cloud_event.rs ──► Request ── rollhook_https (bounded) ──► receiver
//!                                                                                 │
//!   Delivered · DeliveryFailure ◄──────────────── answer.rs ◄─────────────────────╯
//! ```

mod answer;
mod cloud_event;
mod facts;
mod hosts;
mod notifier;
#[cfg(test)]
mod samples;

pub use hosts::AllowedReceivers;
pub use notifier::HttpNotifier;
