//! Requirements on the images of projects and environments.

use std::marker::PhantomData;

use rollhook_api::{
    RequirementOnRealm,
    operations::{EndRequirement, ListRequirements, SetRequirement},
};
use rollhook_core::app::{Environment, Project};

use super::{Session, apps};
use crate::{
    args::{self, RequirementRealm},
    exit::CliError,
    table::{self, Cell, Column, Fit},
    when,
};

pub(crate) async fn set(session: &Session<'_>, args: &args::NewRequirement) -> Result<(), CliError> {
    let request = args.request().map_err(CliError::Usage)?;
    let (project, environment) = (args.realm.project.clone(), args.realm.one());
    let set = match environment {
        Some(environment) => {
            let operation = SetRequirement::<(Project, Environment)>(PhantomData);
            session.api.call(operation, &(project, environment), request).await?
        }
        None => session.api.call(SetRequirement::<Project>(PhantomData), &project, request).await?,
    };
    apps::notes(&set.notes);
    session.output.data(&set, || format!("Images of all apps of {} must be {}\n", args.realm.realm(), set.demands))
}

pub(crate) async fn remove(session: &Session<'_>, args: &RequirementRealm) -> Result<(), CliError> {
    let (project, environment) = (args.project.clone(), args.one());
    if !is_set(session, &project, environment.as_ref()).await? {
        return Err(CliError::Other(format!("No requirement is set on {}.", args.realm())));
    }
    match environment.clone() {
        Some(environment) => {
            let operation = EndRequirement::<(Project, Environment)>(PhantomData);
            session.api.call(operation, &(project.clone(), environment), ()).await?;
        }
        None => session.api.call(EndRequirement::<Project>(PhantomData), &project, ()).await?,
    }
    session.output.line(&format!("Ended the requirement on {}", args.realm()))?;
    let ended = serde_json::json!({ "project": project, "environment": environment, "requirement": null });
    session.document(&ended)
}

/// Returns whether a requirement is set on an environment, or on a whole project. For a caller who may not list them, one may be.
async fn is_set(session: &Session<'_>, project: &Project, environment: Option<&Environment>) -> Result<bool, CliError> {
    let of_realm = |set: &RequirementOnRealm| {
        set.project == project.as_str() && set.environment.as_deref() == environment.map(Environment::as_str)
    };
    match session.api.call(ListRequirements, &(), ()).await {
        Ok(list) => Ok(list.requirements.iter().any(of_realm)),
        Err(CliError::Problem(problem)) if problem.status == 403 => Ok(true),
        Err(error) => Err(error),
    }
}

pub(crate) async fn list(session: &Session<'_>) -> Result<(), CliError> {
    let list = session.api.call(ListRequirements, &(), ()).await?;
    let row = |set: &RequirementOnRealm| {
        vec![
            Cell::new(&set.project),
            Cell::new(set.environment.as_deref().unwrap_or("(all)")),
            Cell::new(set.demands.to_string()),
            Cell::new(&set.by),
            Cell::new(when::absolute(set.at)),
        ]
    };
    session.output.data(&list, || {
        let columns = [
            Column("PROJECT", 0, Fit::Cut),
            Column("ENVIRONMENT", 0, Fit::Cut),
            Column("IMAGES MUST BE", 0, Fit::Cut),
            Column("BY", 0, Fit::Drop(1)),
            Column("SINCE", 0, Fit::Drop(2)),
        ];
        let rows: Vec<_> = list.requirements.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}
