//! The checks of an app.

use rollhook_api::{
    Check, TestedCheck, check_setting_text,
    operations::{ListChecks, PutCheck, RemoveCheck, TestCheck},
};
use rollhook_core::{check::Verdict, text::escaped};

use super::{Session, receiver::read_secret};
use crate::{
    args::{AddCheck, NamedCheck, Target},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit},
};

pub(crate) async fn add(session: &Session<'_>, args: &AddCheck) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    let secret = read_secret(args.secret_file.as_deref())?;
    let check = session.api.call(PutCheck, &(id.clone(), args.name.clone()), args.request(secret)).await?;
    if !session.output.format.is_document() {
        message(&format!(
            "Set the check {} of {id}. Try it out: rollhook app check test {} {}",
            check.name, id.name, check.name
        ));
    }
    session.output.data(&check, || settings(&check))
}

/// Returns a check with all of its settings, a line each.
fn settings(check: &Check) -> String {
    let mut lines = vec![
        ("name".to_owned(), check.name.clone()),
        ("kind".to_owned(), check.kind.clone()),
        ("mode".to_owned(), check.mode.to_string()),
        ("every".to_owned(), check.every.clone()),
        ("failures".to_owned(), check.failures.to_string()),
        ("timeout".to_owned(), check.timeout.clone()),
        ("without-verdict".to_owned(), check.without_verdict.to_string()),
    ];
    lines.extend(check.settings.iter().map(|(name, value)| (name.replace('_', "-"), check_setting_text(value))));
    let line = |(name, value): &(String, String)| format!("{:<16} {}\n", escaped(name), escaped(value));
    lines.iter().map(line).collect()
}

pub(crate) async fn list(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    let list = session.api.call(ListChecks, &id, ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("NAME", 0, Fit::Cut),
            Column("KIND", 0, Fit::Drop(3)),
            Column("MODE", 0, Fit::Keep),
            Column("EVERY", 0, Fit::Drop(1)),
            Column("FAILURES", 0, Fit::Drop(1)),
            Column("WITHOUT VERDICT", 0, Fit::Drop(2)),
            Column("MEASURES", 0, Fit::Cut),
        ];
        let rows: Vec<_> = list.checks.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

fn row(check: &Check) -> Vec<Cell> {
    vec![
        Cell::new(&check.name),
        Cell::new(&check.kind),
        Cell::new(check.mode.to_string()),
        Cell::new(&check.every),
        Cell::new(check.failures.to_string()),
        Cell::new(check.without_verdict.to_string()),
        Cell::optional(["url", "command"].iter().find_map(|name| check.settings.get(*name)).map(check_setting_text)),
    ]
}

pub(crate) async fn test(session: &Session<'_>, args: &NamedCheck) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    let tested = session.api.call(TestCheck, &(id, args.name.clone()), ()).await?;
    session.output.data(&tested, || measured(&tested))?;
    match tested.verdict {
        Verdict::Pass => Ok(()),
        Verdict::Fail => Err(CliError::Other(format!("{} does not pass.", args.name))),
        Verdict::None => Err(CliError::Other(format!("{} comes to no verdict.", args.name))),
    }
}

fn measured(tested: &TestedCheck) -> String {
    let samples = tested.samples.map(|samples| samples.to_string());
    let lines = [
        ("request", Some(&tested.request)),
        ("condition", Some(&tested.condition)),
        ("value", tested.value.as_ref()),
        ("samples", samples.as_ref()),
        ("verdict", Some(&tested.verdict.to_string())),
        ("message", Some(&tested.message)),
    ]
    .map(|(name, value)| value.map(|value| format!("{name:<9} {}\n", escaped(value))));
    lines.into_iter().flatten().collect()
}

pub(crate) async fn remove(session: &Session<'_>, args: &NamedCheck) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    session.api.call(RemoveCheck, &(id.clone(), args.name.clone()), ()).await?;
    session.output.line(&format!("Removed the check {} of {id}.", args.name))?;
    session.document(&serde_json::json!({ "removed": args.name }))
}
