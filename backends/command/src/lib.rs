//! Builds commits on this machine with a program, which may hand them to any other CI engine, or with a container engine
//! ([`ImageBuilder`]).
//!
//! ```text
//!   start ─▶ DIR/{app uid}/{revision}/order.json         what is known of a build is in files
//!              │
//!              ├─ git: the one full SHA at the source, fetched as that SHA
//!              ├─ a build slot, which no silent source holds
//!              ├─ git: measured, checked out, verified    neither memory nor disk is a repository's to use up
//!              ├─ PROGRAM, in the checkout               its own session; all it writes is the log
//!              │  or the engine, with its files
//!              ▼
//!            end.json                                    the image by digest, or why there is none
//! ```
//!
//! **The program** gets a checkout of exactly the commit as its working directory, and in its environment
//! `ROLLHOOK_COMMIT` (in full), `ROLLHOOK_IMAGE` (the tag to push: repository and commit), `ROLLHOOK_IMAGE_REPOSITORY`,
//! `ROLLHOOK_DOCKERFILE`, `ROLLHOOK_CONTEXT`, `ROLLHOOK_SOURCE_URL`, `ROLLHOOK_BRANCH`, `ROLLHOOK_APP` and
//! `ROLLHOOK_REVISION`. It builds and pushes, and the last line that it writes to standard output is the image by
//! digest, `REPOSITORY@sha256:…`. Of the server's own environment it gets `PATH`, `HOME` and `LANG`.
//!
//! **The program runs code of repositories**, so it is another user's ([`Tool::Program`]) wherever the server is root,
//! with limits on the size of a file and, for another user, on the number of processes, without capabilities and without
//! a way to gain any. Code can read what that user
//! can: no record and no credentials of this builder, but the checkouts of other builds that run at the same time.
//!
//! **No build outlives its server unseen.** Whatever a build starts carries `ROLLHOOK_BUILD` with a number of its own
//! in its environment, and is in a control group of the build's own where the server may make one. When a build ends, is
//! cancelled, or its server stops, the control group, its process group and everything that carries the number is killed;
//! without a control group also what the user of builds has begun since, unless another build's number is in its environment
//! or that user had its parent before. After a crash, the next server on the same directory does so before anything else, and
//! the build begins anew: the program may run again for the same revision. That needs Linux's `/proc`.
//!
//! [`job`] makes one such build in a container of its own, where the environment is the order: the program
//! `rollhook-build` of the builder image.
//!
//! One process at a time builds an app (a lock on the app's directory); processes that share a directory do not get
//! into each other's way.

mod builder;
mod cgroup;
mod checkout_limits;
mod confinement;
mod disk;
mod disk_limits;
mod environment;
mod git;
pub mod job;
mod log;
mod process;
mod reaper;
mod record;
mod run;
mod slots;
mod space;
mod tool;
mod trash;

pub use builder::{CommandBuilds, Error, Settings};
pub use checkout_limits::CheckoutLimits;
pub use disk::disk_space;
pub use disk_limits::{Bytes, DiskLimits};
pub use log::Log;
pub use slots::{Slot, Slots};
pub use tool::{Checkout, ImageBuilder, Tool};
