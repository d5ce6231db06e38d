//! A simulated verifier: checks of one kind, whose readings a test sets.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    app::Settings,
    check::{Check, CheckKind, CheckName, CheckSecret, Measurement, PastValue, Verdict},
    deploy::Revision,
    error::{Error, Result},
    ports::{CheckSetting, Clock, KindOfCheck, MeasureSpec, Measured, TimesBefore, Verifier},
    time::Timestamp,
};

/// The one kind of checks.
const KIND: &str = "simulated";
/// Its settings.
const SETTINGS: &[CheckSetting] = &[
    CheckSetting { name: "at_most", about: "The highest reading that passes; 0 by default.", required: false },
    CheckSetting {
        name: "secret_for",
        about: "The place that the secret is for; by default there is none.",
        required: false,
    },
    CheckSetting {
        name: "each_instance",
        about: "The port at which each instance is asked; by default none is.",
        required: false,
    },
];
/// The most characters that are read of an answer.
const READ_MAX: usize = 100;

/// What a check reads when it measures.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A value, which must be at most that of the check's setting.
    Value(f64),
    /// An answer without a value.
    NoData,
    /// An answer that cannot be read.
    Unreadable(String),
    /// No answer.
    Away,
    /// This process cannot measure.
    Broken,
}

/// A measurement that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The deploy that was verified.
    pub revision: Revision,
    /// The check.
    pub check: CheckName,
    /// The begin.
    pub at: Timestamp,
}

type Source = Arc<dyn Fn(&MeasureSpec) -> Reading + Send + Sync>;

/// A verifier whose readings come from a function: by app, deploy, image, check and time. By default each is 0.
pub struct SimulatedVerifier {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    source: Source,
    takes: Duration,
    reached: Vec<Reached>,
}

impl SimulatedVerifier {
    /// Returns a verifier on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let source: Source = Arc::new(|_| Reading::Value(0.0));
        Self { clock, state: Mutex::new(State { source, takes: Duration::ZERO, reached: Vec::new() }) }
    }

    /// Returns an enforced check that passes while its readings are at most this, every 15 s.
    pub fn check_of(name: CheckName, at_most: f64) -> Check {
        let mut settings = Settings::new();
        settings.insert("at_most".to_owned(), at_most.into());
        Check::new(name, kind(), settings)
    }

    /// Sets the source of all readings from now on.
    pub fn reads(&self, source: impl Fn(&MeasureSpec) -> Reading + Send + Sync + 'static) {
        self.lock().source = Arc::new(source);
    }

    /// Sets how long a measurement takes from now on.
    pub fn takes(&self, time: Duration) {
        self.lock().takes = time;
    }

    /// The measurements that were begun, in order.
    pub fn reached(&self) -> Vec<Reached> {
        self.lock().reached.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind() -> CheckKind {
    #[expect(clippy::unwrap_used, reason = "a label")]
    KIND.parse().unwrap()
}

fn at_most(settings: &Settings) -> std::result::Result<f64, String> {
    if let Some(other) = settings.keys().find(|key| SETTINGS.iter().all(|known| known.name != *key)) {
        return Err(format!("A simulated check has no setting {other}: it has at_most, secret_for and each_instance."));
    }
    let value = settings.get("at_most").map_or(Some(0.0), serde_json::Value::as_f64);
    value.ok_or_else(|| "at_most must be a number.".to_owned())
}

#[async_trait]
impl Verifier for SimulatedVerifier {
    fn describe(&self) -> Vec<KindOfCheck> {
        vec![KindOfCheck {
            kind: kind(),
            about: "A reading that a test sets.",
            settings: SETTINGS,
            secret: Some("Any text."),
        }]
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        if kind.as_str() != KIND {
            return Err(format!("There is no kind of checks {kind}: this server knows {KIND}."));
        }
        let mut complete = Settings::new();
        complete.insert("at_most".to_owned(), at_most(settings)?.into());
        complete.extend(self.secret_for(kind, settings).map(|place| ("secret_for".to_owned(), place.into())));
        complete.extend(self.instance_port(kind, settings).map(|port| ("each_instance".to_owned(), port.into())));
        Ok(complete)
    }

    fn secret_for(&self, _: &CheckKind, settings: &Settings) -> Option<String> {
        settings.get("secret_for")?.as_str().map(str::to_owned)
    }

    fn check_secret(&self, _: &CheckKind, _: &Settings, _: &CheckSecret) -> std::result::Result<(), String> {
        Ok(())
    }

    fn instance_port(&self, _: &CheckKind, settings: &Settings) -> Option<u16> {
        settings.get("each_instance")?.as_u64()?.try_into().ok()
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        let (source, takes) = {
            let mut state = self.lock();
            let reached = Reached { revision: spec.deploy.revision, check: spec.check.name.clone(), at: spec.now };
            state.reached.push(reached);
            (Arc::clone(&state.source), state.takes)
        };
        let most = at_most(&spec.check.settings).map_err(Error::invalid)?;
        let reading = source(spec);
        let wait = if reading == Reading::Away { spec.check.timeout } else { takes };
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        let none = |message: &str| Measurement::new(spec.now, Verdict::None, message);
        let measurement = match reading {
            Reading::Value(value) if value.is_nan() => none("The reading is no number."),
            Reading::Value(value) => {
                let verdict = if value <= most { Verdict::Pass } else { Verdict::Fail };
                Measurement::new(spec.now, verdict, &format!("The reading is {value}.")).of(&value.to_string())
            }
            Reading::NoData => none("There is no data."),
            Reading::Unreadable(text) => {
                none(&format!("The answer cannot be read: {}", text.chars().take(READ_MAX).collect::<String>()))
            }
            Reading::Away => none("The provider does not answer."),
            Reading::Broken => {
                return Err(Error::Unavailable { what: "the verifier is broken".to_owned(), cause: None });
            }
        };
        Ok(Measured { request: format!("read {}", spec.check.name), condition: format!("<= {most}"), measurement })
    }

    async fn values_before(&self, spec: &MeasureSpec, times: &TimesBefore) -> Vec<PastValue> {
        let source = Arc::clone(&self.lock().source);
        let mut values = Vec::new();
        for at in times.all() {
            let value = match source(&spec.clone().with(|spec| spec.now = at)) {
                Reading::Value(value) => Some(value.to_string()),
                Reading::NoData | Reading::Unreadable(_) => None,
                Reading::Away => {
                    self.clock.sleep(spec.check.timeout).await;
                    return Vec::new();
                }
                Reading::Broken => return Vec::new(),
            };
            values.push(PastValue { at, value });
        }
        values
    }
}
