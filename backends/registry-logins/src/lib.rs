//! The logins of image registries, as Docker keeps them: in `config.json`, and with the programs that it names.
//!
//! ```text
//!   LoginFiles (one file, or a directory of them) ── files.rs
//!        │ Logins::read, each time anew, so that a login may be renewed ── config.rs
//!        ▼
//!   entry of `auths` whose path fits best ── scope.rs
//!   or docker-credential-NAME get ── helper.rs        ──►  Login, whose Debug has no part of it
//!
//!   PlatformLogins ── platform.rs: those with which the platform of the apps pulls
//! ```

mod config;
mod files;
mod helper;
mod login;
mod platform;
mod scope;

pub use config::Logins;
pub use files::LoginFiles;
pub use login::{Login, LoginFailure};
pub use platform::PlatformLogins;
pub use scope::{HUB_KEY, LoginScope};
