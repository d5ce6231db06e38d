//! Checks the workloads of an app that is registered, or whose workloads are changed.

use rollhook_core::{
    Result,
    app::{AppId, Settings},
    ports::{InvalidTarget, RolloutDriver, SettingValue, TargetRequest, TargetSetting, Validated},
};
use serde_json::Value;

use crate::parts::{ALSO, PARTS_MAX, TOGETHER, name, split};

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

/// Returns the driver's answer about all workloads of a target. The further ones exist: only the first is made where it is
/// missing.
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
    let mut answer = inner.validate(&asked).await?;
    let mut listed = Vec::new();
    for value in also {
        if matches!(answer, Validated::Invalid(_)) {
            return Ok(answer);
        }
        if listed.len() + 2 > PARTS_MAX {
            return Ok(invalid(format!("must list at most {} workloads beside the first one.", PARTS_MAX - 1)));
        }
        let (settings, is_together) = match requested(&value) {
            Ok(requested) => requested,
            Err(rule) => return Ok(invalid(rule)),
        };
        // An image would have a missing workload made.
        (asked.settings, asked.image, asked.built) = (settings, None, true);
        let further = inner.validate(&asked).await?;
        let (merged, settings) = match joined(answer, further, &asked.settings) {
            Ok(joined) => joined,
            Err(invalid) => return Ok(Validated::Invalid(invalid)),
        };
        answer = merged;
        listed.push((settings, is_together));
    }
    Ok(with_further(answer, listed))
}

/// Returns the answer about the workloads so far together with that about a further one, and the settings of that one.
fn joined(answer: Validated, further: Validated, given: &Settings) -> Result<(Validated, Settings), InvalidTarget> {
    let part = name(given, 1);
    let (settings, image, owner, unused, notes) = match further {
        Validated::Adopt { settings, image, take_over, unused, notes } => (settings, image, take_over, unused, notes),
        Validated::Create { .. } => {
            let why =
                "does not exist, and only the first workload of an app is made where it is missing: make it first.";
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
    let further_notes: Vec<String> = notes.into_iter().map(|note| format!("{part}: {note}")).collect();
    let one_owner = |before| match (before, owner) {
        (Some(before), Some(owner)) if before != owner => Err(InvalidTarget::Taken(format!(
            "{part} carries the deploy id of another registration than a workload before it: register them apart, or take \
             their deploy ids off."
        ))),
        (before, owner) => Ok(before.or(owner)),
    };
    let merged = match answer {
        Validated::Adopt { settings, image: first, take_over, unused: mut all_unused, notes: mut all } => {
            if !image.same_bits(None, &first, None) {
                all.push(format!("{part} runs {image} where {first} runs: the next deploy brings both to one image."));
            }
            all.extend(further_notes);
            all_unused.extend(unused);
            let take_over = one_owner(take_over)?;
            Validated::Adopt { settings, image: first, take_over, unused: all_unused, notes: all }
        }
        Validated::Create { settings, take_over, mut notes } => {
            notes.push(format!("{part} runs {image}: revision 1 brings it to the app's image."));
            notes.extend(further_notes);
            Validated::Create { settings, take_over: one_owner(take_over)?, notes }
        }
        other @ Validated::Invalid(_) => other,
    };
    Ok((merged, settings))
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
        all.extend(further.map(|(settings, _)| (app.clone(), settings)));
    }
    all
}

/// Reads a listed workload, `[+]KIND/NAME[:CONTAINER,…]` or as it is stored. Returns its settings, and whether it goes
/// together with the one before it.
fn requested(value: &Value) -> Result<(Settings, bool), String> {
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
            if settings.contains_key("template") {
                return Err("lists a workload with a template: only the first workload of an app is made.".to_owned());
            }
            Ok((settings, is_together))
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
            Ok((settings, is_together))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(RULE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listed_workloads_are_read() {
        let read = |text: &str| requested(&text.into()).map(|(settings, together)| (Value::Object(settings), together));
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
    }
}
