//! What a person should know of a target's deploys when it is registered: the costs of what was chosen.

use super::{container::Container, creation};
use crate::settings::{Replace, Template, Workload};

/// The notes on a container that exists. A choice that the person made needs none.
pub(crate) fn of_adopted(workload: &Workload, model: &Container, chosen: Option<Replace>) -> Vec<String> {
    let gap = model.sole().or_else(|| model.writes_to().map(writes)).filter(|_| chosen.is_none());
    let is_asked = workload.readiness_path.is_some() || model.health().is_some();
    let unasked = (!is_asked).then(|| {
        format!(
            "{workload} has no health check, and no readiness path was given: a new version counts as ready once it has \
             run for 5 s. A health check of its own says more, and so does app set --readiness-path for an app's first \
             workload."
        )
    });
    gap.map(|why| stops_first(&why)).into_iter().chain(in_turn(model.ports_in_turn())).chain(unasked).collect()
}

/// The notes on a container that is to be made.
pub(crate) fn of_created(template: &Template, chosen: Option<Replace>) -> Vec<String> {
    let gap = creation::sole(template).or_else(|| creation::writes_to(template).map(writes));
    let gap = gap.filter(|_| chosen.is_none()).map(|why| stops_first(&why));
    gap.into_iter().chain(in_turn(creation::in_turn(template))).collect()
}

fn writes(path: &str) -> String {
    format!("it writes to {path}, which two at once may damage")
}

fn stops_first(why: &str) -> String {
    let way = if why.starts_with("port ") {
        " Without a gap: behind a proxy, on a network with it, or by two ports that versions take in turn, such as \
         --publish 127.0.0.1:8081-8082:80."
    } else {
        ""
    };
    format!(
        "Each deploy stops the old container before the new one starts, as {why}. Meanwhile requests fail, and with a \
         version that fails, until the restore is up.{way}"
    )
}

fn in_turn<'a>(ports: impl Iterator<Item = impl AsRef<str> + 'a>) -> impl Iterator<Item = String> {
    ports.map(|ports| {
        let ports = ports.as_ref();
        format!("Versions take the ports {ports} of this machine in turn: the proxy must know them all.")
    })
}
