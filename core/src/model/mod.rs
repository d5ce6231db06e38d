//! The nouns of the domain: parsing makes them, so that each value is valid.

pub mod action;
pub mod app;
pub mod check;
pub mod configuration;
pub mod delivery;
pub mod deploy;
pub mod disk;
pub mod error;
pub mod follow;
mod host;
pub mod image;
pub mod instance;
pub mod lock;
pub mod network;
pub mod replica;
pub mod request;
pub mod requirement;
pub mod run;
pub mod source;
pub mod text;
pub mod time;
pub mod token;
pub mod trace;
