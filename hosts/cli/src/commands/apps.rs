//! Registering, listing, showing, changing and removing apps.

use std::collections::BTreeMap;

use rollhook_api::{
    App, AppPatch, CreateApp, Deploy, Rebuild, WorkloadPatch,
    operations::{ChangeApp, DeleteApp, DeployQuery, RebuildApp, RegisterApp, ReleaseHold, ShowApp, ShowDeploy},
};
use rollhook_core::{
    app::{AppId, Namespace, Settings},
    text::escaped,
};
use serde_json::Value;

use super::{
    Session,
    config::{keep_commands, make_with},
    deploys::image,
    lock::described,
    outcome::succeeded,
};
use crate::{
    apps,
    args::{Create, Delete, KeyValue, List, NamedCommand, Set, Target, WorkloadName, flags},
    confirm::confirm,
    exit::CliError,
    history::{checks, summary, what},
    output::message,
    when,
};

pub(crate) async fn create(session: &Session<'_>, args: &Create) -> Result<(), CliError> {
    let id = args.target.id()?;
    let request = request(args)?;
    session.drive()?;
    let mut registered = session.api.call(RegisterApp, &(), request).await?;
    let workload = escaped(&apps::title(&registered.app, " "));
    let revision = match &registered.deploy {
        Some(deploy) => {
            let (image, revision) = (what(deploy), deploy.revision);
            let how = if registered.adopted { "which runs" } else { "to be made with" };
            session.output.line(&format!("Registered {id}: {workload}, {how} {image}, is revision {revision}"))?;
            if !registered.ignored.is_empty() {
                let ignored: Vec<&str> = registered.ignored.iter().map(String::as_str).collect();
                let flags = escaped(&flags(&ignored));
                message(&format!("note: {workload} exists, and stays as it is; not used: {flags}"));
            }
            notes(&registered.notes);
            revision
        }
        None => {
            session
                .output
                .line(&format!("Registered {id}: {workload}, to be made by the first build that succeeds"))?;
            notes(&registered.notes);
            if args.no_build {
                return session.document(&registered);
            }
            match build_head(session, &id).await {
                Ok(deploy) => registered.deploy.insert(deploy).revision,
                Err(failure) => {
                    session.document(&registered)?;
                    let (app, project, environment) =
                        (&args.target.app, &args.target.project, &args.target.environment);
                    message(&format!(
                        "The app is registered. To build it: rollhook app rebuild {app} --project {project} \
                         --environment {environment}"
                    ));
                    return Err(failure);
                }
            }
        }
    };
    let ended = session.wait_for_end(&id, revision, args.wait).await?;
    if let Some(ended) = &ended {
        registered.app = session.api.call(ShowApp, &id, ()).await?;
        registered.deploy = Some(ended.clone());
    }
    session.document(&registered)?;
    succeeded(ended.as_ref())
}

pub(super) fn notes(notes: &[String]) {
    for note in notes {
        message(&format!("note: {}", escaped(note)));
    }
}

/// Begins the first build of a git app.
async fn build_head(session: &Session<'_>, id: &AppId) -> Result<Deploy, CliError> {
    let answer = session.api.call(RebuildApp, id, Rebuild::default()).await?;
    session.output.line(&format!("Building {} for {id}: revision {}", image(&answer), answer.revision))?;
    session.api.call(ShowDeploy, &(id.clone(), answer.revision), DeployQuery::default()).await
}

/// Returns the command of the first container, and the further workloads, of which those with a command are made.
fn commands(
    args: &Create,
    first: Option<&WorkloadName>,
    further: &[WorkloadName],
) -> Result<(Option<Value>, Vec<Value>), CliError> {
    let first = first.and_then(|first| first.name.as_deref()).unwrap_or(args.target.app.as_str());
    let mut commands: BTreeMap<&str, &NamedCommand> = BTreeMap::new();
    for command in &args.template.commands {
        if commands.insert(&command.name, command).is_some() {
            return Err(CliError::Usage(format!("--command: {} has two.", command.name)));
        }
    }
    let mut take = |name: &str| commands.remove(name).map(|command| Value::from(command.words.clone()));
    let command = take(first);
    let also = further.iter().map(|one| one.listed(take(one.name.as_deref().unwrap_or_default()))).collect();
    match commands.keys().next() {
        None => Ok((command, also)),
        Some(name) => Err(CliError::Usage(format!("--command: no --workload is named {name}."))),
    }
}

fn request(args: &Create) -> Result<CreateApp, CliError> {
    let target = &args.target;
    let template = &args.template;
    let pairs = |given: &[KeyValue]| -> Option<Value> {
        let pairs = given.iter().map(|pair| (pair.name.clone(), Value::from(pair.value.clone())));
        (!given.is_empty()).then(|| Value::Object(pairs.collect()))
    };
    let texts = |given: &[String]| (!given.is_empty()).then(|| given.to_vec().into());
    let (first, further) = WorkloadName::list(&args.workloads).map_err(|why| CliError::Usage(why.to_owned()))?;
    let (command, also) = commands(args, first, further)?;
    Ok(CreateApp {
        project: target.project.to_string(),
        environment: target.environment.to_string(),
        app: target.app.to_string(),
        git: args.git.choice().map_err(|why| CliError::Usage(why.to_owned()))?,
        workload: settings([
            ("kind", first.map(|workload| workload.kind.into())),
            ("name", first.and_then(|workload| workload.name.clone()).map(Value::from)),
            ("also", (!also.is_empty()).then(|| also.into())),
            ("containers", texts(&args.containers)),
            ("replace", args.replace.clone().map(Value::from)),
        ]),
        image: template.image.as_ref().map(ToString::to_string),
        template: settings([
            ("command", command),
            ("replicas", template.replicas.map(Value::from)),
            ("port", template.port.map(Value::from)),
            ("env", pairs(&template.env)),
            ("env_from_secrets", texts(&template.env_from_secrets)),
            ("pull_secret", template.pull_secret.clone().map(Value::from)),
            ("readiness_path", template.readiness_path.clone().map(Value::from)),
            ("publish", texts(&template.publish)),
            ("volumes", texts(&template.volumes)),
            ("network", template.network.clone().map(Value::from)),
            ("labels", pairs(&template.labels)),
            ("memory", template.memory.clone().map(Value::from)),
            ("cpu", template.cpu.clone().map(Value::from)),
            ("pod_security", template.pod_security.clone().map(Value::from)),
        ]),
        policy: args.policy.patch_with_keys().map_err(CliError::Usage)?,
        take_over: args.take_over,
        adopt: args.adopt,
    })
}

/// Returns the settings that have a value.
fn settings<const N: usize>(given: [(&str, Option<Value>); N]) -> Settings {
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(crate) async fn list(session: &Session<'_>, args: &List) -> Result<(), CliError> {
    let namespace = match (&args.project, &args.environment) {
        (Some(project), Some(environment)) => Some(Namespace::of(project, environment)?),
        (Some(_), None) | (None, _) => None,
    };
    let wanted = |app: &App| {
        args.project.as_ref().is_none_or(|project| project.as_str() == app.project)
            && args.environment.as_ref().is_none_or(|environment| environment.as_str() == app.environment)
    };
    let mut list = session.apps(namespace).await?;
    list.apps.retain(wanted);
    for app in &list.unreadable {
        message(&format!("note: {app} is stored, and cannot be read; the log says why"));
    }
    let style = session.output.style;
    session.output.list(&list, || apps::table(&list.apps, when::now(), style), || apps::wide(&list.apps, style))
}

pub(crate) async fn show(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let app = session.app(target).await?;
    session.output.data(&app, || apps::details(&app, when::now()))
}

/// Prints the current version, what is known of its target, and a line for each deploy that is under way or that failed since.
pub(crate) async fn status(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let app = session.app(target).await?;
    let id = target.id()?;
    let mut revisions = app.unfinished.clone();
    revisions.extend(app.beside_current().map(|deploy| deploy.revision));
    revisions.extend(app.ended_off_cluster().map(|deploy| deploy.revision));
    revisions.sort();
    revisions.dedup();
    let mut others = Vec::new();
    for revision in revisions {
        others.push(session.api.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?);
    }
    session.output.data(&app, || {
        let now = when::now();
        let is_known_to_run =
            app.stopped.is_none() && app.drift.is_none() && app.degraded.is_none() && others.is_empty();
        let runs = match &app.current {
            Some(current) => {
                let verb = if is_known_to_run { "runs" } else { "has as its current version" };
                let since = when::ago(current.created_at, now);
                format!("{id} {verb} {} (revision {}, {since})\n", what(current), current.revision)
            }
            None => format!("{id} runs nothing that rollhook has deployed\n"),
        };
        let measured: String = app.current.iter().flat_map(checks).map(|line| format!("{line}\n")).collect();
        let drift = app.drift.as_ref().map(|drift| format!("{}\n", escaped(&drift.message))).unwrap_or_default();
        let degraded = app.degraded.as_ref().map(|degraded| escaped(&apps::trouble(degraded, now)));
        let degraded = degraded.map(|trouble| format!("Degraded {trouble}\n")).unwrap_or_default();
        let stopped = app.stopped.as_ref().map(|stopped| escaped(&apps::stopped_since(stopped, now)));
        let stopped = stopped.map(|stopped| format!("Stopped {stopped}\n")).unwrap_or_default();
        let locks = app.locks.iter().map(|lock| format!("Locked {}\n", escaped(&described(lock))));
        let others =
            others.iter().map(|deploy| format!("{} ({})\n", summary(deploy), when::ago(deploy.created_at, now)));
        format!("{runs}{measured}{stopped}{drift}{degraded}{}{}", locks.collect::<String>(), others.collect::<String>())
    })
}

/// Returns the workloads beside the first one, which stays, if the flags list any.
async fn further(session: &Session<'_>, args: &Set) -> Result<Option<Vec<Value>>, CliError> {
    let (first, also) = WorkloadName::list(&args.workloads).map_err(|why| CliError::Usage(why.to_owned()))?;
    let Some(first) = first else { return Ok(None) };
    let app = session.app(&args.target).await?;
    let text = |name: &str| app.workload.get(name).and_then(Value::as_str).unwrap_or_default();
    if !first.is(text("kind"), text("name")) {
        let why = format!(
            "--workload: the first one stays {}, and was given as {first}; another one is another app.",
            apps::first(&app.workload, "/")
        );
        return Err(CliError::Usage(why));
    }
    let listed = app.workload.get("also").and_then(Value::as_array);
    let listed: Vec<&Settings> = listed.into_iter().flatten().filter_map(Value::as_object).collect();
    // The command of a container that the app has made stays its own.
    let command = |one: &WorkloadName| {
        let text =
            |known: &Settings, name: &str| known.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let known = listed.iter().find(|known| one.is(&text(known, "kind"), &text(known, "name")));
        known.and_then(|known| known.get("command").cloned())
    };
    Ok(Some(also.iter().map(|one| one.listed(command(one))).collect()))
}

pub(crate) async fn set(session: &Session<'_>, args: &Set) -> Result<(), CliError> {
    let also = further(session, args).await?;
    let patch = AppPatch {
        policy: args.policy.patch_with_keys().map_err(CliError::Usage)?,
        source: args.git.patch(),
        workload: WorkloadPatch { also },
        take_over: args.take_over,
    };
    let mut made_with = args.made_with.settings().map_err(CliError::Usage)?;
    let when = &args.made_with.when;
    if made_with.is_empty() && (when.staged || when.wait.wait || when.break_glass.is_some()) {
        let why = "--staged, --wait and --break-glass are for what the container is made with, such as --memory 1g.";
        return Err(CliError::Usage(why.to_owned()));
    }
    if patch == AppPatch::default() {
        if !made_with.is_empty() {
            if args.made_with.keeps_commands() {
                keep_commands(session, &args.target, &mut made_with).await?;
            }
            return make_with(session, &args.target, when, made_with).await;
        }
        return Err(CliError::Usage("Say what to change, such as --settle 30s; see --help.".to_owned()));
    }
    if !made_with.is_empty() {
        let why =
            "What the container is made with is a revision, and the rest is not: change each by a command of its own.";
        return Err(CliError::Usage(why.to_owned()));
    }
    let changes_source = !patch.source.is_empty();
    let changes_workload = patch.take_over || !patch.workload.is_empty();
    let app = session.api.call(ChangeApp, &session.find(&args.target).await?, patch).await?;
    notes(&app.notes);
    session.output.data(&app, || {
        let source = if changes_source { apps::source_lines(&app.source) } else { String::new() };
        let workload = if changes_workload { apps::workload_lines(&app) } else { String::new() };
        workload + &source + &apps::policy_lines(&app.policy)
    })
}

pub(crate) async fn release_hold(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    let app = session.api.call(ReleaseHold, &id, ()).await?;
    session.output.data(&app, || format!("Released: nothing of {id} is held any more\n"))
}

pub(crate) async fn delete(session: &Session<'_>, args: &Delete) -> Result<(), CliError> {
    let id = args.target.id()?;
    if !args.yes {
        confirm(&format!("Remove {id} with its token and its history? Its workload stays as it is."))?;
    }
    session.find(&args.target).await?;
    session.api.call(DeleteApp, &id, ()).await?;
    session.output.line(&format!("Removed {id}; its workload stays as it is"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args;

    #[test]
    fn flags_become_the_request() {
        let line = "rollhook app create api --project shop --environment test --workload statefulset/api-db \
                    --container web --container worker --image r.example.com/api:1 --replicas 3 --port 8080 \
                    --env A=1 --env B=x=y --env-from-secret api-env \
                    --pull-secret regcred --readiness-path /healthz --take-over \
                    --on-failure leave --settle 0s --hold all --rollout-deadline 5m --repository r.example.com/api \
                    --repository r.example.com/base/*";
        let cli = args::Cli::try_parse_from(line.split_whitespace()).unwrap();
        let args::Command::App(args::AppCommand::Create(create)) = cli.command else { panic!("not create") };
        insta::assert_json_snapshot!(request(&create).unwrap());
        assert!(request(&create).unwrap().parse().is_ok());
    }

    fn workload_of(flags: &str) -> Result<Value, CliError> {
        let line = format!("rollhook app create api --project shop --environment test {flags}");
        let cli = args::Cli::try_parse_from(line.split_whitespace()).unwrap();
        let args::Command::App(args::AppCommand::Create(create)) = cli.command else { panic!("not create") };
        Ok(Value::Object(request(&create)?.workload))
    }

    #[test]
    fn workloads_keep_their_order() {
        let flags = "--workload deployment/web --workload +deployment/worker --workload cronjob/nightly:app,copy";
        let also = serde_json::json!(["+Deployment/worker", "CronJob/nightly:app,copy"]);
        let expected = serde_json::json!({ "kind": "Deployment", "name": "web", "also": also });
        assert_eq!(workload_of(flags).ok().unwrap(), expected);
        let flags = "--workload container/web --workload +container/worker --workload container/found \
                     --command worker=bin/jobs --command web=bin/server";
        let also = serde_json::json!([
            { "kind": "container", "name": "worker", "together": true, "command": ["bin/jobs"] }, "container/found"
        ]);
        assert_eq!(workload_of(flags).ok().unwrap()["also"], also);
        for wrong in ["--command other=x", "--command api=x --command api=y"] {
            assert!(workload_of(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["--workload +deployment/web", "--workload deployment/web:app", "--workload deployment --workload cronjob"]
        {
            assert!(workload_of(wrong).is_err(), "{wrong}");
        }
    }
}
