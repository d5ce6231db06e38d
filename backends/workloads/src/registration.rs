//! Checks the workloads of an app that is registered, or whose workloads are changed.

use rollhook_core::{
    Result,
    app::{AppId, Settings},
    ports::{InvalidTarget, RolloutDriver, SettingValue, TargetRequest, TargetSetting, Validated},
};
use serde_json::Value;

use crate::parts::{ALSO, COMMAND, FURTHER, PARTS_MAX, TEMPLATE, TOGETHER, name, split, template};

/// The setting that lists the further workloads, for people.
pub(crate) const SETTING: TargetSetting = TargetSetting {
    name: ALSO,
    label: "Further workloads",
    help: "A line each, in the order in which deploys take them, such as Deployment/worker or CronJob/nightly:CONTAINER. \
           With a + before it, a workload goes together with the one before.",
    value: SettingValue::Texts,
};

/// The setting's name in refusals.
const FIELD: &str = "workload.also";

/// A workload as the list of further ones names it.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    settings: Settings,
    /// Whether it goes together with the one before it.
    is_together: bool,
    /// The words that it runs, if it is made where it does not exist.
    command: Option<Value>,
}

/// Returns the driver's answer about all workloads of a target. A further one without a command of its own exists.
pub(crate) async fn validate(inner: &dyn RolloutDriver, request: &TargetRequest) -> Result<Validated> {
    let (settings, also) = split(&request.settings);
    // The settings of all others are many: there is one copy of them.
    let mut asked = TargetRequest {
        app: request.app.clone(),
        settings,
        image: request.image.clone(),
        built: request.built,
        take_over: request.take_over,
        registered: request.registered,
        others: flattened(&request.others),
    };
    if asked.settings.get(TEMPLATE).and_then(|template| template.get(FURTHER)).is_some() {
        return Ok(Validated::Invalid(InvalidTarget::setting(
            format!("{TEMPLATE}.{FURTHER}"),
            "is for further workloads alone.",
        )));
    }
    let mut answer = inner.validate(&asked).await?;
    let mut listed = Vec::new();
    for value in also {
        if matches!(answer, Validated::Invalid(_)) {
            return Ok(answer);
        }
        if listed.len() + 2 > PARTS_MAX {
            return Ok(invalid(format!("must list at most {} workloads beside the first one.", PARTS_MAX - 1)));
        }
        let Listed { settings, is_together, command } = match requested(&value) {
            Ok(requested) => requested,
            Err(rule) => return Ok(invalid(rule)),
        };
        let made = command.clone().and_then(|command| made_by(&answer, request, command));
        let given = Given { command, is_made: made.is_some(), is_registered: request.registered.is_some() };
        // An image would have any missing workload made.
        (asked.settings, asked.image, asked.built) = (settings, None, true);
        asked.settings.extend(made.map(|template| (TEMPLATE.to_owned(), template)));
        let further = inner.validate(&asked).await?;
        let (merged, settings) = match joined(answer, further, &asked.settings, given) {
            Ok(joined) => joined,
            Err(invalid) => return Ok(Validated::Invalid(invalid)),
        };
        answer = merged;
        listed.push((settings, is_together));
    }
    Ok(with_further(answer, listed))
}

/// Returns how a further workload with this command is made; `None` if the first one exists already, and nothing says how.
fn made_by(answer: &Validated, request: &TargetRequest, command: Value) -> Option<Value> {
    match answer {
        Validated::Create { settings, .. } => template(settings, command),
        Validated::Adopt { settings, .. } if request.registered.is_some() => template(settings, command),
        Validated::Adopt { .. } | Validated::Invalid(_) => None,
    }
}

/// The person's words about how a further workload is made.
struct Given {
    command: Option<Value>,
    /// Whether it is made with them where it does not exist.
    is_made: bool,
    /// Whether they are those of an app that is registered already.
    is_registered: bool,
}

/// Returns the answer about the workloads so far together with that about a further one, and the settings of that one.
fn joined(
    answer: Validated,
    further: Validated,
    asked: &Settings,
    given: Given,
) -> Result<(Validated, Settings), InvalidTarget> {
    let part = name(asked, 1);
    let (settings, image, owner, notes) = match further {
        Validated::Adopt { mut settings, image, take_over, notes, .. } => {
            settings.remove(TEMPLATE);
            let kept = given.command.clone().filter(|_| given.is_made && given.is_registered);
            settings.extend(kept.map(|command| (COMMAND.to_owned(), command)));
            (settings, Some(image), take_over, notes)
        }
        Validated::Create { mut settings, take_over, notes } if given.is_made => {
            settings.remove(TEMPLATE);
            settings.extend(given.command.clone().map(|command| (COMMAND.to_owned(), command)));
            (settings, None, take_over, notes)
        }
        Validated::Create { .. } => {
            let why = match given.command {
                None => "does not exist, and has no command by which it would be made: make it first.",
                Some(_) => {
                    "does not exist, and with --command NAME=… it is made only beside a first workload that is made: make it \
                     yourself, or remove the first one so that both are made."
                }
            };
            return Err(InvalidTarget::Unusable(format!("{part} {why}")));
        }
        Validated::Invalid(InvalidTarget::Setting { name, rule }) => {
            return Err(InvalidTarget::setting(FIELD, format!("names {part}, whose {name} {rule}")));
        }
        Validated::Invalid(InvalidTarget::Unusable(why)) => {
            return Err(InvalidTarget::Unusable(format!("{part}: {why}")));
        }
        Validated::Invalid(other) => return Err(other),
    };
    let part = name(&settings, 1);
    let further_notes: Vec<String> = notes.into_iter().map(|note| named(&part, note)).collect();
    let one_owner = |before| match (before, owner) {
        (Some(before), Some(owner)) if before != owner => Err(InvalidTarget::Taken(format!(
            "{part} carries the deploy id of another registration than a workload before it: register them apart, or take \
             their deploy ids off."
        ))),
        (before, owner) => Ok(before.or(owner)),
    };
    let merged = match answer {
        Validated::Adopt { settings, image: first, take_over, mut unused, notes: mut all } => {
            match &image {
                None => all.push(format!("{part} does not exist: the next deploy makes it.")),
                Some(image) if image.same_bits(None, &first, None) => {}
                Some(image) => {
                    let next = "the next deploy brings both to one image.";
                    all.push(format!("{part} runs {image} where {first} runs: {next}"));
                }
            }
            all.extend(further_notes);
            let command = format!("{TEMPLATE}.{COMMAND}");
            if given.command.is_some() && !given.is_registered && !unused.contains(&command) {
                unused.push(command);
            }
            let take_over = one_owner(take_over)?;
            Validated::Adopt { settings, image: first, take_over, unused, notes: all }
        }
        Validated::Create { settings, take_over, mut notes } => {
            if let Some(image) = image {
                notes.push(format!("{part} runs {image}: revision 1 brings it to the app's image."));
                let keeps = format!("{part} exists, and keeps its own command.");
                notes.extend(given.command.is_some().then_some(keeps));
            }
            notes.extend(further_notes);
            Validated::Create { settings, take_over: one_owner(take_over)?, notes }
        }
        other @ Validated::Invalid(_) => other,
    };
    Ok((merged, settings))
}

/// Returns a note on a workload, with the workload's name once.
fn named(part: &str, note: String) -> String {
    let is_named = note.strip_prefix(part).is_some_and(|rest| rest.starts_with(' '));
    if is_named { note } else { format!("{part}: {note}") }
}

/// Returns the answer with the further workloads in its settings.
fn with_further(mut answer: Validated, listed: Vec<(Settings, bool)>) -> Validated {
    let (Validated::Adopt { settings, .. } | Validated::Create { settings, .. }) = &mut answer else { return answer };
    if listed.is_empty() {
        return answer;
    }
    let mut names = vec![name(settings, 0)];
    for (index, (further, _)) in listed.iter().enumerate() {
        let name = name(further, index + 1);
        if names.contains(&name) {
            return invalid(format!("lists {name}, which the app has already: each workload once."));
        }
        names.push(name);
    }
    let also = listed.into_iter().map(|(mut further, is_together)| {
        if is_together {
            further.insert(TOGETHER.to_owned(), true.into());
        }
        Value::Object(further)
    });
    let also = also.collect();
    settings.insert(ALSO.to_owned(), also);
    answer
}

fn invalid(rule: String) -> Validated {
    Validated::Invalid(InvalidTarget::setting(FIELD, rule))
}

/// Returns each app once for each of its workloads: the driver below knows no lists of them.
fn flattened(others: &[(AppId, Settings)]) -> Vec<(AppId, Settings)> {
    let mut all = Vec::with_capacity(others.len());
    for (app, settings) in others {
        let (first, also) = split(settings);
        all.push((app.clone(), first));
        let further = also.into_iter().filter_map(|value| requested(&value).ok());
        all.extend(further.map(|listed| (app.clone(), listed.settings)));
    }
    all
}

/// Reads a listed workload, `[+]KIND/NAME[:CONTAINER,…]` or as it is stored.
fn requested(value: &Value) -> Result<Listed, String> {
    const RULE: &str = "must be a list of workloads, each KIND/NAME or KIND/NAME:CONTAINER, with a + before it where it goes \
                        together with the one before.";
    match value {
        Value::Object(settings) => {
            let mut settings = settings.clone();
            let is_together = match settings.remove(TOGETHER) {
                None => false,
                Some(Value::Bool(is_together)) => is_together,
                Some(_) => return Err(format!("lists a workload whose {TOGETHER} is neither true nor false.")),
            };
            if settings.contains_key(TEMPLATE) {
                let rule = "lists a workload with a template: one with a command is made by that of the first one.";
                return Err(rule.to_owned());
            }
            let command = settings.remove(COMMAND).filter(|command| !command.is_null());
            Ok(Listed { settings, is_together, command })
        }
        Value::String(text) => {
            let text = text.trim();
            let (is_together, text) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
            let (kind, rest) = text.split_once('/').ok_or(RULE)?;
            let (name, containers) = rest.split_once(':').map_or((rest, None), |(name, all)| (name, Some(all)));
            if kind.is_empty() || name.is_empty() {
                return Err(RULE.to_owned());
            }
            let mut settings = Settings::new();
            settings.insert("kind".to_owned(), kind.into());
            settings.insert("name".to_owned(), name.into());
            if let Some(containers) = containers {
                let containers: Vec<Value> = containers.split(',').map(Value::from).collect();
                settings.insert("containers".to_owned(), containers.into());
            }
            Ok(Listed { settings, is_together, command: None })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(RULE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn note_on_a_further_workload_has_its_name_once() {
        let of = |note: &str| named("container/worker", note.to_owned());
        assert_eq!(of("container/worker has no health check."), "container/worker has no health check.");
        assert_eq!(of("Each deploy stops it first."), "container/worker: Each deploy stops it first.");
        assert_eq!(of("container/worker2 is there."), "container/worker: container/worker2 is there.");
    }

    #[test]
    fn listed_workloads_are_read() {
        let read = |text: &str| requested(&text.into()).map(|read| (Value::Object(read.settings), read.is_together));
        assert_eq!(read("Deployment/worker"), Ok((json!({ "kind": "Deployment", "name": "worker" }), false)));
        let containers = json!({ "kind": "CronJob", "name": "nightly", "containers": ["app", "copy"] });
        assert_eq!(read(" +CronJob/nightly:app,copy"), Ok((containers, true)));
        assert_eq!(read("compose/shop/worker"), Ok((json!({ "kind": "compose", "name": "shop/worker" }), false)));
        for wrong in ["", "worker", "Deployment/", "/worker", "+", "Deployment/:app"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        for wrong in [json!(1), json!(null), json!({ "together": "yes" }), json!({ "template": {} })] {
            assert!(requested(&wrong).is_err(), "{wrong}");
        }
        let worker = json!({ "kind": "container", "name": "worker", "command": ["bin/jobs"], "together": true });
        let read = requested(&worker).unwrap();
        assert_eq!((read.command, read.is_together), (Some(json!(["bin/jobs"])), true));
        assert_eq!(Value::Object(read.settings), json!({ "kind": "container", "name": "worker" }));
    }
}
