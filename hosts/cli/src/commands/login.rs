//! `rollhook login` and `rollhook context`: servers that a person is signed in to.

use std::{collections::HashMap, time::Duration};

use rollhook_api::{LoggedIn, Login, Operations};
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
    let context = match &args.token_file {
        Some(file) => {
            let file = std::path::absolute(file).map_err(|error| CliError::Usage(format!("--token-file: {error}.")))?;
            let actor = Server::with_token(&server, &read_token(&file)?)?.whoami().await?.actor;
            Context { server: server.clone(), token: None, token_file: Some(file), actor }
        }
        None => {
            let LoggedIn { token, actor } = by_browser(&server).await?;
            Context { server: server.clone(), token: Some(token), token_file: None, actor }
        }
    };
    let host = server.split_once("://").map_or(server.as_str(), |(_, rest)| rest);
    let name = args.name.clone().unwrap_or_else(|| host.to_owned());
    let mut contexts = Contexts::read()?;
    let actor = context.actor.clone();
    contexts.contexts.insert(name.clone(), context);
    contexts.current = Some(name.clone());
    contexts.write()?;
    output.line(&format!("Signed in to {} as {}: context {}", escaped(&server), escaped(&actor), escaped(&name)))
}

/// Waits for a browser on this machine, which brings a code for a secret that never leaves this process otherwise.
async fn by_browser(server: &str) -> Result<LoggedIn, CliError> {
    let client = Server::anonymous(server)?;
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| CliError::Other(format!("Listening on this machine failed: {error}.")))?;
    let port = listener.local_addr().map_err(|error| CliError::Other(format!("{error}.")))?.port();
    let (verifier, state) = (random_hex()?, random_hex()?);
    let challenge: String = Sha256::digest(&verifier).iter().map(|byte| format!("{byte:02x}")).collect();
    message("Open this address in a browser on this machine, and sign in:");
    message(&format!("{server}/command-line?port={port}&state={state}&challenge={challenge}"));
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
    let code =
        code.map_err(|_| CliError::Unsuccessful).inspect_err(|_| message("Nobody has signed in for 5 minutes."))?;
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

/// Lists the contexts, or makes one of them the current one.
pub(crate) fn context(output: &Output, command: &ContextCommand) -> Result<(), CliError> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::List => {
            let row = |(name, context): (&String, &Context)| {
                let current = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
                vec![Cell::new(current), Cell::new(name), Cell::new(&context.server), Cell::new(&context.actor)]
            };
            let rows: Vec<_> = contexts.contexts.iter().map(row).collect();
            let documents = contexts.contexts.iter().map(|(name, context)| {
                let is_current = contexts.current.as_ref() == Some(name);
                serde_json::json!({ "name": name, "server": context.server, "actor": context.actor, "current": is_current })
            });
            let columns = [
                Column("", 0, Fit::Keep),
                Column("NAME", 0, Fit::Keep),
                Column("SERVER", 0, Fit::Cut),
                Column("SIGNED IN AS", 0, Fit::Cut),
            ];
            output.data(&documents.collect::<Vec<_>>(), || table::render(&columns, &rows, output.style))
        }
        ContextCommand::Use { name } => {
            if !contexts.contexts.contains_key(name) {
                return Err(CliError::Usage(format!("There is no context {name}; rollhook context list shows them.")));
            }
            contexts.current = Some(name.clone());
            contexts.write()?;
            output.line(&format!("Context {} is the current one", escaped(name)))
        }
    }
}
