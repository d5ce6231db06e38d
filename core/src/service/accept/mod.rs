//! Accepting calls: who may do what, and the changes of apps that are committed for it.

mod apps;
mod authorize;
mod checks;
mod configure;
mod decide;
mod hints;
mod locks;
mod promote;
mod push;
mod rebuild;
mod recognized_webhooks;
mod redeploy;
mod register;
mod rollback;
mod runs;
mod settings;
mod stop;
mod submit;
mod token_reads;
mod webhook;

pub use apps::Changed;
pub use authorize::Authorized;
pub use configure::Configured;
pub use hints::Hinted;
pub use locks::NewLock;
pub use push::Pushed;
pub use register::{Registered, check_settings};
pub use runs::{AcceptedRun, check_run};
pub use submit::Accepted;

pub(crate) use rebuild::from_git;
pub(crate) use recognized_webhooks::RecognizedWebhooks;
pub(crate) use token_reads::TokenReads;
