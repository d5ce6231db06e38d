//! The reader of registries: its promises on real registries, and what others answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

mod artifacts;
mod bounds;
mod images;
mod leading;
mod logins;
mod promises;
