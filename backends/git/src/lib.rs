//! Reads git sources with git itself: starts it safely for untrusted sources, and reads branches.
//!
//! ```text
//!   GitSource ─▶ Credentials ─┬─▶ Invocation ─▶ git      no configuration, one protocol, no redirects, no prompts
//!            └─▶ Addresses ───┘                 │
//!                                   GitError ◀──┴──▶ GitBranchReader: the branch's commit, its newest ones
//! ```
//!
//! Builders start git by an [`Invocation`] too, so that the limits on git are in one place. Every argument that came
//! from outside is checked where it was parsed (`rollhook_core::source`), and stands behind `--` where git would read
//! options.

mod addresses;
mod branches;
mod credentials;
mod environment;
mod git_error;
mod invocation;
mod limiter;
mod limits;
mod log;
mod process;

pub use addresses::{Addresses, Unresolved};
pub use branches::{Error, GitBranchReader, Settings};
pub use credentials::{CredentialFiles, Credentials};
pub use git_error::{GitError, SshError};
pub use invocation::Invocation;
pub use limiter::{Limiter, Permit, Priority};
pub use limits::limit_memory;
