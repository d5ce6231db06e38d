//! The plan of a promotion: the image that an app gets, the one that it replaces, or why the app stays as it is.

use rollhook_core::{app::Source, deploy::Revision};
use serde::Serialize;

use crate::{App, Configuration, Deploy};

/// The plan for one app of an environment that is promoted to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The app's name, which is the same in both environments.
    pub app: String,
    /// The image that is promoted.
    pub image: Option<String>,
    /// The revision that runs it.
    #[serde(skip)]
    pub revision: Option<Revision>,
    /// The image that runs in its place now.
    pub present: Option<String>,
    /// Why the app stays as it is; `None`: the image is deployed.
    #[serde(skip)]
    pub skipped: Option<&'static str>,
    /// The names of the variables that the app lacks and the one which is promoted from has, as far as they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_variables: Vec<String>,
}

impl Plan {
    /// Returns the plan for the app of this name, as it is in both environments.
    pub fn of(name: &str, source: Option<&App>, target: Option<&App>) -> Self {
        let (from, to) = (running(source), running(target));
        let image = |deploy: Option<&Deploy>| deploy.and_then(|deploy| deploy.image.clone());
        // The image that runs may be another than the current deploy's, and one that is under way will be.
        let is_steady = target
            .is_some_and(|app| app.unfinished.is_empty() && app.drift.is_none() && app.beside_current().is_none());
        let skipped = match (target, from) {
            (None, _) => Some("there is no such app to promote to"),
            (_, None) => Some("nothing that could be promoted runs"),
            (Some(target), _) if target.source != Source::Image => Some("the app is built from git"),
            _ if is_steady && run_the_same(source, target) => Some("the same image runs already"),
            _ => None,
        };
        let revision = from.map(|deploy| deploy.revision);
        Self {
            app: name.to_owned(),
            image: image(from),
            revision,
            present: image(to),
            skipped,
            missing_variables: Vec::new(),
        }
    }

    /// Returns whether the app may lack variables, so that both configurations are to be compared.
    pub fn compares_variables(&self, source: &App) -> bool {
        self.skipped.is_none() && running(Some(source)).is_some_and(|deploy| deploy.configuration.is_some())
    }
}

/// Returns the names of the variables that a configuration has, and the next deploy with another one lacks.
pub fn missing_variables(source: &Configuration, target: &Configuration) -> Vec<String> {
    let has = target.staged.as_ref().unwrap_or(&target.variables);
    let lacks = |name: &&String| has.iter().all(|has| has.name != **name);
    source.variables.iter().map(|variable| &variable.name).filter(lacks).cloned().collect()
}

/// Returns whether both apps run the same image, as far as their current deploys tell it: by digest, if both are known.
pub fn run_the_same(one: Option<&App>, other: Option<&App>) -> bool {
    running(one).zip(running(other)).is_some_and(|(one, other)| match (&one.digest, &other.digest) {
        (Some(one), Some(other)) => one == other,
        _ => one.image == other.image,
    })
}

fn running(app: Option<&App>) -> Option<&Deploy> {
    app.and_then(|app| app.current.as_ref())
}
