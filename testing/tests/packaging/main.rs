//! The parts that operators install, as they get them: the images that the repository's Dockerfile makes, on a
//! real kubelet, the Helm chart, a release's archives and installer, and Prometheus' alerts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod archives;
mod chart;
mod helm;
mod image;
mod images;
mod install;
mod machine;
mod prometheus;
mod release;
mod secrets;
