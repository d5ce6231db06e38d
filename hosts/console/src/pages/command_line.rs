//! Signing a command line on the same machine in: `rollhook login`.

use askama::Template;
use http::StatusCode;
use rollhook_api::{Kind, access::login_code};
use rollhook_management::ports::RecordKey;

use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::Frame,
};

#[derive(Template)]
#[template(path = "command_line.html")]
struct CommandLinePage<'a> {
    frame: &'a Frame,
    query: &'a str,
    /// The code that the person's own terminal shows, too.
    code: String,
    /// The address of the command line that waits, once it is allowed.
    forward: Option<String>,
}

/// The command line that asks: its port on this machine, its state, and the hash of its secret.
struct Asking {
    port: u16,
    state: String,
    challenge: RecordKey,
}

impl Asking {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let query = |name| call.request.query(name);
        let is_hex = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let asking = || {
            Some(Self {
                port: query("port")?.parse().ok().filter(|port| *port >= 1024)?,
                state: query("state").filter(is_hex)?,
                challenge: query("challenge").filter(is_hex)?.parse().ok()?,
            })
        };
        asking().ok_or_else(|| Failure::new(Kind::Malformed, "The link is not whole. Run rollhook login again."))
    }
}

/// Answers `GET /command-line`.
pub(crate) fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    let code = login_code(Asking::of(call)?.challenge.as_str());
    let page = CommandLinePage { frame: &call.frame(), query: &call.request.query, code, forward: None };
    Ok(reply::html(StatusCode::OK, &page))
}

/// Answers `POST /command-line`: the code goes to a port of the person's own machine, and nowhere else.
pub(crate) async fn allow(call: &Call<'_>) -> Result<Reply, Failure> {
    let Asking { port, state, challenge } = Asking::of(call)?;
    let code = call.console.host.lend_session(&call.session, &challenge).await?;
    let forward = format!("http://127.0.0.1:{port}/?code={}&state={state}", *code);
    let page = CommandLinePage {
        frame: &call.frame(),
        query: "",
        code: login_code(challenge.as_str()),
        forward: Some(forward),
    };
    Ok(reply::with_secret(reply::html(StatusCode::OK, &page)))
}
