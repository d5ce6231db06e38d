//! `rollhook login` and `rollhook context`: servers that a person is signed in to.

use std::{collections::HashMap, time::Duration};

use rollhook_api::{LoggedIn, Login, access::login_code, operations::ShowCaller};
use rollhook_core::text::escaped;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    args::{ContextCommand, LoginArgs},
    contexts::{Context, Contexts, read_token},
    exit::CliError,
    output::{Output, message},
    remote::{Server, random_hex},
    table::{self, Cell, Column, Fit},
};

/// The time in which a person signs in.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time in which a browser sends its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// The longest request that is read.
const REQUEST_MAX: usize = 8 * 1024;

/// Signs in at a server, and makes it the one that counts where none is named.
pub(crate) async fn login(output: &Output, args: &LoginArgs) -> Result<(), CliError> {
    let server = args.server.trim_end_matches('/').to_owned();
    let mut context = match &args.token_file {
        Some(file) => {
            let file = std::path::absolute(file).map_err(|error| CliError::Usage(format!("--token-file: {error}.")))?;
            let client = Server::with_token(&server, &read_token(&file)?)?;
            client.warn_if_unencrypted();
            let actor = client.call::<ShowCaller>(&(), &()).await?.actor;
            Context::new(&server, actor, None, Some(file))
        }
        None => {
            let LoggedIn { token, actor } = by_browser(&server).await?;
            Context::new(&server, actor, Some(token), None)
        }
    };
    let host = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
    let name = args.name.clone().unwrap_or_else(|| host.to_owned());
    let mut contexts = Contexts::read()?;
    let actor = context.actor.clone();
    // Signing in again keeps what was set.
    if let Some(before) = contexts.contexts.get(&name).filter(|before| before.server == context.server) {
        (context.project, context.environment) = (before.project.clone(), before.environment.clone());
    }
    context.default_to(&args.place);
    contexts.contexts.insert(name.clone(), context);
    contexts.current = Some(name.clone());
    contexts.write()?;
    output.line(&format!("Signed in to {} as {}: context {}", escaped(&server), escaped(&actor), escaped(&name)))
}

/// Waits for a browser on this machine, which brings a code for a secret that never leaves this process otherwise.
async fn by_browser(server: &str) -> Result<LoggedIn, CliError> {
    let client = Server::anonymous(server)?;
    client.warn_if_unencrypted();
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| CliError::Other(format!("Listening on this machine failed: {error}.")))?;
    let port = listener.local_addr().map_err(|error| CliError::Other(format!("{error}.")))?.port();
    let (verifier, state) = (random_hex()?, random_hex()?);
    let challenge = rollhook_core::text::hex(&Sha256::digest(&verifier));
    message("Open this address in a browser on this machine, and sign in:");
    message(&format!("{server}/command-line?port={port}&state={state}&challenge={challenge}"));
    message(&format!("The page must show this code, by which you know your own terminal: {}", login_code(&challenge)));
    let code = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            // Others on this machine may connect too: only the state of this login counts.
            if let Ok(Some(code)) = tokio::time::timeout(REQUEST_TIME, code_of(stream, &state)).await {
                return code;
            }
        }
    };
    let code = tokio::time::timeout(PATIENCE, code).await;
    let code = code
        .map_err(|_| CliError::Unsuccessful)
        .inspect_err(|_| message("The sign-in took longer than 5 minutes; run the command again."))?;
    client.login(&Login { code, verifier }).await
}

/// Returns the code that a browser brings with this state, and answers it.
async fn code_of(mut stream: TcpStream, state: &str) -> Option<String> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_MAX {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).await.ok().filter(|length| *length > 0)?;
        request.extend_from_slice(&part[..length]);
    }
    let request = String::from_utf8(request).ok()?;
    let query = request.split(' ').nth(1)?.strip_prefix("/?")?;
    let parameters: HashMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let code = parameters.get("code").filter(|_| parameters.get("state") == Some(&state));
    let (status, text) = match code {
        Some(_) => ("200 OK", "You are signed in at the command line. You may close this page."),
        None => ("400 Bad Request", "This is not the answer to this login."),
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}", text.len());
    let _ = stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{text}").as_bytes()).await;
    code.map(|code| (*code).to_owned())
}

/// Returns the names of a context's project and environment; empty if none is set.
fn place(context: &Context) -> [String; 2] {
    let project = context.project.as_ref().map(ToString::to_string);
    [project.unwrap_or_default(), context.environment.as_ref().map(ToString::to_string).unwrap_or_default()]
}

/// Lists the contexts, or makes one of them the current one.
pub(crate) fn context(output: &Output, command: &ContextCommand) -> Result<(), CliError> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::List => {
            let row = |(name, context): (&String, &Context)| {
                let current = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
                let [project, environment] = place(context);
                let cells = [current, name, &context.server, &context.actor, &project, &environment];
                cells.map(Cell::new).to_vec()
            };
            let rows: Vec<_> = contexts.contexts.iter().map(row).collect();
            let documents = contexts.contexts.iter().map(|(name, context)| {
                let is_current = contexts.current.as_ref() == Some(name);
                serde_json::json!({
                    "name": name, "server": context.server, "actor": context.actor, "current": is_current,
                    "project": context.project, "environment": context.environment
                })
            });
            let columns = [
                Column("", 0, Fit::Keep),
                Column("NAME", 0, Fit::Keep),
                Column("SERVER", 0, Fit::Cut),
                Column("SIGNED IN AS", 0, Fit::Cut),
                Column("PROJECT", 0, Fit::Keep),
                Column("ENVIRONMENT", 0, Fit::Keep),
            ];
            output.data(&documents.collect::<Vec<_>>(), || table::render(&columns, &rows, output.style))
        }
        ContextCommand::Use { name, place: wanted } => {
            let Some(context) = contexts.contexts.get_mut(name) else {
                return Err(CliError::Usage(format!("There is no context {name}; rollhook context list shows them.")));
            };
            context.default_to(wanted);
            let [project, environment] = place(context);
            contexts.current = Some(name.clone());
            contexts.write()?;
            let name = escaped(name);
            match project.is_empty() && environment.is_empty() {
                true => output.line(&format!("Context {name} is the current one")),
                false => output.line(&format!(
                    "Context {name} is the current one; commands that name none work on project {}, environment {}",
                    if project.is_empty() { "-" } else { &project },
                    if environment.is_empty() { "-" } else { &environment },
                )),
            }
        }
    }
}
