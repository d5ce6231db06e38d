//! The settings of a workload that is registered: what is filled in, and what is refused.

use rollhook_core::{
    image::ImageRef,
    ports::{DeployId, InvalidTarget, TargetRequest, Validated},
};

use crate::workload::{Requested, Workload, WorkloadKind, rule};

/// A workload that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkloadInfo {
    /// The names of its containers, without init and sidecar ones, and their images, which may have neither tag nor
    /// digest.
    pub(crate) containers: Vec<(String, String)>,
    /// The deploy id that it carries.
    pub(crate) stamp: Option<DeployId>,
    /// Why it cannot be rolled out at all, such as an `OnDelete` strategy.
    pub(crate) unsupported: Option<String>,
}

/// A registration whose settings were read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    request: &'a TargetRequest,
    requested: Requested,
    /// The name of the workload.
    pub(crate) name: String,
}

impl<'a> Wanted<'a> {
    /// Reads the settings; the workload's name defaults to the app's.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`].
    pub(crate) fn of(request: &'a TargetRequest) -> Result<Self, InvalidTarget> {
        let requested = Requested::parse(&request.settings)?;
        let name = requested.name.clone().unwrap_or_else(|| request.app.name.to_string());
        check_name(&name)?;
        Ok(Self { request, requested, name })
    }

    /// The kind of the workload.
    pub(crate) fn kind(&self) -> WorkloadKind {
        self.requested.kind
    }

    /// The answer, by the workload that was found.
    pub(crate) fn answer(self, found: Option<&WorkloadInfo>) -> Validated {
        match found {
            Some(found) => self.adopt(found),
            None => self.create(),
        }
        .unwrap_or_else(Validated::Invalid)
    }

    fn title(&self) -> String {
        format!("{} {}", self.kind(), self.name)
    }

    fn adopt(self, found: &WorkloadInfo) -> Result<Validated, InvalidTarget> {
        let title = self.title();
        if let Some(why) = &found.unsupported {
            return Err(InvalidTarget::Unusable(format!("{title} cannot be rolled out: {why}")));
        }
        let take_over = match found.stamp {
            Some(stamp) if !self.request.take_over => {
                return Err(InvalidTarget::Taken(format!(
                    "{title} carries the stamp of another registration ({stamp}). If that one is gone, register with \
                     --take-over."
                )));
            }
            stamp => stamp.map(|stamp| stamp.app),
        };
        let containers = self.containers(found)?;
        let image = common_image(&title, &containers, found)?;
        let settings = Workload { kind: self.kind(), name: self.name, containers, template: None }.settings();
        Ok(Validated::Adopt { settings, image, take_over })
    }

    fn containers(&self, found: &WorkloadInfo) -> Result<Vec<String>, InvalidTarget> {
        let title = self.title();
        let names: Vec<&str> = found.containers.iter().map(|(name, _)| name.as_str()).collect();
        let listed = || names.join(", ");
        let wanted = &self.requested.containers;
        if let Some(missing) = wanted.iter().find(|container| !names.contains(&container.as_str())) {
            return Err(InvalidTarget::Unusable(format!("{title} has no container {missing}; it has: {}.", listed())));
        }
        let app = self.request.app.name.as_str();
        match names.as_slice() {
            _ if !wanted.is_empty() => Ok(wanted.clone()),
            [only] => Ok(vec![(*only).to_owned()]),
            several if several.contains(&app) => Ok(vec![app.to_owned()]),
            _ => Err(InvalidTarget::Unusable(format!(
                "{title} has several containers: say which one to deploy: {}.",
                listed()
            ))),
        }
    }

    fn create(self) -> Result<Validated, InvalidTarget> {
        let title = self.title();
        if self.request.image.is_none() && !self.request.built {
            let why = format!("{title} does not exist; give an image to have a Deployment made.");
            return Err(InvalidTarget::Unusable(why));
        }
        if self.kind() != WorkloadKind::Deployment {
            let why = format!("{title} does not exist, and only a Deployment can be made.");
            return Err(InvalidTarget::Unusable(why));
        }
        let Requested { kind, containers, template, .. } = self.requested;
        if template.readiness_path.is_some() && template.port.is_none() {
            return Err(rule("readiness_path", "needs a port."));
        }
        let containers = match containers.as_slice() {
            [] => vec![self.request.app.name.to_string()],
            [_] => containers,
            _ => return Err(rule("containers", "a Deployment is made with one container.")),
        };
        let settings = Workload { kind, name: self.name, containers, template: Some(template) }.settings();
        Ok(Validated::Create { settings })
    }
}

/// The image that all these containers run.
fn common_image(title: &str, containers: &[String], found: &WorkloadInfo) -> Result<ImageRef, InvalidTarget> {
    let mut images = found.containers.iter().filter(|(name, _)| containers.contains(name));
    let image = images.next().map(|(_, image)| image.as_str()).unwrap_or_default();
    if let Some((name, other)) = images.find(|(_, other)| other != image) {
        return Err(InvalidTarget::Unusable(format!(
            "{title}: container {name} runs {other}, another one {image}; an app's containers share one image."
        )));
    }
    image
        .parse()
        .map_err(|invalid| InvalidTarget::Unusable(format!("{title} runs an image that cannot be read: {invalid}")))
}

/// Whether a workload can have this name: a DNS-1123 subdomain, as Kubernetes wants its objects to be named.
fn check_name(name: &str) -> Result<(), InvalidTarget> {
    let sound = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(sound);
    if name.len() <= 253 && name.split('.').all(part) {
        return Ok(());
    }
    Err(rule("workload.name", "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots."))
}

#[cfg(test)]
mod tests;
