//! Decisions, pure: what was read goes in, what is to be done comes out.
//!
//! [`registration`] decides what an app is made of, [`admission`] whether a deploy is accepted, [`push`] what a git host's
//! call asks for, [`target`] which version a rollback means, [`restore`] whether a failed rollout is to be put right,
//! [`engine`] what an app's driver does next, [`lane`] what is built meanwhile, [`poll`] when its source is looked at, and
//! [`check`] whether a history keeps the rules.

pub mod admission;
pub mod check;
pub mod engine;
pub mod lane;
pub mod poll;
pub mod push;
pub mod registration;
pub mod restore;
pub mod retry;
pub mod rollout;
pub mod target;
