//! Apps, deploys and what goes with them, made from a word or a number, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use rollhook_core::{
    app::{App, AppId, AppUid, Hold, Policy, Settings, Source, Target},
    deploy::{Actor, AdmissionId, Revision, Trigger},
    image::{Digest, ImageRef},
    ports::{Admission, NewDeploy, Replica},
    request::{IdempotencyKey, KeyHeader},
    source::GitSource,
    time::Timestamp,
    token::Token,
};
use serde_json::{Value, json};

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
        guard: 0,
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

/// A revision.
pub fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

/// A webhook's deploy of the image of this tag.
pub fn draft(tag: &str) -> NewDeploy {
    NewDeploy {
        image: Some(image(tag)),
        commit: Some(tag.parse().unwrap()),
        trigger: Trigger::Webhook,
        actor: Actor::ci(),
        from: None,
        effective: None,
        adopted: false,
    }
}

/// A person's rollback to this revision.
pub fn rollback(tag: &str, to: Revision) -> NewDeploy {
    NewDeploy {
        trigger: Trigger::Rollback,
        actor: Actor::named("alice"),
        from: Some(rollhook_core::deploy::Origin::Revision(to)),
        effective: Some(to),
        ..draft(tag)
    }
}

/// The service's own rollback to this revision, to put a failed rollout right.
pub fn restore(tag: &str, to: Revision) -> NewDeploy {
    NewDeploy { actor: Actor::auto(), ..rollback(tag, to) }
}

/// An accept of the draft, decided on the app as it was read; every call names itself anew.
pub fn admission(app: &App, draft: NewDeploy) -> Admission {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Admission {
        app: app.uid,
        id: AdmissionId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))),
        key: None,
        draft,
        guard: app.guard,
        after: None,
        supersede: false,
        hold: None,
    }
}

/// An `Idempotency-Key` for a request that this byte stands for.
pub fn key(text: &str, request: u8) -> IdempotencyKey {
    IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [request; 32]).unwrap()
}

/// A hold on the image of this tag; the store sets whose it is.
pub fn hold(tag: &str) -> Hold {
    Hold { by: Revision::FIRST, image: Some(image(tag)), digest: None, commit: Some(tag.parse().unwrap()) }
}

/// A webhook token that follows from this byte.
pub fn token(seed: u8) -> Token {
    let bytes: Vec<u8> = (0..Token::RANDOM_BYTES as u8).map(|at| seed.wrapping_mul(31).wrapping_add(at * 3)).collect();
    Token::from_random(&bytes).unwrap()
}

/// A replica.
pub fn replica(name: &str, incarnation: u64) -> Replica {
    Replica { name: name.to_owned(), incarnation }
}
