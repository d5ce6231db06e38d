//! What registering an app comes to: which workload it is, and what it runs or is made with.

use crate::{
    app::{App, Source, Workload, WorkloadKind},
    image::ImageRef,
    ports::WorkloadInfo,
    request::{Refusal, Registration},
};

/// Whether an app has no workload and no entry until its first build.
pub fn waits_for_a_build(app: &App) -> bool {
    matches!(app.source, Source::Git(_)) && app.workload.create.is_some()
}

/// Whether an app, as it is, is what a registration asks for.
pub fn made(app: &App, wanted: &Registration) -> bool {
    let name = wanted.workload.as_deref().unwrap_or(wanted.name.as_str());
    let workload = create(wanted, name.to_owned());
    app.source == wanted.source
        && app.policy == wanted.policy
        && wanted.image.is_none()
        && workload.is_ok_and(|(workload, _)| workload == app.workload)
}

/// Whether a workload can have this name: a DNS-1123 subdomain, as Kubernetes wants its objects to be named.
///
/// # Errors
/// [`Refusal::InvalidField`].
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let sound = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(sound);
    if name.len() <= 253 && name.split('.').all(part) {
        return Ok(());
    }
    let rule = "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots.".to_owned();
    Err(Refusal::InvalidField("workload.name", rule))
}

/// Which workload is adopted, and what it runs.
///
/// # Errors
/// The refusal that the caller is answered with.
pub fn adopt(
    wanted: &Registration,
    name: String,
    found: &WorkloadInfo,
) -> Result<(Workload, Option<ImageRef>), Refusal> {
    let what = format!("{} {name}", wanted.kind);
    if let Some(why) = &found.unsupported {
        return Err(Refusal::Workload(format!("{what} cannot be rolled out: {why}")));
    }
    let take_over = match found.stamp {
        Some(stamp) if !wanted.take_over => {
            return Err(Refusal::WorkloadTaken(format!(
                "{what} carries the stamp of another registration ({stamp}). If that one is gone, register with --take-over."
            )));
        }
        stamp => stamp.map(|stamp| stamp.app),
    };
    let containers = containers(wanted, &what, found)?;
    let mut images = found.containers.iter().filter(|container| containers.contains(&container.name));
    let image = images.next().map(|container| container.image.as_str()).unwrap_or_default();
    if let Some(other) = images.find(|container| container.image != image) {
        return Err(Refusal::Workload(format!(
            "{what}: container {} runs {}, another one {image}; an app's containers share one image.",
            other.name, other.image
        )));
    }
    let image: ImageRef = image
        .parse()
        .map_err(|invalid| Refusal::Workload(format!("{what} runs an image that cannot be read: {invalid}")))?;
    Ok((Workload { kind: wanted.kind, name, containers, create: None, take_over }, Some(image.or_latest())))
}

fn containers(wanted: &Registration, what: &str, found: &WorkloadInfo) -> Result<Vec<String>, Refusal> {
    let names: Vec<&str> = found.containers.iter().map(|container| container.name.as_str()).collect();
    let listed = || names.join(", ");
    if let Some(missing) = wanted.containers.iter().find(|container| !names.contains(&container.as_str())) {
        return Err(Refusal::Workload(format!("{what} has no container {missing}; it has: {}.", listed())));
    }
    match names.as_slice() {
        _ if !wanted.containers.is_empty() => Ok(wanted.containers.clone()),
        [only] => Ok(vec![(*only).to_owned()]),
        several if several.contains(&wanted.name.as_str()) => Ok(vec![wanted.name.to_string()]),
        _ => Err(Refusal::Workload(format!("{what} has several containers: say which one to deploy: {}.", listed()))),
    }
}

/// How the workload is made, and with what: for a git app without an image, its first build's.
///
/// # Errors
/// The refusal that the caller is answered with.
pub fn create(wanted: &Registration, name: String) -> Result<(Workload, Option<ImageRef>), Refusal> {
    let what = format!("{} {name}", wanted.kind);
    if wanted.image.is_none() && wanted.source == Source::Image {
        return Err(Refusal::Workload(format!("{what} does not exist; give an image to have a Deployment made.")));
    }
    if wanted.kind != WorkloadKind::Deployment {
        return Err(Refusal::Workload(format!("{what} does not exist, and only a Deployment can be made.")));
    }
    let image = wanted.image.clone();
    if let Some(image) = image.as_ref().filter(|image| image.tag().is_none() && image.digest().is_none()) {
        return Err(Refusal::InvalidField("image", format!("{image} names neither a tag nor a digest.")));
    }
    if wanted.template.readiness_path.is_some() && wanted.template.port.is_none() {
        return Err(Refusal::InvalidField("readiness_path", "needs a port.".to_owned()));
    }
    let containers = match wanted.containers.as_slice() {
        [] => vec![wanted.name.to_string()],
        [one] => vec![one.clone()],
        _ => return Err(Refusal::InvalidField("containers", "a Deployment is made with one container.".to_owned())),
    };
    let create = Some(wanted.template.clone());
    Ok((Workload { kind: wanted.kind, name, containers, create, take_over: None }, image))
}
