//! The parts that operators install, as they get it: the images that the repository's Dockerfile makes, on a
//! real kubelet, and the Helm chart.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod chart;
mod helm;
mod image;
mod images;
mod install;
mod machine;
mod release;
mod secrets;
