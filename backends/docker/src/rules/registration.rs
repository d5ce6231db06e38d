//! The target of an app that is registered: completed from what exists, or refused.

use rollhook_core::{
    app::{AppId, AppUid, Settings},
    ports::{InvalidTarget, TargetRequest, Validated},
};

use super::{
    container::{COMPOSE_PROJECT, Container, Seen},
    creation, fence, notes,
};
use crate::settings::{Kind, Replace, RequestedSettings, Workload, is_path};

/// A registration whose settings were read.
#[derive(Clone, Debug)]
pub(crate) struct Registration<'a> {
    request: &'a TargetRequest,
    requested: RequestedSettings,
}

impl<'a> Registration<'a> {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`].
    pub(crate) fn parse(request: &'a TargetRequest) -> Result<Self, InvalidTarget> {
        let mut requested = RequestedSettings::parse(&request.settings)?;
        if requested.replace_chosen.is_some() && requested.replace.is_none() {
            return Err(InvalidTarget::setting(
                "workload.replace_chosen",
                "is stored by a registration that has replace.",
            ));
        }
        creation::check(&requested.template)?;
        // It counts for a container that exists as well.
        let path = requested.template.readiness_path.take();
        requested.readiness_path = requested.readiness_path.or(path);
        if requested.readiness_path.as_ref().is_some_and(|path| !is_path(path)) {
            let rule = "must be a path that begins with a slash.";
            return Err(InvalidTarget::setting("workload.readiness_path", rule));
        }
        let registration = Self { request, requested };
        let name = registration.name();
        let is_compose = registration.requested.kind == Some(Kind::Compose);
        let fits = match name.split_once('/') {
            Some((project, service)) if is_compose => is_name(project) && is_name(service),
            Some(_) => false,
            None => is_name(&name),
        };
        if !fits {
            let rule = "must be a container's name (two or more letters, digits, '_', '.' and '-'); with the kind compose, \
                        PROJECT/SERVICE.";
            return Err(InvalidTarget::setting("workload.name", rule));
        }
        Ok(registration)
    }

    /// The name that was asked for; the app's by default.
    pub(crate) fn name(&self) -> String {
        self.requested.name.clone().unwrap_or_else(|| self.request.app.name.to_string())
    }

    /// The kind that was asked for; `None` if what exists decides.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.requested.kind
    }

    /// The project of a service, among those that have a service of this name.
    ///
    /// # Errors
    /// [`InvalidTarget::Unusable`] if there is none, or several.
    pub(crate) fn project(&self, containers: &[Container]) -> Result<String, InvalidTarget> {
        let mut projects: Vec<&str> = containers.iter().filter_map(|found| found.label(COMPOSE_PROJECT)).collect();
        projects.sort_unstable();
        projects.dedup();
        let name = self.name();
        match projects[..] {
            [project] => Ok(project.to_owned()),
            [] => Err(InvalidTarget::Unusable(format!(
                "No Compose project has containers of a service {name}: start it with docker compose up -d first."
            ))),
            _ => {
                // Some are others': the caller names the own one.
                let (app, projects) = (&self.request.app, projects.join(", "));
                tracing::info!(%app, service = name, projects, "refused a service that several Compose projects have");
                Err(InvalidTarget::Unusable(format!(
                    "Several Compose projects have a service {name}: name yours, --workload compose/PROJECT/{name}."
                )))
            }
        }
    }

    /// The completed settings, or the refusal.
    pub(crate) fn validate(&self, kind: Kind, name: String, seen: &Seen) -> Validated {
        let workload = Workload::named(kind, name);
        let validated = match (self.taken(&workload), seen.model()) {
            (Some(taken), _) => Err(taken),
            (None, Some(model)) if !seen.is_remains() => self.adopt(workload, seen, model),
            (None, _) => self.create(workload, seen),
        };
        validated.unwrap_or_else(Validated::Invalid)
    }

    /// The refusal of a target that another app names.
    fn taken(&self, workload: &Workload) -> Option<InvalidTarget> {
        let is_same = |(app, settings): &&(AppId, Settings)| {
            RequestedSettings::named(settings).is_some_and(|other| {
                let name = other.name.as_deref().unwrap_or(app.name.as_str());
                (other.kind.unwrap_or_default(), name) == (workload.kind, workload.name.as_str())
            })
        };
        let (other, _) = self.request.others.iter().filter(|_| !self.request.take_over).find(is_same)?;
        let (app, is_known) = (&self.request.app, other.namespace == self.request.app.namespace);
        tracing::info!(%app, %other, workload = workload.name, "refused the workload of another app");
        let of = if is_known { format!("the app {other}") } else { "an app of another environment".to_owned() };
        Some(InvalidTarget::Taken(format!(
            "{workload} is the workload of {of}. Name another one, or register with --take-over: then that app is refused from \
             the first deploy on."
        )))
    }

    fn adopt(&self, mut workload: Workload, seen: &Seen, model: &Container) -> Result<Validated, InvalidTarget> {
        let unusable = |why: String| InvalidTarget::Unusable(format!("{workload} cannot be deployed to: {why}"));
        let take_over = self.stamped(&workload, seen)?;
        let instances = seen.instances();
        if instances > 1 {
            return Err(unusable(format!("it is scaled to {instances} containers, and an app is one container.")));
        }
        if model.object["HostConfig"]["AutoRemove"] == true {
            let why = "it was started with --rm, so that Docker removes it with its settings when it stops: start it \
                       without --rm.";
            return Err(unusable(why.to_owned()));
        }
        if model.label("com.docker.swarm.service.id").is_some() {
            return Err(unusable("it is part of a swarm service, which replaces its containers itself.".to_owned()));
        }
        let newest = seen.stamps().filter(|stamp| Some(stamp.id) == fence::carried(seen)).find_map(|stamp| stamp.image);
        let image = newest.or_else(|| model.image());
        let image = image.ok_or_else(|| unusable("its image has no name: start it from a tag.".to_owned()))?;
        (workload.readiness_path, workload.readiness_port) = self.readiness(|| model.exposed_port())?;
        workload.replace_chosen = self.is_chosen();
        workload.replace = self.replace(model.sole(), model.writes_to())?;
        let unused = if self.request.registered.is_some() {
            let is_made = self.request.settings.contains_key("template");
            workload.template = is_made.then(|| self.requested.template.clone());
            Vec::new()
        } else {
            self.unused()
        };
        let notes = notes::of_adopted(&workload, model, self.requested.replace);
        Ok(Validated::Adopt { settings: workload.settings(), image, take_over, unused, notes })
    }

    /// The settings that only say how a container is made. The port is that of the readiness path as well.
    fn unused(&self) -> Vec<String> {
        let is_used = |name: &str| {
            name.ends_with("readiness_path") || (name.ends_with("port") && self.requested.readiness_path.is_some())
        };
        self.request.of_creation().into_iter().filter(|name| !is_used(name)).collect()
    }

    /// Path and port that answer once the container is ready; `exposed` is the port of a container that exists.
    fn readiness(&self, exposed: impl Fn() -> Option<u16>) -> Result<(Option<String>, Option<u16>), InvalidTarget> {
        let Some(path) = self.requested.readiness_path.clone() else { return Ok((None, None)) };
        match self.requested.readiness_port.or(self.requested.template.port).or_else(exposed) {
            Some(port) => Ok((Some(path), Some(port))),
            None => Err(InvalidTarget::setting(
                "workload.readiness_path",
                "needs a port: the container does not expose just one.",
            )),
        }
    }

    /// Whether a person chose the order of replacement. The settings of a registered app always have one.
    fn is_chosen(&self) -> bool {
        match self.request.registered {
            Some(_) => self.requested.replace_chosen == Some(true),
            None => self.requested.replace.is_some(),
        }
    }

    /// The order of replacement, which is to be one that the container allows.
    fn replace(&self, sole: Option<String>, writes_to: Option<&str>) -> Result<Replace, InvalidTarget> {
        match (self.requested.replace, sole) {
            // Each deploy looks at that again.
            (Some(given), _) if self.request.registered.is_some() => Ok(given),
            (Some(Replace::StartFirst), Some(why)) => {
                Err(InvalidTarget::setting("workload.replace", format!("cannot be start-first: {why}.")))
            }
            (Some(given), _) => Ok(given),
            (None, Some(_)) => Ok(Replace::StopFirst),
            (None, None) if writes_to.is_some() => Ok(Replace::StopFirst),
            (None, None) => Ok(Replace::StartFirst),
        }
    }

    /// The registration whose stamp the target carries.
    fn stamped(&self, workload: &Workload, seen: &Seen) -> Result<Option<AppUid>, InvalidTarget> {
        let id = fence::carried(seen).or_else(|| seen.stamps().map(|stamp| stamp.id).next());
        match id.filter(|id| self.request.is_foreign(id.app)) {
            Some(id) if !self.request.take_over => Err(InvalidTarget::Taken(format!(
                "{workload} carries the stamp of another registration ({id}). If that one is gone, register with \
                 --take-over."
            ))),
            id => Ok(id.map(|id| id.app)),
        }
    }

    fn create(&self, mut workload: Workload, seen: &Seen) -> Result<Validated, InvalidTarget> {
        if workload.kind == Kind::Compose {
            let why = format!("{workload} has no container: start it with docker compose up -d first.");
            return Err(InvalidTarget::Unusable(why));
        }
        let take_over = self.stamped(&workload, seen)?;
        if self.request.image.is_none() && !self.request.built {
            let why = format!("{workload} does not exist; give an image to have it made.");
            return Err(InvalidTarget::Unusable(why));
        }
        let template = self.requested.template.clone();
        (workload.readiness_path, workload.readiness_port) = self.readiness(|| None)?;
        workload.replace_chosen = self.is_chosen();
        workload.replace = self.replace(creation::sole(&template), creation::writes_to(&template))?;
        let notes = notes::of_created(&template, self.requested.replace);
        workload.template = Some(template);
        Ok(Validated::Create { settings: workload.settings(), take_over, notes })
    }
}

/// Whether the engine takes the name for a container.
fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (2..=128).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use rollhook_core::ports::InvalidTarget::{Setting, Taken, Unusable};
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::samples::{OURS, THEIRS, claim, container, seen, stamped, with};

    fn request(settings: Value) -> TargetRequest {
        TargetRequest {
            app: "shop-test/web".parse().unwrap(),
            settings: serde_json::from_value(settings).unwrap(),
            image: "registry.example.com/web:v1".parse().ok(),
            built: false,
            take_over: false,
            registered: None,
            others: Vec::new(),
        }
    }

    fn validate(request: &TargetRequest, seen: &Seen) -> Validated {
        let registration = match Registration::parse(request) {
            Ok(registration) => registration,
            Err(invalid) => return Validated::Invalid(invalid),
        };
        registration.validate(registration.kind().unwrap_or_default(), registration.name(), seen)
    }

    fn replace(validated: Validated) -> Value {
        match validated {
            Validated::Adopt { settings, .. } | Validated::Create { settings, .. } => settings["replace"].clone(),
            Validated::Invalid(invalid) => panic!("{invalid:?}"),
        }
    }

    #[test]
    fn container_is_adopted_with_the_order_that_it_allows() {
        let asked = request(json!({}));
        let free = container("web", "running");
        assert_eq!(replace(validate(&asked, &seen(vec![free.clone()]))), "start-first");
        let bound = json!({"80/tcp": [{"HostIp": "", "HostPort": "8080"}]});
        let fixed = with(free.clone(), "/HostConfig/PortBindings", bound);
        assert_eq!(replace(validate(&asked, &seen(vec![fixed.clone()]))), "stop-first");
        let says = |container: &Container, words: &str| {
            validate(&asked, &seen(vec![container.clone()])).notes().iter().any(|note| note.contains(words))
        };
        assert!(!says(&free, "stops the old container before"));
        assert!(says(&fixed, "stops the old container before the new one starts, as port 8080"));
        let volume = json!([{"Type": "volume", "Name": "d", "Destination": "/data", "RW": true}]);
        let writes = with(free, "/Mounts", volume);
        assert_eq!(replace(validate(&asked, &seen(vec![writes.clone()]))), "stop-first");
        let given = request(json!({"replace": "start-first"}));
        assert_eq!(replace(validate(&given, &seen(vec![writes]))), "start-first");
        let refused = validate(&given, &seen(vec![fixed]));
        let Validated::Invalid(Setting { name, rule }) = refused else { panic!("{refused:?}") };
        assert!(name == "workload.replace" && rule.contains("port 8080"), "{rule}");
    }

    fn adopted(validated: Validated) -> (Value, Vec<String>, Vec<String>) {
        let Validated::Adopt { settings, unused, notes, .. } = validated else { panic!("{validated:?}") };
        (Value::Object(settings), unused, notes)
    }

    #[test]
    fn readiness_path_counts_for_a_container_that_exists() {
        let exposing = |ports: Value| {
            let there = with(container("web", "running"), "/Config/ExposedPorts", ports);
            seen(vec![there])
        };
        let one = exposing(json!({"80/tcp": {}, "53/udp": {}}));
        let asked = request(json!({"template": {"readiness_path": "/healthz"}}));
        let (settings, unused, notes) = adopted(validate(&asked, &one));
        assert_eq!((&settings["readiness_path"], &settings["readiness_port"]), (&json!("/healthz"), &json!(80)));
        assert!(unused.is_empty() && notes.is_empty(), "{unused:?} {notes:?}");
        let given = request(json!({"template": {"readiness_path": "/", "port": 8080, "memory": "1g"}}));
        let (settings, unused, _) = adopted(validate(&given, &one));
        assert_eq!((&settings["readiness_port"], unused), (&json!(8080), vec!["template.memory".to_owned()]));
        let two = exposing(json!({"80/tcp": {}, "81/tcp": {}}));
        for (asked, there) in [(&asked, &two), (&request(json!({"readiness_path": "healthz"})), &one)] {
            let refused = validate(asked, there);
            assert!(
                matches!(&refused, Validated::Invalid(Setting { name, .. }) if name == "workload.readiness_path"),
                "{refused:?}"
            );
        }
        let (_, unused, notes) = adopted(validate(&request(json!({"template": {"port": 80}})), &one));
        assert_eq!(unused, ["template.port"]);
        assert!(notes[0].contains("has run for 5 s"), "{notes:?}");
        let checked = with(container("web", "running"), "/State/Health", json!({"Status": "healthy"}));
        assert!(adopted(validate(&request(json!({})), &seen(vec![checked]))).2.is_empty());
    }

    #[test]
    fn order_that_a_person_chose_is_remembered() {
        let seen = seen(vec![container("web", "running")]);
        let settings = |request: &TargetRequest| adopted(validate(request, &seen)).0.as_object().unwrap().clone();
        let chosen = settings(&request(json!({"replace": "stop-first"})));
        assert_eq!((&chosen["replace"], &chosen["replace_chosen"]), (&json!("stop-first"), &json!(true)));
        let derived = settings(&request(json!({})));
        assert_eq!(derived.get("replace_chosen"), None);
        for (stored, is_chosen) in [(chosen, true), (derived, false)] {
            let change = TargetRequest { settings: stored, registered: Some(OURS), ..request(json!({})) };
            assert_eq!(settings(&change).contains_key("replace_chosen"), is_chosen);
        }
        assert!(matches!(validate(&request(json!({"replace_chosen": true})), &seen), Validated::Invalid(_)));
    }

    #[test]
    fn registered_app_keeps_what_its_container_is_made_with() {
        let made = request(json!({"template": {"port": 80, "publish": ["8080:80"], "readiness_path": "/a"}}));
        let Validated::Create { mut settings, .. } = validate(&made, &Seen::default()) else { panic!() };
        settings.insert("readiness_path".to_owned(), "/b".into());
        let there = seen(vec![with(stamped(THEIRS, 5, "running"), "/Name", json!("/web"))]);
        let change = TargetRequest { settings, registered: Some(THEIRS), image: None, built: true, ..made };
        let (settings, unused, _) = adopted(validate(&change, &there));
        assert_eq!(settings["template"]["publish"], json!(["8080:80"]));
        assert_eq!((&settings["readiness_path"], &settings["readiness_port"]), (&json!("/b"), &json!(80)));
        assert_eq!((&settings["replace"], unused.len()), (&json!("stop-first"), 0));
        assert!(matches!(validate(&change, &Seen::default()), Validated::Create { .. }), "its container may be gone");
    }

    #[test]
    fn container_of_another_app_is_known_by_what_names_it_alone() {
        let others = |settings: Value| vec![("shop-test/web".parse().unwrap(), settings.as_object().unwrap().clone())];
        let asked = |settings| TargetRequest { others: others(settings), ..request(json!({"name": "web"})) };
        let is_taken = |settings| matches!(validate(&asked(settings), &Seen::default()), Validated::Invalid(Taken(_)));
        assert!(is_taken(json!({"template": {"of": "a later version"}})), "named as its app is");
        assert!(is_taken(json!({"kind": "container", "name": "web"})));
        assert!(!is_taken(json!({"kind": "compose", "name": "shop/web"})) && !is_taken(json!({"name": "api"})));
    }

    #[test]
    fn refusal_names_what_is_of_the_own_environment_alone() {
        let why = |other: &str| {
            let named = json!({"kind": "container", "name": "site"});
            let others = vec![(other.parse().unwrap(), named.as_object().unwrap().clone())];
            let asked = TargetRequest { others, ..request(json!({"name": "site"})) };
            let Validated::Invalid(Taken(why)) = validate(&asked, &Seen::default()) else { panic!("{other}") };
            why
        };
        assert!(why("shop-test/site").contains("the app shop-test/site"), "{}", why("shop-test/site"));
        let of_others = why("bank-prod/site");
        assert!(of_others.contains("an app of another environment") && !of_others.contains("bank"), "{of_others}");
        let services = ["shop", "bank"].map(|project| {
            let labels = json!({COMPOSE_PROJECT: project, "com.docker.compose.service": "web"});
            with(container("web", "running"), "/Config/Labels", labels)
        });
        let asked = request(json!({"kind": "compose"}));
        let refused = Registration::parse(&asked).unwrap().project(&services).unwrap_err();
        let Unusable(why) = refused else { panic!("{refused:?}") };
        assert!(why.contains("compose/PROJECT/web") && !why.contains("bank"), "{why}");
    }

    #[test]
    fn stamp_of_another_registration_is_told() {
        let there = seen(vec![with(stamped(THEIRS, 5, "running"), "/Name", json!("/web"))]);
        let asked = request(json!({}));
        let answer = validate(&asked, &there);
        let Validated::Invalid(Taken(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains(&THEIRS.to_string()), "{why}");
        let answer = validate(&TargetRequest { take_over: true, ..asked }, &there);
        assert!(matches!(answer, Validated::Adopt { take_over: Some(THEIRS), .. }), "{answer:?}");
    }

    #[test]
    fn first_version_that_failed_leaves_the_settings_to_the_next_registration() {
        let asked = request(json!({"template": {"port": 80}}));
        let take_over = || TargetRequest { take_over: true, ..asked.clone() };
        let failed = seen(vec![stamped(THEIRS, 1, "running")]);
        let waiting = Seen { claims: vec![claim(THEIRS, 1)], ..Seen::default() };
        for left in [failed, waiting] {
            assert!(matches!(validate(&asked, &left), Validated::Invalid(Taken(_))), "{left:?}");
            let Validated::Create { settings, take_over, .. } = validate(&take_over(), &left) else {
                panic!("{left:?}")
            };
            assert_eq!((&settings["template"]["port"], take_over), (&json!(80), Some(THEIRS)));
        }
        let served = with(stamped(THEIRS, 1, "running"), "/Name", json!("/web"));
        assert!(matches!(validate(&take_over(), &seen(vec![served])), Validated::Adopt { .. }), "it has the name");
    }

    #[test]
    fn missing_container_is_created_by_its_template() {
        let asked = request(json!({"template": {"port": 80, "publish": ["8080:80"]}}));
        assert_eq!(replace(validate(&asked, &Seen::default())), "stop-first");
        let in_turn = request(json!({"template": {"port": 80, "publish": ["8081-8082:80"]}}));
        assert_eq!(replace(validate(&in_turn, &Seen::default())), "start-first");
        let path = request(json!({"template": {"readiness_path": "/healthz"}}));
        let answer = validate(&path, &Seen::default());
        assert!(matches!(&answer, Validated::Invalid(Setting { rule, .. }) if rule.contains("port")), "{answer:?}");
        let without = TargetRequest { image: None, ..asked };
        assert!(matches!(validate(&without, &Seen::default()), Validated::Invalid(Unusable(_))));
        let compose = request(json!({"kind": "compose", "name": "shop/web"}));
        let answer = validate(&compose, &Seen::default());
        assert!(matches!(&answer, Validated::Invalid(Unusable(why)) if why.contains("compose up")), "{answer:?}");
    }

    #[test]
    fn scaled_service_is_refused() {
        let two = seen(vec![container("web-1", "running"), container("web-2", "running")]);
        let answer = validate(&request(json!({})), &two);
        assert!(matches!(&answer, Validated::Invalid(Unusable(why)) if why.contains("2 containers")), "{answer:?}");
    }

    #[test]
    fn container_that_removes_itself_is_refused() {
        let removed = with(container("web", "running"), "/HostConfig/AutoRemove", true.into());
        let answer = validate(&request(json!({})), &seen(vec![removed]));
        assert!(matches!(&answer, Validated::Invalid(Unusable(why)) if why.contains("--rm")), "{answer:?}");
    }

    #[test]
    fn name_must_be_one_that_the_engine_takes() {
        for name in ["../x", "a/b", "", "a", "-a", "a b"] {
            let answer = validate(&request(json!({"name": name})), &Seen::default());
            assert!(
                matches!(&answer, Validated::Invalid(Setting { name, .. }) if name == "workload.name"),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn project_of_a_service_is_found_or_asked_for() {
        let asked = request(json!({"kind": "compose", "name": "web"}));
        let registration = Registration::parse(&asked).unwrap();
        let of = |project: &str| with(container("web", "running"), "/Config/Labels", json!({COMPOSE_PROJECT: project}));
        assert_eq!(registration.project(&[of("shop"), of("shop")]).unwrap(), "shop");
        let Err(Unusable(why)) = registration.project(&[of("shop"), of("blog")]) else { panic!() };
        assert!(why.contains("compose/PROJECT/web") && !why.contains("blog"), "{why}");
        assert!(registration.project(&[]).is_err());
    }
}
