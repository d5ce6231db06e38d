//! rollhook's web console: pages rendered on the server, over the management operations.
//!
//! ```text
//!   host (HTTP) ──▶ Console::answer
//!                     │ asset · same origin? · session ─▶ confirmed by the store ─▶ permission
//!                     ▼
//!                   pages ──▶ rollhook_api's operations
//!                     │
//!                     ▼
//!                   view + templates ─▶ HTML        live ─▶ server-sent events
//! ```
//!
//! One call: the host has read the body and applied its limits, and hands the call over. [`Console::answer`] refuses a
//! changing call that another site has caused, and asks the management plane ([`Host`]) whose session the call's cookie
//! proves, and what that principal may do now: a token that was revoked ends its sessions at once. The page then
//! calls the operations that the API and the command line call, and renders what they return. A failure is shown in the
//! server's own words.
//!
//! Every page works without a script. With one, htmx replaces parts of pages: the search's result, dialogs, and the
//! history while it changes. Styles, scripts and icons are embedded; nothing is loaded from elsewhere, and nothing is
//! inline.

mod ansi;
mod assets;
mod console;
mod git_link;
mod host;
mod live;
mod pages;
mod reply;
mod request;
mod route;
mod view;

pub use console::Console;
pub use host::{Failure, Host};
pub use reply::{Answer, Body, Caller, Parts};
pub use request::Request;
pub use route::{claims, is_provider_callback, is_sign_in, template};

#[cfg(test)]
mod tests;
