//! Reads git sources with git itself: how it is started for a source that anybody may have named, and where a branch is.
//!
//! ```text
//!   GitSource ─▶ Credentials ─▶ Invocation ─▶ git        no configuration, one protocol, no redirects, nobody to ask
//!                                               │
//!                                  Complaint ◀──┴──▶ GitHeads: the branch's commit
//! ```
//!
//! Builders start git by an [`Invocation`] too, so that there is one answer to what git may do. Every argument that came
//! from outside is checked where it was parsed (`rollhook_core::source`), and stands behind `--` where git would read
//! options.

pub mod environment;

mod complaint;
mod credentials;
mod heads;
mod invocation;
mod process;
mod room;

pub use complaint::{Complaint, Refusal};
pub use credentials::Credentials;
pub use heads::{Error, GitHeads, Settings};
pub use invocation::Invocation;
