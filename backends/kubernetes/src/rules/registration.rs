//! The settings of a workload that is registered: completed from the workload as it is, or refused.

use rollhook_core::{
    app::{AppId, Settings},
    image::ImageRef,
    ports::{InvalidTarget, TargetRequest, Validated},
};

use super::{
    image_owners,
    object::{Object, STAMP, Stamp},
};
use crate::workload::{PodSecurity, RequestedSettings, Workload, WorkloadKind};

/// A registration whose settings were read.
#[derive(Clone, Debug)]
pub(crate) struct Registration<'a> {
    request: &'a TargetRequest,
    requested: RequestedSettings,
    /// The name of the workload.
    pub(crate) name: String,
}

impl<'a> Registration<'a> {
    /// Reads the settings; the workload's name defaults to the app's.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`].
    pub(crate) fn parse(request: &'a TargetRequest) -> Result<Self, InvalidTarget> {
        let requested = RequestedSettings::parse(&request.settings)?;
        let name = requested.name.clone().unwrap_or_else(|| request.app.name.to_string());
        if !is_name(&name) {
            return Err(InvalidTarget::setting("workload.name", NAME_RULE));
        }
        Ok(Self { request, requested, name })
    }

    /// The kind of the workload.
    pub(crate) fn kind(&self) -> WorkloadKind {
        self.requested.kind
    }

    /// The completed settings, or the refusal; `workload` is `None` if it does not exist.
    pub(crate) fn validate(self, workload: Option<&Object>) -> Validated {
        let validated = match (self.taken(), workload) {
            (Some(taken), _) => Err(taken),
            (None, Some(workload)) => self.adopt(workload),
            (None, None) => self.create(),
        };
        validated.unwrap_or_else(Validated::Invalid)
    }

    /// The refusal of a workload that another app names. Its stamp does not tell as long as neither was deployed.
    fn taken(&self) -> Option<InvalidTarget> {
        let is_same = |(app, settings): &&(AppId, Settings)| {
            RequestedSettings::named(settings).is_some_and(|other| {
                let name = other.name.as_deref().unwrap_or(app.name.as_str());
                (other.kind, name) == (self.kind(), self.name.as_str())
            })
        };
        let (other, _) = self.request.others.iter().filter(|_| !self.request.take_over).find(is_same)?;
        let title = format!("{} {}", self.kind(), self.name);
        Some(InvalidTarget::Taken(format!(
            "{title} is the workload of the app {other}. Name another one, or register with --take-over: then {other} is \
             refused from the first deploy on."
        )))
    }

    fn adopt(self, workload: &Object) -> Result<Validated, InvalidTarget> {
        let title = workload.title();
        let stamp = workload.stamp();
        let unreadable = match &stamp {
            Stamp::Unreadable(text) => Some(format!("its annotation {STAMP}={text:?} is not rollhook's: remove it")),
            Stamp::Absent | Stamp::Deploy(_) => None,
        };
        if let Some(why) = workload.unsupported().or(unreadable) {
            return Err(InvalidTarget::Unusable(format!("{title} cannot be rolled out: {why}")));
        }
        let take_over = match stamp.id().filter(|id| self.request.is_foreign(id.app)) {
            Some(id) if !self.request.take_over => {
                return Err(InvalidTarget::Taken(format!(
                    "{title} carries the stamp of another registration ({id}). If that one is gone, register with \
                     --take-over."
                )));
            }
            id => id.map(|id| id.app),
        };
        let containers = self.containers(workload)?;
        let image = common_image(&containers, workload)?;
        let stops_first = workload.stops_first().then(|| {
            format!("{title} ends its old pods before a new one is ready: the app is down meanwhile, and a version that ends, or is not ready in the app's time for that, fails and is put right.")
        });
        let notes = image_owners::notes(workload, &containers).into_iter().chain(stops_first).collect();
        let unused = self.request.of_creation();
        let (kind, is_registered) = (self.kind(), self.request.registered.is_some());
        let template = Some(self.requested.template).filter(|_| is_registered && !unused.is_empty());
        let settings = Workload { kind, name: self.name, containers, template }.settings();
        Ok(Validated::Adopt { settings, image, take_over, unused, notes })
    }

    /// The containers to deploy: those that are requested, init containers among them, else the only one, else the one
    /// that is named like the app.
    fn containers(&self, workload: &Object) -> Result<Vec<String>, InvalidTarget> {
        let title = workload.title();
        let names: Vec<&str> = workload.containers().iter().map(|container| container.name.as_str()).collect();
        let listed = || names.join(", ");
        let requested = &self.requested.containers;
        if let Some(missing) = requested.iter().find(|container| workload.container(container).is_none()) {
            let init = workload.init_containers().iter().map(|container| container.name.as_str());
            let all = names.iter().copied().chain(init).collect::<Vec<_>>().join(", ");
            return Err(InvalidTarget::Unusable(format!("{title} has no container {missing}; it has: {all}.")));
        }
        if !requested.is_empty() && !requested.iter().any(|container| names.contains(&container.as_str())) {
            let why = "an init container is deployed with the container that runs after it: name one of";
            return Err(InvalidTarget::Unusable(format!("{title}: {why} {} too.", listed())));
        }
        let app = self.request.app.name.as_str();
        match names.as_slice() {
            _ if !requested.is_empty() => Ok(requested.clone()),
            [only] => Ok(vec![(*only).to_owned()]),
            several if several.contains(&app) => Ok(vec![app.to_owned()]),
            _ => Err(InvalidTarget::Unusable(format!(
                "{title} has several containers: say which one to deploy: {}.",
                listed()
            ))),
        }
    }

    fn create(self) -> Result<Validated, InvalidTarget> {
        let title = format!("{} {}", self.kind(), self.name);
        if self.request.image.is_none() && !self.request.built {
            let why = format!("{title} does not exist; give an image to have a Deployment made.");
            return Err(InvalidTarget::Unusable(why));
        }
        if self.kind() != WorkloadKind::Deployment {
            let why = format!("{title} does not exist, and only a Deployment can be made.");
            return Err(InvalidTarget::Unusable(why));
        }
        let RequestedSettings { kind, containers, template, .. } = self.requested;
        if template.readiness_path.is_some() && template.port.is_none() {
            return Err(InvalidTarget::setting("readiness_path", "needs a port."));
        }
        template.check()?;
        if template.env_from_secrets.iter().any(|name| !is_name(name)) {
            return Err(InvalidTarget::setting("template.env_from_secrets", NAME_RULE));
        }
        let containers = match containers.as_slice() {
            [] => vec![self.request.app.name.to_string()],
            [_] => containers,
            _ => return Err(InvalidTarget::setting("containers", "a Deployment is made with one container.")),
        };
        let notes = match template.pod_security {
            PodSecurity::Restricted => vec![RESTRICTED.to_owned()],
            PodSecurity::Baseline => Vec::new(),
        };
        let settings = Workload { kind, name: self.name, containers, template: Some(template) }.settings();
        Ok(Validated::Create { settings, take_over: None, notes })
    }
}

/// The image that all these containers run.
fn common_image(containers: &[String], workload: &Object) -> Result<ImageRef, InvalidTarget> {
    let title = workload.title();
    let deployed = containers.iter().filter_map(|name| workload.container(name));
    let mut images = deployed.map(|container| (&container.name, container.image.as_deref().unwrap_or_default()));
    let image = images.next().map(|(_, image)| image).unwrap_or_default();
    if let Some((name, other)) = images.find(|(_, other)| *other != image) {
        return Err(InvalidTarget::Unusable(format!(
            "{title}: container {name} runs {other}, another one {image}; an app's containers share one image."
        )));
    }
    image
        .parse()
        .map_err(|invalid| InvalidTarget::Unusable(format!("{title} runs an image that cannot be read: {invalid}")))
}

/// What an image must bear whose Deployment is made.
const RESTRICTED: &str = "The pods run as the profile restricted of Pod Security asks for: not as root, and without privileges. An \
    image that has to be root needs the profile baseline (--pod-security baseline).";

/// The rule of [`is_name`].
const NAME_RULE: &str = "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots.";

/// Whether the name is a DNS-1123 subdomain, as Kubernetes requires of its objects.
fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_label = |label: &str| {
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_valid)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
