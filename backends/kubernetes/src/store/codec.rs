//! What the custom resources' texts mean: parsed object by object, and written.

use jiff::Timestamp as Instant;
use kube::{ResourceExt, api::ObjectMeta, core::Resource};
use rollhook_core::{
    Error, Result,
    app::{App, AppId, Hold, Policy, Source},
    deploy::{Actor, Deploy, Revision, State},
    ports::Admission,
    request::IdempotencyKey,
    time::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    crd::{APP_LABEL, AppObject, AppSpec, DeployObject, DeploySpec, EntryState, KeyUse, UID_LABEL, deploy_name},
    head::{Accepted, Changing, Head},
};

/// A time as it is stored: RFC 3339, to the millisecond.
pub(crate) fn time_text(time: Timestamp) -> String {
    let instant = Instant::from_millisecond(time.as_millis()).unwrap_or(Instant::MAX);
    format!("{instant:.3}")
}

/// A stored time.
pub(crate) fn time(text: &str, what: impl FnOnce() -> String) -> Result<Timestamp> {
    let instant: Instant = text.parse().map_err(|error: jiff::Error| Error::corrupt(what(), error))?;
    Ok(Timestamp::from_millis(instant.as_millisecond()))
}

/// The registration that an object holds.
pub(crate) fn app(object: &AppObject) -> Result<App> {
    let head = head(object)?;
    let spec = &object.spec;
    let what = || format!("the registration of app {} cannot be read", named(object));
    if !object.is_original() {
        let what = format!("app {} is a copy of another registration; delete it, and register the app", named(object));
        return Err(Error::Corrupt { what, cause: None });
    }
    let id = AppId {
        namespace: parse(&object.namespace().unwrap_or_default(), what)?,
        name: parse(&object.name_any(), what)?,
    };
    Ok(App {
        id,
        uid: parse(&spec.uid, what)?,
        project: parse(&spec.project, what)?,
        environment: parse(&spec.environment, what)?,
        source: value(&spec.source, what)?,
        target: value(&spec.target, what)?,
        policy: value(&spec.policy, what)?,
        holds: head.holds,
        guard: head.guard,
        created_at: time(&spec.created_at, what)?,
    })
}

/// The object that holds a new registration.
pub(crate) fn app_object(app: &App) -> Result<AppObject> {
    let spec = AppSpec {
        uid: app.uid.to_string(),
        name: app.id.name.to_string(),
        project: app.project.to_string(),
        environment: app.environment.to_string(),
        source: json(&app.source)?,
        target: json(&app.target)?,
        policy: json(&app.policy)?,
        created_at: time_text(app.created_at),
        ..AppSpec::default()
    };
    let mut object = AppObject::new(app.id.name.as_str(), spec);
    object.metadata.namespace = Some(app.id.namespace.to_string());
    object.metadata.labels = Some([(UID_LABEL.to_owned(), app.uid.to_string())].into());
    let head = Head {
        guard: app.guard,
        holds: app.holds.clone(),
        last_time: app.created_at,
        work_since: app.is_polled().then_some(app.created_at),
        ..Head::default()
    };
    object.status = Some(head.into_status()?);
    Ok(object)
}

/// Where the app's history stands, as its object says.
pub(crate) fn head(object: &AppObject) -> Result<Head> {
    let status = object.status.clone().unwrap_or_default();
    Head::of(status, || format!("the state of app {} cannot be read", named(object)))
}

/// The object that accepts a deploy.
pub(crate) fn deploy_object(app: &AppObject, admission: &Admission, deploy: &Deploy) -> Result<DeployObject> {
    let name = app.name_any();
    let spec = DeploySpec {
        app: name.clone(),
        namespace: app.namespace().unwrap_or_default(),
        app_uid: app.spec.uid.clone(),
        revision: deploy.revision.get(),
        admission: text(&deploy.id)?,
        image: deploy.image.as_ref().map(ToString::to_string),
        commit: deploy.commit.as_ref().map(ToString::to_string),
        trigger: text(&deploy.trigger)?,
        actor: deploy.actor.to_string(),
        from: json(&deploy.from)?,
        effective: deploy.effective.get(),
        adopted: deploy.adopted,
        accepted_at: time_text(deploy.created_at),
        key: admission.key.as_ref().map(|key| key_use(key, deploy.created_at)).transpose()?,
        guard: admission.guard,
        supersede: admission.supersede,
        hold: json(&admission.hold.clone().map(|hold| Hold { by: deploy.revision, ..hold }))?,
        ..DeploySpec::default()
    };
    let labels = [(UID_LABEL.to_owned(), app.spec.uid.clone()), (APP_LABEL.to_owned(), name.clone())];
    let metadata = ObjectMeta {
        name: Some(deploy_name(&name, deploy.revision.get())),
        namespace: app.namespace(),
        labels: Some(labels.into()),
        // What is left of an app that was deleted by hand goes with it.
        owner_references: app.owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(DeployObject { metadata, spec, status: None })
}

/// What was accepted.
pub(crate) fn accepted(object: &DeployObject) -> Result<Accepted> {
    let spec = &object.spec;
    let what = || format!("entry {} of app {}'s history cannot be read", spec.revision, spec.app);
    let number = |number| Revision::new(number).ok_or_else(|| Error::Corrupt { what: what(), cause: None });
    let (revision, created_at) = (number(spec.revision)?, time(&spec.accepted_at, what)?);
    let deploy = Deploy {
        id: value(&Value::from(spec.admission.as_str()), what)?,
        revision,
        image: spec.image.as_deref().map(|text| parse(text, what)).transpose()?,
        commit: spec.commit.as_deref().map(|text| parse(text, what)).transpose()?,
        trigger: value(&Value::from(spec.trigger.as_str()), what)?,
        actor: actor(&spec.actor, what)?,
        from: value(&spec.from, what)?,
        effective: number(spec.effective)?,
        adopted: spec.adopted,
        state: State::Queued,
        touched: false,
        digest: None,
        step: 0,
        created_at,
        updated_at: created_at,
    };
    Ok(Accepted { deploy, supersede: spec.supersede, hold: value(&spec.hold, what)? })
}

/// What an entry's own status says; none where it was never written.
pub(crate) fn own_state(object: &DeployObject) -> Result<Option<Changing>> {
    let spec = &object.spec;
    let what = || format!("the end of entry {} of app {}'s history cannot be read", spec.revision, spec.app);
    match &object.status {
        Some(status) if status.entry.revision != 0 => changing(&status.entry, what).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// The changing part of an entry.
pub(crate) fn changing(entry: &EntryState, what: impl Fn() -> String + Copy) -> Result<Changing> {
    Ok(Changing {
        revision: Revision::new(entry.revision).ok_or_else(|| Error::Corrupt { what: what(), cause: None })?,
        step: entry.step,
        state: value(&entry.state, what)?,
        touched: entry.touched,
        image: entry.image.as_deref().map(|text| parse(text, what)).transpose()?,
        commit: entry.commit.as_deref().map(|text| parse(text, what)).transpose()?,
        digest: entry.digest.as_deref().map(|text| parse(text, what)).transpose()?,
        updated_at: time(&entry.updated_at, what)?,
        extra: entry.extra.clone(),
    })
}

/// The changing part of an entry, as it is stored.
pub(crate) fn entry_state(changing: &Changing) -> Result<EntryState> {
    Ok(EntryState {
        revision: changing.revision.get(),
        step: changing.step,
        state: json(&changing.state)?,
        touched: changing.touched,
        image: changing.image.as_ref().map(ToString::to_string),
        commit: changing.commit.as_ref().map(ToString::to_string),
        digest: changing.digest.as_ref().map(ToString::to_string),
        updated_at: time_text(changing.updated_at),
        extra: changing.extra.clone(),
    })
}

/// How a key stands in an entry that was accepted at this time.
pub(crate) fn key_use(key: &IdempotencyKey, at: Timestamp) -> Result<KeyUse> {
    Ok(KeyUse {
        header: text(&key.header)?,
        key: key.key.clone(),
        request: key.request.iter().map(|byte| format!("{byte:02x}")).collect(),
        expires_at: time_text(at.after(key.header.kept_for())),
    })
}

/// Whether a stored key is this one, and then whether it was used for this request; none where it is free by this time.
pub(crate) fn used(stored: &KeyUse, wanted: &KeyUse, now: Timestamp) -> Result<Option<bool>> {
    if (&stored.header, &stored.key) != (&wanted.header, &wanted.key) {
        return Ok(None);
    }
    let expires_at = time(&stored.expires_at, || "an idempotency key's time cannot be read".to_owned())?;
    Ok((expires_at > now).then(|| stored.request == wanted.request))
}

/// `{namespace}/{name}` of an object.
pub(crate) fn named(object: &AppObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn actor(name: &str, what: impl Fn() -> String) -> Result<Actor> {
    value(&Value::from(name), what)
}

fn parse<T>(text: &str, what: impl Fn() -> String) -> Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse().map_err(|error| Error::corrupt(what(), error))
}

pub(crate) fn value<T: DeserializeOwned>(value: &Value, what: impl Fn() -> String) -> Result<T> {
    T::deserialize(value).map_err(|error| Error::corrupt(what(), error))
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Error::Invalid { what: "it cannot be written as JSON".to_owned(), cause: Some(error.into()) })
}

/// The source as it is stored; as it was, with what a newer version has added to it, where it is still that.
pub(crate) fn source(source: &Source, stored: &Value) -> Result<Value> {
    let same =
        value::<Source>(stored, || "the source of an app cannot be read".to_owned()).is_ok_and(|old| old == *source);
    if same { Ok(stored.clone()) } else { json(source) }
}

/// The policy as it is stored beside what a newer version has added to it.
pub(crate) fn policy(policy: &Policy, stored: &Value) -> Result<Value> {
    let mut fields = stored.as_object().cloned().unwrap_or_default();
    if let Value::Object(known) = json(policy)? {
        fields.extend(known);
    }
    Ok(Value::Object(fields))
}

/// Whether the app of this object is polled, so that it always has work.
pub(crate) fn is_polled(object: &AppObject) -> Result<bool> {
    let what = || format!("the policy of app {} cannot be read", named(object));
    value::<Policy>(&object.spec.policy, what).map(|policy| policy.poll.is_some())
}

/// The text that a value is written as.
fn text<T: Serialize>(value: &T) -> Result<String> {
    Ok(json(value)?.as_str().unwrap_or_default().to_owned())
}
