//! Reads a target: its claims and containers.

use std::collections::BTreeSet;

use rollhook_core::{
    Result,
    deploy::Reason,
    ports::{TargetRequest, Validated},
};
use serde_json::Value;

use crate::{
    disk,
    engine::{Called, Engine, filters, in_path},
    error::Failure,
    pulls,
    rules::{
        container::{
            COMPOSE_ONEOFF, COMPOSE_PROJECT, COMPOSE_SERVICE, Claim, Container, DEPLOY, Hosts, KEEPS, REPLACES, Seen,
            Stamp, TARGET,
        },
        creation, fence,
        listed::ListedContainer,
        plan, recreation,
        registration::Registration,
    },
    settings::{Kind, Rollout, Workload},
};

/// Reads the target's claims and containers. Claims go first: a claim is removed only after its container is there.
pub(crate) async fn read(engine: &Engine, workload: &Workload) -> Called<Seen> {
    let claims = claims(engine, workload).await?;
    let ours = [format!("{TARGET}={}", workload.key())];
    let mut ids = list(engine, &[("label", &ours)]).await?;
    let named = match workload.service() {
        Some((project, service)) => {
            let labels = [format!("{COMPOSE_PROJECT}={project}"), format!("{COMPOSE_SERVICE}={service}")];
            list(engine, &[("label", &labels)]).await?
        }
        None => list(engine, &[("name", &[name_pattern(&workload.name)])]).await?,
    };
    ids.extend(named);
    let containers = inspect(engine, ids).await?;
    Ok(Seen { claims, containers: containers.into_iter().filter(|found| belongs(found, workload)).collect() })
}

/// The expression that the names of the target's own container have, also of one that a new one has replaced.
fn name_pattern(name: &str) -> String {
    format!("^/{}(\\.old-[0-9a-f]{{12}})?$", name.replace('.', "\\."))
}

fn belongs(container: &Container, workload: &Workload) -> bool {
    if let Some(target) = container.label(TARGET) {
        return target == workload.key();
    }
    let is_one_off = container.label(COMPOSE_ONEOFF).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    match workload.kind {
        Kind::Container => container.is_named(&workload.name),
        Kind::Compose => !is_one_off,
    }
}

async fn claims(engine: &Engine, workload: &Workload) -> Called<Vec<Claim>> {
    let label = [format!("{TARGET}={}", workload.key())];
    let found = engine.get(&format!("/volumes?{}", filters(&[("label", &label)]))).await?;
    let claim = |volume: &Value| {
        let stamp = Stamp::of(&volume["Labels"])?;
        let keeps = volume["Labels"][KEEPS].as_str().map(str::to_owned);
        let replaces = volume["Labels"][REPLACES].is_string();
        let created_at = volume["CreatedAt"].as_str().unwrap_or_default().to_owned();
        Some(Claim { name: volume["Name"].as_str()?.to_owned(), stamp, keeps, replaces, created_at })
    };
    Ok(found["Volumes"].as_array().into_iter().flatten().filter_map(claim).collect())
}

async fn list(engine: &Engine, narrowed: &[(&str, &[String])]) -> Called<BTreeSet<String>> {
    let path = format!("/containers/json?all=true&{}", filters(narrowed));
    let found: Vec<ListedContainer> = engine.typed(&path).await?;
    Ok(found.into_iter().map(|listed| listed.id).collect())
}

async fn inspect(engine: &Engine, ids: BTreeSet<String>) -> Called<Vec<Container>> {
    let mut containers = Vec::new();
    for id in ids {
        let path = format!("/containers/{}/json", in_path(&id));
        let object = match engine.find(&path).await {
            Ok(Some(object)) => object,
            // A container may go between the list and this.
            Ok(None) => continue,
            // The labels of a step are what a Dockerfile says, and name any target.
            Err(Failure::Large | Failure::TooLarge(_)) if is_build_step(engine, &path).await? => continue,
            Err(failure) => return Err(failure),
        };
        let found = Container { object, is_doubtful: false };
        if !found.is_build_step() {
            let inherited = inherited(engine, &found).await?;
            containers.push(Container::inspected(found.object, inherited.as_ref()));
        }
    }
    Ok(containers)
}

/// Returns whether a container is a step of a build, of what the engine says of its hosts alone.
async fn is_build_step(engine: &Engine, path: &str) -> Called<bool> {
    let found: Option<Hosts> = engine.find_typed(path).await?;
    Ok(found.is_none_or(|found| found.are_of_build_step()))
}

/// The labels of the image of a container that has a deploy id, which tell whether that is the container's own. `None`: the
/// image is gone, as a person removed it by force.
async fn inherited(engine: &Engine, container: &Container) -> Called<Option<Value>> {
    if container.label(DEPLOY).is_none() {
        return Ok(Some(Value::Null));
    }
    let image = pulls::configuration(engine, container.image_id()).await?;
    Ok(image.map(|mut configuration| configuration["Labels"].take()))
}

/// Returns why no container can be made after the one that says how, as its image is gone, or as a variable would be of two
/// parties; `None` if it can be.
pub(crate) async fn unmakeable(engine: &Engine, seen: &Seen, rollout: &Rollout) -> Called<Option<(Reason, String)>> {
    let Some(model) = plan::model(seen, rollout) else { return Ok(None) };
    let Some(defaults) = pulls::configuration(engine, model.image_id()).await? else {
        return Ok(Some((Reason::new(Reason::UNSUPPORTED), model.without_image())));
    };
    let conflict = recreation::conflict(model, &defaults, rollout);
    Ok(conflict.map(|message| (Reason::new(Reason::CONFIGURATION_CONFLICT), message)))
}

/// The container that a restore keeps: what is to run runs.
pub(crate) async fn kept<'a>(engine: &Engine, seen: &'a Seen, rollout: &Rollout) -> Called<Option<&'a Container>> {
    let Some(container) = fence::keepable(seen, rollout) else { return Ok(None) };
    let Some(name) = pulls::local(engine, rollout).await? else { return Ok(None) };
    let image = pulls::find(engine, &name).await?;
    Ok(image.filter(|image| image.id == container.image_id()).map(|_| container))
}

/// Completes the settings of a registration from what exists.
pub(crate) async fn validate(engine: &Engine, request: &TargetRequest) -> Result<Validated> {
    let validated = completed(engine, request).await?;
    let (Validated::Create { settings, .. } | Validated::Adopt { settings, .. }) = &validated else {
        return Ok(validated);
    };
    if !creation::asks_for_a_path(settings) {
        return Ok(validated);
    }
    match creation::unreachable(&engine.get("/info").await?) {
        // A server in a container of this engine reaches the others by their network.
        Some(unreachable) if disk::own_container(engine).await?.is_none() => Ok(Validated::Invalid(unreachable)),
        Some(_) | None => Ok(validated),
    }
}

async fn completed(engine: &Engine, request: &TargetRequest) -> Result<Validated> {
    let registration = match Registration::parse(request) {
        Ok(registration) => registration,
        Err(invalid) => return Ok(Validated::Invalid(invalid)),
    };
    let name = registration.name();
    if registration.kind() != Some(Kind::Compose) {
        let seen = read(engine, &Workload::named(Kind::Container, &name)).await?;
        let exists = !seen.containers.is_empty() || !seen.claims.is_empty();
        if exists || registration.kind().is_some() {
            return Ok(registration.validate(Kind::Container, name, &seen));
        }
    }
    let name = match name.split_once('/') {
        Some(_) => name,
        None => {
            let labels = [format!("{COMPOSE_SERVICE}={name}")];
            let mut services = inspect(engine, list(engine, &[("label", &labels)]).await?).await?;
            // An image may bring such labels to a container that was made for another target.
            services.retain(|service| {
                let project = service.label(COMPOSE_PROJECT);
                project.is_some_and(|project| {
                    belongs(service, &Workload::named(Kind::Compose, format!("{project}/{name}")))
                })
            });
            if services.is_empty() && registration.kind().is_none() {
                return Ok(registration.validate(Kind::Container, name, &Seen::default()));
            }
            match registration.project(&services) {
                Ok(project) => format!("{project}/{name}"),
                Err(invalid) => return Ok(Validated::Invalid(invalid)),
            }
        }
    };
    let seen = read(engine, &Workload::named(Kind::Compose, &name)).await?;
    Ok(registration.validate(Kind::Compose, name, &seen))
}
