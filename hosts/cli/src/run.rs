//! From a parsed command line to an exit code.

use std::process::ExitCode;

use crate::{
    api::Api,
    args::{
        AppCommand, CheckCommand, Cli, Command, Connection, EnvironmentCommand, Follow, Format, ReceiverCommand,
        RequirementCommand, SessionCommand, TokenCommand, TrustCommand, Webhook,
    },
    commands::{
        Session, access, apps, builds, check, config, deploys, image, lock, login, logs, look_up, promotion, receiver,
        report, requirement, runs, scale, session, trust, webhook,
    },
    completion,
    contexts::Contexts,
    direct::Direct,
    exit::{CliError, Exit},
    output::{Output, message},
    remote::Server,
};

/// Runs the command to its end.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let hands_on_code = hands_on_code(&cli.command);
    let has_csv = matches!(cli.command, Command::Activity(_) | Command::Report(_));
    let ended = match cli.command {
        // Said before anything is done.
        _ if cli.output == Format::Csv && !has_csv => {
            Err(CliError::Usage("--output csv is for rollhook activity and rollhook report.".to_owned()))
        }
        Command::Completions { shell } => completion::script(shell),
        command @ (Command::App(_)
        | Command::Environment(_)
        | Command::Requirement(_)
        | Command::Token(_)
        | Command::Session(_)
        | Command::Receiver(_)
        | Command::Activity(_)
        | Command::Report(_)
        | Command::Audit(_)
        | Command::Login(_)
        | Command::Context(_)
        | Command::Whoami) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(Box::pin(perform(&cli.connection, Output::new(cli.output), command))),
                Err(error) => Err(CliError::Other(format!("The runtime does not start: {error}."))),
            }
        }
    };
    match ended {
        Ok(()) => Exit::Done.into(),
        Err(failure) if hands_on_code => failure.of_run().report(),
        Err(failure) => failure.report(),
    }
}

/// Returns whether the exit code is that of a command which was run by hand, so that failures of our own need another.
fn hands_on_code(command: &Command) -> bool {
    matches!(command, Command::App(AppCommand::Run(args)) if !args.detach)
        || matches!(command, Command::App(AppCommand::Runs(args)) if args.follow.is_some())
}

async fn perform(connection: &Connection, output: Output, command: Command) -> Result<(), CliError> {
    match &command {
        Command::Login(args) => return Box::pin(login::login(&output, args)).await,
        Command::Context(command) => return login::context(&output, command),
        Command::App(_)
        | Command::Environment(_)
        | Command::Requirement(_)
        | Command::Token(_)
        | Command::Receiver(_) => {}
        Command::Activity(_)
        | Command::Report(_)
        | Command::Session(_)
        | Command::Audit(_)
        | Command::Whoami
        | Command::Completions { .. } => {}
    }
    if let Some(server) = connection.server.as_deref().filter(|server| !server.is_empty()) {
        let server = Server::new(server)?;
        server.warn_if_unencrypted();
        let api = Api::Server(server);
        return Box::pin(dispatch(&Session { api: &api, direct: None, output }, command)).await;
    }
    // A store or driver that is named is meant; else the server that the person has signed in to.
    if !connection.names_backends()
        && let Some(context) = Contexts::read()?.current()
    {
        let server = Server::new(&context.server)?;
        server.warn_if_unencrypted();
        let session = Session { api: &Api::Server(server), direct: None, output };
        let ended = Box::pin(dispatch(&session, command)).await;
        if let Err(CliError::Problem(problem)) = &ended
            && problem.status == 401
        {
            message(&format!("note: the login may have ended; sign in again with rollhook login {}", context.server));
        }
        return ended;
    }
    log_warnings();
    let direct = Direct::open(connection).await?;
    let session = Session { api: &Api::Local(direct.caller()), direct: Some(&direct), output };
    let ended = Box::pin(dispatch(&session, command)).await;
    direct.close().await;
    if let Err(CliError::Problem(problem)) = &ended
        && problem.slug() == "app-not-found"
    {
        message("note: no --server was given, so the store on this machine was asked (see --store)");
    }
    ended
}

/// Starts logging: only the log reports faults of the backends, and a command that is its own host has no server's log.
fn log_warnings() {
    use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,kube_client=off,kube_runtime=off"));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false).without_time().with_target(false);
    // Reporting a line that could not be written, on the same stderr, would panic: a reader that went away must not end
    // the deploy that is driven here.
    let layer = layer.log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(layer).init();
}

async fn dispatch(session: &Session<'_>, command: Command) -> Result<(), CliError> {
    match command {
        Command::App(command) => Box::pin(app(session, command)).await,
        Command::Requirement(RequirementCommand::Set(args)) => requirement::set(session, &args).await,
        Command::Requirement(RequirementCommand::List) => requirement::list(session).await,
        Command::Requirement(RequirementCommand::Remove(place)) => requirement::remove(session, &place).await,
        Command::Environment(EnvironmentCommand::Lock(args)) => lock::lock_environment(session, &args).await,
        Command::Environment(EnvironmentCommand::Unlock(name)) => lock::unlock_environment(session, &name).await,
        Command::Environment(EnvironmentCommand::Locks) => lock::locked_environments(session).await,
        Command::Token(TokenCommand::Create(args)) => access::create(session, &args).await,
        Command::Token(TokenCommand::List) => access::list(session).await,
        Command::Token(TokenCommand::Revoke(args)) => access::revoke(session, &args).await,
        Command::Session(SessionCommand::List(args)) => session::list(session, &args).await,
        Command::Session(SessionCommand::End(args)) => session::end(session, &args).await,
        Command::Receiver(ReceiverCommand::Add(args)) => receiver::add(session, &args).await,
        Command::Receiver(ReceiverCommand::List) => receiver::list(session).await,
        Command::Receiver(ReceiverCommand::Test(args)) => receiver::test(session, &args).await,
        Command::Receiver(ReceiverCommand::Rotate { receiver, secret_file }) => {
            receiver::rotate(session, &receiver, secret_file.as_deref()).await
        }
        Command::Receiver(ReceiverCommand::Remove(args)) => receiver::remove(session, &args).await,
        Command::Activity(args) => report::activity(session, &args).await,
        Command::Report(args) => report::report(session, &args).await,
        Command::Audit(args) => access::audit(session, &args).await,
        Command::Whoami => access::whoami(session).await,
        Command::Completions { shell } => completion::script(shell),
        Command::Login(args) => login::login(&session.output, &args).await,
        Command::Context(command) => login::context(&session.output, &command),
    }
}

async fn app(session: &Session<'_>, command: AppCommand) -> Result<(), CliError> {
    match command {
        AppCommand::Webhook(Webhook::Enable(target)) => webhook::enable(session, &target).await,
        AppCommand::Webhook(Webhook::Rotate(args)) => webhook::rotate(session, &args).await,
        AppCommand::Webhook(Webhook::Status(args)) => webhook::status(session, &args).await,
        AppCommand::Webhook(Webhook::Calls(target)) => webhook::calls(session, &target).await,
        AppCommand::Webhook(Webhook::Disable(target)) => webhook::disable(session, &target).await,
        AppCommand::Webhook(Webhook::Trust(command)) => match command {
            TrustCommand::Add(args) => trust::add(session, &args).await,
            TrustCommand::List(target) => trust::list(session, &target).await,
            TrustCommand::Remove(args) => trust::remove(session, &args).await,
        },
        AppCommand::History(args) => deploys::history(session, &args).await,
        AppCommand::Rollback(args) => deploys::rollback(session, &args).await,
        AppCommand::Create(args) => Box::pin(apps::create(session, &args)).await,
        AppCommand::List(args) => apps::list(session, &args).await,
        AppCommand::Show(target) => apps::show(session, &target).await,
        AppCommand::Status(target) => apps::status(session, &target).await,
        AppCommand::Image(target) => image::image(session, &target).await,
        AppCommand::Follow(Follow::Explain(target)) => look_up::explain(session, &target).await,
        AppCommand::LookUp(args) => look_up::look_up(session, &args).await,
        AppCommand::Wait(args) => deploys::wait(session, &args).await,
        AppCommand::Set(args) => apps::set(session, &args).await,
        AppCommand::Check(CheckCommand::Add(args)) => check::add(session, &args).await,
        AppCommand::Check(CheckCommand::List(target)) => check::list(session, &target).await,
        AppCommand::Check(CheckCommand::Test(args)) => check::test(session, &args).await,
        AppCommand::Check(CheckCommand::Remove(args)) => check::remove(session, &args).await,
        AppCommand::Config(command) => config::config(session, &command).await,
        AppCommand::Deploy(args) => deploys::deploy(session, &args).await,
        AppCommand::Stop(args) => scale::stop(session, &args).await,
        AppCommand::Start(args) => scale::start(session, &args).await,
        AppCommand::Rebuild(args) => builds::rebuild(session, &args).await,
        AppCommand::Logs(args) => logs::logs(session, &args).await,
        AppCommand::BuildLogs(args) => builds::logs(session, &args).await,
        AppCommand::Run(args) => runs::run(session, &args).await,
        AppCommand::Runs(args) => runs::runs(session, &args).await,
        AppCommand::Cancel(args) => deploys::cancel(session, &args).await,
        AppCommand::Verdict(args) => deploys::decide(session, &args).await,
        AppCommand::Promote(args) => Box::pin(promotion::promote(session, &args)).await,
        AppCommand::ReleaseHold(target) => apps::release_hold(session, &target).await,
        AppCommand::Lock(args) => lock::lock(session, &args).await,
        AppCommand::Unlock(target) => lock::unlock(session, &target).await,
        AppCommand::Delete(args) => apps::delete(session, &args).await,
    }
}
