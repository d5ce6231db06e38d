//! Receivers of notifications.

use std::{fs, path::Path};

use rollhook_api::{
    AddReceiver, Receiver, RotateReceiver,
    operations::{ListReceivers, RegisterReceiver, RemoveReceiver, ReplaceSecret, TestReceiver},
};
use rollhook_core::text::escaped;

use super::Session;
use crate::{
    args::{AddReceiverArgs, NamedReceiver},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit, Tint},
    when,
};

pub(crate) async fn add(session: &Session<'_>, args: &AddReceiverArgs) -> Result<(), CliError> {
    let kinds =
        [(&args.cdevents, "cdevents"), (&args.slack, "slack"), (&args.github, "github"), (&args.gitlab, "gitlab")];
    let kind = kinds.iter().find(|(given, _)| given.is_some()).map_or("webhook", |(_, kind)| kind);
    let request = AddReceiver {
        name: args.name.to_string(),
        kind: kind.to_owned(),
        url: [&args.webhook, &args.cdevents, &args.api_url].into_iter().find_map(Clone::clone),
        channel: args.slack.clone(),
        repository: args.github.clone().or_else(|| args.gitlab.clone()),
        secret: read_secret(args.secret_file.as_deref())?,
        events: args.events.iter().map(ToString::to_string).collect(),
        project: args.project.as_ref().map(ToString::to_string),
        environment: args.environment.as_ref().map(ToString::to_string),
        app: args.app.as_ref().map(ToString::to_string),
    };
    let added = session.api.call(RegisterReceiver, &(), request).await?;
    if !session.output.format.is_document() {
        let receiver = &added.receiver;
        let (apps, place) = (escaped(&receiver.apps()), escaped(&receiver.place));
        message(&format!("{} is told of {apps} at {place}: {}.", receiver.name, receiver.events.join(", ")));
        if added.secret.is_some() {
            message("The secret of its signatures, which is shown this once:");
        }
        if session.direct.is_some() {
            message("note: a server on this store tells it; this command does not");
        }
    }
    session.output.data(&added, || added.secret.as_ref().map(|secret| format!("{secret}\n")).unwrap_or_default())
}

/// Returns the secret in a file.
pub(super) fn read_secret(file: Option<&Path>) -> Result<Option<String>, CliError> {
    let read = |file: &Path| {
        let text = fs::read_to_string(file);
        let text = text
            .map_err(|error| CliError::Usage(format!("--secret-file: reading {} failed: {error}.", file.display())))?;
        Ok(text.trim().to_owned())
    };
    file.map(read).transpose()
}

pub(crate) async fn rotate(session: &Session<'_>, args: &NamedReceiver, file: Option<&Path>) -> Result<(), CliError> {
    let request = RotateReceiver { secret: read_secret(file)? };
    let rotated = session.api.call(ReplaceSecret, &args.name, request).await?;
    if !session.output.format.is_document() {
        message(&format!("Replaced the secret of {}.", args.name));
        if rotated.secret.is_some() {
            message("The new secret of its signatures, which is shown this once:");
        }
    }
    session.output.data(&rotated, || rotated.secret.as_ref().map(|secret| format!("{secret}\n")).unwrap_or_default())
}

pub(crate) async fn list(session: &Session<'_>) -> Result<(), CliError> {
    let list = session.api.call(ListReceivers, &(), ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("NAME", 0, Fit::Cut),
            Column("KIND", 0, Fit::Drop(2)),
            Column("ON", 0, Fit::Cut),
            Column("PLACE", 0, Fit::Drop(3)),
            Column("EVENTS", 0, Fit::Drop(1)),
            Column("LAST DELIVERY", 0, Fit::Drop(4)),
            Column("STATE", 0, Fit::Cut),
        ];
        let rows: Vec<_> = list.receivers.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

fn row(receiver: &Receiver) -> Vec<Cell> {
    let now = when::now();
    let state = match (receiver.failing_since, &receiver.failure) {
        (Some(since), failure) => {
            let failure = failure.as_deref().unwrap_or("unknown");
            let waiting = receiver.waiting;
            Cell::new(format!("failing since {}: {failure} ({waiting} waiting)", when::absolute(since)))
                .tinted(Some(Tint::Bad))
        }
        (None, _) => Cell::new(if receiver.last_delivered_at.is_some() { "well" } else { "told nothing yet" }),
    };
    vec![
        Cell::new(&receiver.name),
        Cell::new(&receiver.kind),
        Cell::new(receiver.apps()),
        Cell::new(&receiver.place),
        Cell::new(receiver.events.join(",")),
        Cell::optional(receiver.last_delivered_at.map(|at| when::ago(at, now))),
        state,
    ]
}

pub(crate) async fn test(session: &Session<'_>, args: &NamedReceiver) -> Result<(), CliError> {
    let tested = session.api.call(TestReceiver, &args.name, ()).await?;
    if !tested.delivered {
        return Err(CliError::Other(format!("{} has not taken the test: {}.", args.name, escaped(&tested.answer))));
    }
    session.output.line(&format!("{} has taken the test: {}.", args.name, escaped(&tested.answer)))?;
    session.document(&tested)
}

pub(crate) async fn remove(session: &Session<'_>, args: &NamedReceiver) -> Result<(), CliError> {
    session.api.call(RemoveReceiver, &args.name, ()).await?;
    session.output.line(&format!("Removed {}: it is told nothing from now on.", args.name))?;
    session.document(&serde_json::json!({ "removed": args.name }))
}
