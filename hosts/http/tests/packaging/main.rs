//! What operators install, as they get it: the images that the repository's Dockerfile makes, on a real kubelet.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod image;
mod images;
mod secrets;
