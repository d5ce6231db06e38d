//! The requirements that an app must meet: its own, and those of its project and its environment.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Requirement;
use crate::text::{hash_of, hex, words};

/// The apps that a requirement is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequirementScope {
    /// All apps of a project.
    Project,
    /// All apps of an environment.
    Environment,
    /// One app.
    App,
}

words! { RequirementScope:
    Project = "project",
    Environment = "environment",
    App = "app",
}

/// A requirement that an app must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Required {
    /// The apps that it is on.
    pub scope: RequirementScope,
    /// The requirement.
    pub requirement: Requirement,
}

/// The hash of a requirement: an entry says by it what its image meets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequirementHash(String);

impl RequirementHash {
    /// Returns the hash of a requirement.
    pub fn of(requirement: &Requirement) -> Self {
        Self(hex(&hash_of([requirement.stored_text().as_str()])))
    }
}

/// The copy that an app has of its project's or environment's requirement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementCopy {
    /// The requirement; `None`: there is none, or none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirement: Option<Requirement>,
    /// The number of the change that it is a copy of: a late copy of an older one is ignored.
    pub sequence: u64,
}

impl RequirementCopy {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The copies that an app has of the requirements on its project and its environment. The app itself changes neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementCopies {
    /// The project's requirement.
    #[serde(default, skip_serializing_if = "RequirementCopy::is_none")]
    pub project: RequirementCopy,
    /// The environment's requirement.
    #[serde(default, skip_serializing_if = "RequirementCopy::is_none")]
    pub environment: RequirementCopy,
}

impl RequirementCopies {
    /// Returns the copies, each with its scope, the widest first.
    fn scoped(&self) -> [(RequirementScope, &RequirementCopy); 2] {
        [(RequirementScope::Project, &self.project), (RequirementScope::Environment, &self.environment)]
    }

    /// Returns whether neither the project nor the environment has ever had a requirement.
    pub fn is_empty(&self) -> bool {
        self.scoped().into_iter().all(|(_, copy)| copy.is_none())
    }

    /// Returns the requirements, the widest first.
    pub fn in_force(&self) -> impl Iterator<Item = (RequirementScope, &Requirement)> {
        self.scoped().into_iter().filter_map(|(scope, copy)| Some((scope, copy.requirement.as_ref()?)))
    }

    /// Takes a copy in the place of the one before, unless that is of a later change. Returns whether it did.
    pub fn take(&mut self, place: ScopedRequirement) -> bool {
        let (present, copy) = match place {
            ScopedRequirement::Project(copy) => (&mut self.project, copy),
            ScopedRequirement::Environment(copy) => (&mut self.environment, copy),
        };
        let is_later = copy.sequence > present.sequence;
        if is_later {
            *present = copy;
        }
        is_later
    }

    /// Returns these requirements and the app's own, the widest first, and each once.
    pub(crate) fn and(&self, own: Option<&Requirement>) -> Vec<Required> {
        let mut all: Vec<Required> = Vec::new();
        for (scope, requirement) in self.in_force().chain(own.map(|own| (RequirementScope::App, own))) {
            if all.iter().all(|required| required.requirement != *requirement) {
                all.push(Required { scope, requirement: requirement.clone() });
            }
        }
        all
    }
}

/// The requirement on a project or an environment, as it is copied into the states of its apps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopedRequirement {
    /// A project's.
    Project(RequirementCopy),
    /// An environment's.
    Environment(RequirementCopy),
}
