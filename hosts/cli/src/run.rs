//! From a parsed command line to an exit code.

use std::process::ExitCode;

use crate::{
    args::{AppCommand, Cli, Command, Connection, Names, Webhook},
    commands::{Session, apps, builds, deploys, webhook},
    direct::Direct,
    exit::Failure,
    output::{Output, message, print},
    remote::Remote,
};

/// Runs the command to its end.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::Completions { shell } => completions(shell),
        Command::App(command) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(Box::pin(app(&cli.connection, Output::new(cli.output), command))),
                Err(error) => Err(Failure::Other(format!("The runtime does not start: {error}."))),
            }
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "rollhook", &mut script);
    print(&String::from_utf8_lossy(&script))
}

async fn app(connection: &Connection, output: Output, command: AppCommand) -> Result<(), Failure> {
    if let Some(server) = connection.server.as_deref().filter(|server| !server.is_empty()) {
        let remote = Remote::new(server)?;
        return Box::pin(dispatch(&Session { operations: &remote, direct: None, output }, command)).await;
    }
    log_warnings();
    let direct = Direct::open(connection).await?;
    let session = Session { operations: &direct.operations(), direct: Some(&direct), output };
    let ended = Box::pin(dispatch(&session, command)).await;
    direct.close().await;
    if let Err(Failure::Problem(problem)) = &ended
        && problem.slug() == "app-not-found"
    {
        message("note: no --server was given, so that the store on this machine was asked (see --store)");
    }
    ended
}

/// What goes wrong underneath is told by the log alone; a command that is its own host has no other place for it.
fn log_warnings() {
    use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,kube_client=off"));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false).without_time().with_target(false);
    // Saying that a line could not be written, to the same stderr, would panic: a reader that went away must not end
    // the deploy that is driven here.
    let layer = layer.log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(layer).init();
}

async fn dispatch(session: &Session<'_>, command: AppCommand) -> Result<(), Failure> {
    let id = |names: Names| names.id();
    match command {
        AppCommand::Webhook(Webhook::Enable(target)) => webhook::enable(session, target.names()).await,
        AppCommand::Webhook(Webhook::Status(target)) => webhook::status(session, &id(target.names())?).await,
        AppCommand::Webhook(Webhook::Disable(target)) => webhook::disable(session, &id(target.names())?).await,
        AppCommand::History(args) => deploys::history(session, &id(args.target.names())?, args.limit as usize).await,
        AppCommand::Rollback(args) => deploys::rollback(session, &id(args.target.names())?, &args).await,
        AppCommand::Create(args) => apps::create(session, &args).await,
        AppCommand::List(args) => apps::list(session, &args).await,
        AppCommand::Show(target) => apps::show(session, &id(target.names())?).await,
        AppCommand::Set(args) => apps::set(session, &id(args.target.names())?, &args).await,
        AppCommand::Deploy(args) => deploys::deploy(session, &id(args.target.names())?, &args).await,
        AppCommand::Rebuild(args) => builds::rebuild(session, &id(args.target.names())?, &args).await,
        AppCommand::BuildLogs(args) => builds::logs(session, &id(args.target.names())?, &args).await,
        AppCommand::Cancel(args) => deploys::cancel(session, &id(args.target.names())?, args.revision).await,
        AppCommand::Promote(args) => deploys::promote(session, &id(args.target.names())?, &args).await,
        AppCommand::ReleaseHold(target) => apps::release_hold(session, &id(target.names())?).await,
        AppCommand::Delete(args) => apps::delete(session, &id(args.target.names())?, args.yes).await,
    }
}
