//! The check of what containers are to be made with, by what is on the machine.

use rollhook_core::{
    Error, Result,
    app::Settings,
    ports::{CheckedSettings, InvalidTarget, SettingsRequest},
};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    disk,
    engine::{Called, Engine, filters, in_path},
    rules::{creation, listed::PublishingContainer, made_with::addresses_meet},
    settings::{MadeWith, Workload},
    target,
};

/// Checks settings, and completes them.
pub(crate) async fn check(engine: &Engine, request: &SettingsRequest) -> Result<CheckedSettings> {
    let workload = Workload::deserialize(&request.target.settings)
        .map_err(|error| Error::corrupt(format!("the target of app {} is not a container", request.app), error))?;
    let checked = match MadeWith::parse(&request.settings) {
        Ok(made_with) => on_machine(engine, &workload, made_with, request).await?,
        Err(invalid) => Err(invalid),
    };
    Ok(checked.map_or_else(CheckedSettings::Invalid, CheckedSettings::Valid))
}

async fn on_machine(
    engine: &Engine,
    workload: &Workload,
    made_with: MadeWith,
    request: &SettingsRequest,
) -> Called<Result<Settings, InvalidTarget>> {
    if let Some(invalid) = made_with.contradiction(workload) {
        return Ok(Err(invalid));
    }
    let mut settings = request.settings.clone();
    if made_with.readiness_path.as_ref().is_some_and(|path| !path.is_empty()) {
        let unreachable = creation::unreachable(&engine.get("/info").await?);
        if let Some(InvalidTarget::Setting { rule, .. }) = unreachable
            && disk::own_container(engine).await?.is_none()
        {
            return Ok(Err(InvalidTarget::setting("settings.readiness_path", rule)));
        }
        if made_with.readiness_port.or(workload.known_port()).is_none() {
            let seen = target::read(engine, workload).await?;
            let Some(port) = seen.model().and_then(|model| model.exposed_port()) else {
                let rule = "needs a port, readiness_port: the container does not expose just one.";
                return Ok(Err(InvalidTarget::setting("settings.readiness_path", rule)));
            };
            settings.insert("readiness_port".to_owned(), port.into());
        }
    }
    if let Some(network) = made_with.network()
        && engine.find_typed::<IgnoredAny>(&format!("/networks/{}", in_path(network))).await?.is_none()
    {
        let rule = "must be a network of this machine: make it first, with docker network create.";
        return Ok(Err(InvalidTarget::setting("settings.network", rule)));
    }
    Ok(match taken_port(engine, workload, made_with.publish.as_deref().unwrap_or_default()).await? {
        Some((port, container)) => {
            // The caller may not know whose it is; the operator may.
            tracing::info!(app = %request.app, port, container, "refused a port that another container has");
            let rule = format!("must be free ports: {port} leads to another container of this machine.");
            Err(InvalidTarget::setting("settings.publish", rule))
        }
        None => Ok(settings),
    })
}

/// Returns a port that cannot be published, and the container of others that runs and has it; `None` if all can be.
async fn taken_port(engine: &Engine, workload: &Workload, publish: &[String]) -> Called<Option<(u16, String)>> {
    for (address, ports, protocol) in creation::published_from(publish) {
        let wanted = format!("{}-{}/{protocol}", ports.start(), ports.end());
        let path = format!("/containers/json?{}", filters(&[("publish", &[wanted])]));
        let found: Vec<PublishingContainer> = engine.typed(&path).await?;
        let mut taken = Vec::new();
        for other in found.iter().filter(|other| !other.is_of(workload)) {
            let bound = other.ports().filter(|bound| bound.protocol == protocol && addresses_meet(&address, &bound.ip));
            let bound = bound.filter_map(|bound| bound.port).filter(|port| ports.contains(port));
            taken.extend(bound.map(|port| (port, other.name().to_owned())));
        }
        taken.sort_unstable();
        taken.dedup_by_key(|(port, _)| *port);
        // Of several, versions take two in turn.
        let wanted = usize::from(ports.start() != ports.end()) + 1;
        if ports.len() < taken.len() + wanted
            && let Some(first) = taken.into_iter().next()
        {
            return Ok(Some(first));
        }
    }
    Ok(None)
}
