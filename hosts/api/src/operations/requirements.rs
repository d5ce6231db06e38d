//! Requirements on the images of projects and environments.

use std::marker::PhantomData;

use rollhook_core::app::{Environment, Project};
use rollhook_management::{Refusal, access::Realm};

use crate::{
    Local, Operation, RequirementList, RequirementOnRealm, RequirementRequest,
    endpoint::{Endpoint, Subject},
};

/// The apps that a requirement is on: those of a project, or of one of its environments.
pub trait RequirementSubject: Subject + 'static {
    /// The endpoint that sets the requirement.
    const SET: Endpoint;
    /// The endpoint that ends it.
    const END: Endpoint;

    /// Returns the realm.
    fn realm(&self) -> Realm;
}

impl RequirementSubject for Project {
    const SET: Endpoint = Endpoint::new(
        "PUT",
        "/api/v1/requirements/{project}",
        200,
        "Require that the images of all apps of a project are signed",
    );
    const END: Endpoint =
        Endpoint::delete("/api/v1/requirements/{project}", "End the requirement on a project; others stay");

    fn realm(&self) -> Realm {
        Realm::Project { project: self.clone() }
    }
}

impl RequirementSubject for (Project, Environment) {
    const SET: Endpoint = Endpoint::new(
        "PUT",
        "/api/v1/requirements/{project}/{environment}",
        200,
        "Require that the images of all apps of an environment are signed",
    );
    const END: Endpoint = Endpoint::delete(
        "/api/v1/requirements/{project}/{environment}",
        "End the requirement on an environment; others stay",
    );

    fn realm(&self) -> Realm {
        Realm::Environment { project: self.0.clone(), environment: self.1.clone() }
    }
}

/// Sets the requirement on the images of a project or an environment.
pub struct SetRequirement<S>(pub PhantomData<S>);

impl<S: RequirementSubject> Operation for SetRequirement<S> {
    type Subject = S;
    type Input = RequirementRequest;
    type Answer = RequirementOnRealm;

    const ENDPOINT: Endpoint = S::SET;

    async fn perform(caller: &Local, subject: &S, request: RequirementRequest) -> Result<RequirementOnRealm, Refusal> {
        let requirement = request.parse()?;
        let set = caller.management.set_requirement(&caller.principal, &subject.realm(), requirement).await?;
        Ok(RequirementOnRealm::of(&set))
    }
}

/// Ends the requirement on a project or an environment.
pub struct EndRequirement<S>(pub PhantomData<S>);

impl<S: RequirementSubject> Operation for EndRequirement<S> {
    type Subject = S;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint = S::END;

    async fn perform(caller: &Local, subject: &S, (): ()) -> Result<(), Refusal> {
        caller.management.end_requirement(&caller.principal, &subject.realm()).await
    }
}

/// Lists the requirements on projects and environments.
pub struct ListRequirements;

impl Operation for ListRequirements {
    type Subject = ();
    type Input = ();
    type Answer = RequirementList;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/requirements", "The requirements on the projects and environments that you may set");

    async fn perform(caller: &Local, _: &(), (): ()) -> Result<RequirementList, Refusal> {
        let requirements = caller.management.requirements(&caller.principal).await?;
        Ok(RequirementList { requirements: requirements.iter().map(RequirementOnRealm::of).collect() })
    }
}
