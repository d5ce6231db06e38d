//! Apps, deploys and what goes with them, made from a word or a number, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use rollhook_core::{
    app::{App, AppId, AppUid, Hold, Policy, Settings, Source, Target},
    configuration::{Configuration, ConfigurationId, SALT_BYTES, Variable, Variables, VariablesChange},
    deploy::{
        Actor, AdmissionId, Deploy, Evidence, Order, Origin, Reason, Revision, Scale, State, Trigger, WorkloadEnd,
        WorkloadEvidence,
    },
    image::{Digest, ImageRef},
    ledger::{Admission, Admitted, Change, KeyLookup, NewDeploy},
    lock::{Lock, Locks},
    replica::ReplicaId,
    request::{IdempotencyKey, KeyHeader},
    requirement::{Requirement, RequirementCopies},
    source::GitSource,
    time::Timestamp,
    token::Token,
};
use rollhook_management::access::PrincipalKey;
use serde_json::{Value, json};

/// The namespaces of the suites' apps, for a backend on which each must exist before.
pub const NAMESPACES: [&str; 7] =
    ["shop-test", "shop-prod", "shop-test-2", "a-b-c", "line-test", "race-test", "other-test"];

/// An image app, `{project}-{environment}/{name}`, on a Deployment of its name; its uid follows from all three.
pub fn app(project: &str, environment: &str, name: &str) -> App {
    let id: AppId = format!("{project}-{environment}/{name}").parse().unwrap();
    // FNV-1a, so that other words make another uid, and the same ones the same.
    let words = [project, environment, name].join("/");
    let bits = words.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
    });
    App {
        id,
        uid: AppUid::from_bits(bits),
        project: project.parse().unwrap(),
        environment: environment.parse().unwrap(),
        source: Source::Image,
        target: target(name),
        policy: Policy::default(),
        holds: Vec::new(),
        locks: Locks::default(),
        requirements: RequirementCopies::default(),
        created_at: Timestamp::default(),
    }
}

/// A source, `https://git.example.com/shop/api.git`, with nothing out of the ordinary.
pub fn git_source() -> GitSource {
    GitSource {
        url: "https://git.example.com/shop/api.git".parse().unwrap(),
        branch: "main".parse().unwrap(),
        dockerfile: "Dockerfile".parse().unwrap(),
        context: ".".parse().unwrap(),
        image_repository: "registry.example.com/shop/api".parse().unwrap(),
        credentials: None,
    }
}

/// A lock of the person `ada`, until this time.
pub fn lock(until: Option<i64>) -> Lock {
    Lock {
        reason: "no deploys before the fair".parse().unwrap(),
        by: Actor::person("ada"),
        owner: PrincipalKey::of("name", &["ada"]),
        at: Timestamp::from_millis(1_000),
        until: until.map(Timestamp::from_millis),
    }
}

/// That images are signed by `ada@example.com`.
pub fn requirement() -> Requirement {
    let signer = "issuer=https://id.example.com,subject=ada@example.com".parse().unwrap();
    Requirement::new(vec![signer], None).unwrap()
}

/// A Deployment of this name with one container, `app`, that existed when the app was registered.
pub fn target(name: &str) -> Target {
    let settings = json!({ "kind": "Deployment", "name": name, "containers": ["app"] });
    Target { settings: self::settings(settings), ..Target::default() }
}

/// The settings that a JSON object holds.
pub fn settings(object: Value) -> Settings {
    serde_json::from_value(object).unwrap()
}

/// `registry.example.com/shop/api` with this tag.
pub fn image(tag: &str) -> ImageRef {
    format!("registry.example.com/shop/api:{tag}").parse().unwrap()
}

/// A digest of this byte, repeated.
pub fn digest(byte: u8) -> Digest {
    format!("sha256:{}", format!("{byte:02x}").repeat(32)).parse().unwrap()
}

/// The revision of this number.
pub fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

/// A webhook's deploy of the image of this tag.
pub fn deploy(tag: &str) -> NewDeploy {
    NewDeploy {
        image: Some(image(tag)),
        commit: Some(tag.parse().unwrap()),
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: None,
        unreleased: false,
        is_unproven: false,
        resolves: false,
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        trace: None,
        committed_at: None,
        order: Order::Unstated,
    }
}

/// A webhook's deploy of a commit that is to be built: 40 hexadecimal digits that follow from the number.
pub fn build(commit: u32) -> NewDeploy {
    NewDeploy { image: None, commit: Some(format!("{commit:040x}").parse().unwrap()), ..deploy("unbuilt") }
}

/// A person's rollback to this revision.
pub fn rollback(tag: &str, to: Revision) -> NewDeploy {
    NewDeploy {
        trigger: Trigger::Rollback,
        actor: Actor::person("alice"),
        from: Some(Origin::Revision(to)),
        effective: Some(to),
        ..deploy(tag)
    }
}

/// The service's own rollback to this revision, to put a failed rollout right.
pub fn restore(tag: &str, to: Revision) -> NewDeploy {
    NewDeploy { actor: Actor::Service, ..rollback(tag, to) }
}

/// The accept of a deploy that leaves the others alone; each call has an id of its own.
pub fn admission(deploy: NewDeploy) -> Admission {
    Admission::plain(admission_id(), deploy)
}

/// An id that no other accept has.
pub fn admission_id() -> AdmissionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    AdmissionId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The accept of a deploy under a key.
pub fn keyed(key: IdempotencyKey, deploy: NewDeploy) -> Admission {
    Admission { key: Some(key), ..admission(deploy) }
}

/// Accepts a deploy in a change, its key unread, and returns it.
///
/// # Panics
/// Where it is not accepted.
pub fn admit(change: &mut Change, admission: Admission, now: Timestamp) -> Deploy {
    let admitted = change.admit(admission, KeyLookup::Unread, now);
    let Admitted::New { deploy, .. } = admitted else { panic!("not accepted: {admitted:?}") };
    (*deploy).clone()
}

/// The state of a deploy that runs.
pub fn succeeded() -> State {
    State::Succeeded { note: None }
}

/// The state of a deploy that failed, without evidence.
pub fn failed() -> State {
    State::Failed { reason: Reason::new(Reason::DEADLINE), message: "It took too long.".to_owned(), evidence: None }
}

/// The state of a deploy that a person cancelled, with this message.
pub fn cancelled(message: &str) -> State {
    State::Cancelled { reason: Reason::new(Reason::CANCELLED), message: message.to_owned() }
}

/// The state of a deploy that rolls out since it was accepted.
pub fn rolling_out(deploy: &Deploy) -> State {
    State::RollingOut { since: deploy.created_at, outage: Default::default() }
}

/// As much evidence as a failed rollout may have, with text that some encodings cannot hold as it is.
pub fn evidence() -> Evidence {
    let line = "\u{1b}[31mpanic\u{1b}[0m \\ 'ü' \"\u{1f980}\" %s {} \t\r\n \u{0} ";
    Evidence {
        container: Some("app".to_owned()),
        pod: Some("api-7d9f-x2x".to_owned()),
        state: Some("terminated: exit code 1".to_owned()),
        events: vec![line.to_owned(); 10],
        log: (0..50).map(|number| format!("{number} {}", line.repeat(7))).collect(),
        workloads: (0..16)
            .map(|number| WorkloadEvidence {
                name: format!("Deployment/worker-{number}"),
                state: WorkloadEnd::Unfinished,
                message: line.to_owned(),
            })
            .collect(),
    }
}

/// An `Idempotency-Key` for a request that this byte stands for.
pub fn key(text: &str, request: u8) -> IdempotencyKey {
    IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [request; 32]).unwrap()
}

/// An `Idempotency-Key` of just this text, as a quoted header may carry it.
pub fn key_of(text: &str, request: u8) -> IdempotencyKey {
    IdempotencyKey { header: KeyHeader::IdempotencyKey, key: text.to_owned(), request: [request; 32] }
}

/// A hold on the image of this tag; the ledger sets its `by`.
pub fn hold(tag: &str) -> Hold {
    Hold { by: Revision::FIRST, image: Some(image(tag)), digest: None, commit: Some(tag.parse().unwrap()) }
}

/// A webhook token that follows from this byte.
pub fn token(seed: u8) -> Token {
    let step = seed.wrapping_mul(2).wrapping_add(3);
    let byte = |at: u8| seed.wrapping_mul(31).wrapping_add(at.wrapping_mul(step));
    let bytes: Vec<u8> = (0..Token::RANDOM_BYTES as u8).map(byte).collect();
    Token::from_random(&bytes).unwrap()
}

/// The replica of this name and boot id.
pub fn replica(name: &str, boot: u64) -> ReplicaId {
    ReplicaId { name: name.to_owned(), boot }
}

/// A configuration of this number with these variables. The numbers differ in the first digits of the id, as random ones do.
pub fn configuration(number: u128, variables: &[(&str, &str)]) -> Configuration {
    let set = variables
        .iter()
        .map(|(name, value)| (name.parse().expect("a variable's name"), Variable::new((*value).to_owned(), false)));
    let change = VariablesChange { set: set.collect(), ..VariablesChange::default() };
    let variables = change.apply(Variables::empty([7; SALT_BYTES])).expect("variables");
    Configuration::of(ConfigurationId(number << 88)).with(|configuration| configuration.variables = variables)
}
