//! Callers: they repeat calls that have a key, and hold the service to its answers.

use std::{collections::BTreeMap, sync::Arc};

use rollhook_core::{
    app::AppUid,
    delivery::Event,
    deploy::{Actor, Deploy, Revision, Status},
    request::{DeployRequest, Refusal},
    service::{Hinted, Outcome},
    token::Token,
};

use crate::{
    choices::Key,
    environment::Environment,
    requests::{Answer, Request, word},
    rules::Rules,
};

/// How often a call is made before its caller gives up.
const ATTEMPTS: u8 = 6;

/// A call, however often it is made.
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) request: Request,
    key: Key,
    attempts: u8,
    running: u8,
    /// Whether it may have had an effect that its caller was not told of.
    unknown: bool,
    accepted: Option<(AppUid, Revision)>,
    /// The number of times that its hint was noted.
    noted: u8,
    /// The turn in which it was made first.
    turn: u64,
    /// The caller's knowledge of the token that the call brings.
    token: TokenIs,
}

/// A caller's knowledge of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenIs {
    /// The only one, as long as the webhook was not touched since this turn.
    Good(u64),
    /// Replaced or removed for certain.
    Dead,
    Unknown,
}

struct Issued {
    token: Token,
    turn: u64,
    dead: bool,
}

/// All callers of a run.
pub(crate) struct Callers {
    environment: Arc<Environment>,
    calls: BTreeMap<u64, Call>,
    tokens: Vec<Issued>,
    /// Counts what happens to the webhook, and calls.
    turn: u64,
    /// The turn since which nothing has happened to the webhook but an answered enable, if so.
    good_since: Option<u64>,
    /// The turn of the last call that may change the webhook.
    last_touched: u64,
}

/// The caller's next act after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// The same call again.
    Again,
    /// A new token is there: calls with an old one must be refused.
    Probe,
    /// The app is there, and its webhook is to be opened.
    Enable,
}

impl Callers {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        Self {
            environment: Arc::clone(environment),
            calls: BTreeMap::new(),
            tokens: Vec::new(),
            turn: 0,
            good_since: None,
            last_touched: 0,
        }
    }

    /// The name of the next call.
    pub(crate) fn name(&self) -> String {
        format!("call-{}", self.calls.len() + 1)
    }

    /// How many calls there have been, for what no other call brings.
    pub(crate) fn count(&self) -> usize {
        self.calls.len()
    }

    /// A new call.
    pub(crate) fn call(&mut self, request: Request, key: Key) -> u64 {
        let (name, number) = (self.name(), self.calls.len() as u64);
        let (token, turn) = (TokenIs::Unknown, 0);
        let (attempts, running, noted) = (0, 0, 0);
        let call = Call { name, request, key, attempts, running, unknown: false, accepted: None, noted, turn, token };
        self.calls.insert(number, call);
        number
    }

    /// The call is made, once more; what is to be asked, and by whom.
    pub(crate) fn make(&mut self, number: u64) -> Option<(String, Request)> {
        let mut call = self.calls.remove(&number)?;
        let made = (call.attempts < ATTEMPTS).then(|| (call.name.clone(), call.request.clone()));
        if made.is_some() {
            self.environment.journal.count_if(call.attempts > 0, "rule 4: a call was repeated");
            if call.attempts == 0 {
                self.first(&mut call);
            }
            call.attempts += 1;
            call.running += 1;
        }
        self.calls.insert(number, call);
        made
    }

    /// Notes what is known when a call is made first: its answers are judged by that.
    fn first(&mut self, call: &mut Call) {
        self.turn += 1;
        call.turn = self.turn;
        if let Request::Post(token, _) | Request::Push(token, ..) | Request::Probe(token) = &call.request {
            call.token = self.known(token);
        }
        if touches_webhook(&call.request) {
            self.good_since = None;
            self.last_touched = call.turn;
        }
    }

    /// The newest token, or the oldest.
    pub(crate) fn token(&self, old: bool) -> Option<Token> {
        let issued = if old { self.tokens.first() } else { self.tokens.last() };
        issued.map(|issued| issued.token.clone())
    }

    pub(crate) fn are_calling(&self) -> bool {
        self.calls.values().any(|call| call.running > 0)
    }

    /// The replica died that was asked.
    pub(crate) fn cut_off(&mut self, number: u64) -> Next {
        let Some(call) = self.calls.get_mut(&number) else { return Next::Nothing };
        self.environment.journal.log(&call.name, || "is cut off".to_owned());
        self.environment.journal.count("rule 4: a call was cut off");
        call.running -= 1;
        call.unknown = true;
        if touches_webhook(&call.request) {
            self.good_since = None;
        }
        if call.key == Key::None { Next::Nothing } else { Next::Again }
    }

    /// The call was answered.
    pub(crate) fn answered(&mut self, number: u64, answer: Outcome<Answer>) -> Next {
        let environment = Arc::clone(&self.environment);
        let Some(mut call) = self.calls.remove(&number) else { return Next::Nothing };
        call.running -= 1;
        let next = match answer {
            Ok(answer) => {
                environment.journal.log(&call.name, || told(&answer));
                self.granted(&mut call, answer)
            }
            Err(refusal) => {
                environment.journal.log(&call.name, || format!("is refused: {refusal}"));
                self.refused(&mut call, &refusal)
            }
        };
        if touches_webhook(&call.request) && next == Next::Nothing {
            self.good_since = None;
        }
        self.calls.insert(number, call);
        next
    }

    fn granted(&mut self, call: &mut Call, answer: Answer) -> Next {
        let environment = Arc::clone(&self.environment);
        let journal = &environment.journal;
        journal.expect(call.token != TokenIs::Dead, || format!("{}: an old token was let in", call.name));
        journal.count_if(matches!(call.token, TokenIs::Good(_)), "rule 3: the new token was let in");
        match answer {
            Answer::Accepted(app, accepted) => {
                let rules = environment.rules.lock().unwrap();
                accepted_is_recorded(&rules, call, app, &accepted.deploy, &environment);
                let superseded = ended_by(&rules, app, accepted.deploy.revision);
                let gone = !rules.known.contains_key(&app);
                let right = gone || accepted.superseded.is_empty() || accepted.superseded == superseded;
                journal.expect(right, || format!("{}: superseded were {superseded:?}", call.name));
                journal.count_if(accepted.replayed, "rule 4: a repeated call was answered with its entry");
                journal.count_if(call.unknown, "rule 4: a call of unknown outcome was settled");
                let again = call.key == Key::Twice && call.attempts < 3;
                if again { Next::Again } else { Next::Nothing }
            }
            Answer::Registered(app, deploy) => {
                let rules = environment.rules.lock().unwrap();
                if let Some(deploy) = &deploy {
                    accepted_is_recorded(&rules, call, app, deploy, &environment);
                }
                let adopted = deploy.as_ref().is_some_and(|deploy| deploy.adopted);
                journal.count_if(adopted, "rule 5: a workload was adopted");
                journal.count_if(deploy.is_none(), "rule 5: an app waits for its first build");
                if matches!(call.request, Request::Register(0, ..)) { Next::Enable } else { Next::Nothing }
            }
            Answer::Token(secret) => {
                self.buries(call.turn);
                self.turn += 1;
                // One that was made later, and has been answered by now, may have come after it.
                let others = self.last_touched != call.turn
                    || self.calls.values().any(|other| other.running > 0 && touches_webhook(&other.request));
                self.good_since = (!others).then_some(self.turn);
                self.tokens.push(Issued { token: secret.token, turn: self.turn, dead: false });
                Next::Probe
            }
            Answer::Cancelled(app, deploy) => {
                let rules = environment.rules.lock().unwrap();
                let entry = entry(&rules, app, deploy.revision);
                let shown = deploy.without_evidence();
                let is =
                    deploy.status() == Status::Cancelled && entry.is_none_or(|entry| entry.without_evidence() == shown);
                journal.expect(is, || format!("{}: revision {} is not cancelled", call.name, deploy.revision));
                Next::Nothing
            }
            Answer::Decided(app, deploy) => {
                let rules = environment.rules.lock().unwrap();
                let of = |entry: &Deploy| entry.verification.as_ref().and_then(|all| all.decision.clone());
                let stored = entry(&rules, app, deploy.revision).map(of);
                let by = of(&deploy).is_some_and(|decision| decision.by == Actor::person(&call.name));
                journal.expect(by && stored.is_none_or(|stored| stored == of(&deploy)), || {
                    format!("{}: revision {} is not decided on", call.name, deploy.revision)
                });
                Next::Nothing
            }
            Answer::Hinted(hinted) => {
                call.noted += u8::from(hinted == Hinted::Noted);
                journal.count_if(call.noted == 2, "follow: a hint came twice");
                Next::Nothing
            }
            Answer::Changed => Next::Nothing,
            Answer::Nothing(_) => {
                journal.count("push: nothing was done");
                self.nothing_was_recorded(call);
                Next::Nothing
            }
            Answer::Done => {
                if matches!(call.request, Request::Disable | Request::Delete(_)) && touches_webhook(&call.request) {
                    self.buries(call.turn);
                    return Next::Probe;
                }
                Next::Nothing
            }
        }
    }

    fn refused(&mut self, call: &mut Call, refusal: &Refusal) -> Next {
        let journal = &self.environment.journal;
        journal.count(word(refusal));
        journal.expect(*refusal != Refusal::Internal, || format!("{}: something internal went wrong", call.name));
        journal.expect(*refusal != Refusal::KeyReused, || format!("{}: its key is another's", call.name));
        if *refusal == Refusal::Unauthorized {
            let good = matches!(call.token, TokenIs::Good(since) if self.good_since == Some(since));
            journal.expect(!good, || format!("{}: the only token was refused", call.name));
            journal.count_if(call.token == TokenIs::Dead, "rule 3: an old token was refused");
        }
        let away = matches!(refusal, Refusal::StoreUnavailable { .. } | Refusal::Busy);
        call.unknown |= *refusal == Refusal::StoreUnavailable { maybe_recorded: true };
        self.nothing_was_recorded(call);
        if away && call.key != Key::None { Next::Again } else { Next::Nothing }
    }

    /// Rule 4: who is told so is told the truth.
    fn nothing_was_recorded(&self, call: &Call) {
        let rules = self.environment.rules.lock().unwrap();
        if call.running == 0 && !call.unknown && call.accepted.is_none() {
            let made = rules.known.values().flat_map(|known| &known.history).find(|entry| is_of(entry, call));
            let told = || format!("{} was told that nothing was recorded", call.name);
            self.environment.journal.expect(made.is_none(), told);
        }
    }

    fn known(&self, token: &Token) -> TokenIs {
        let text = token.expose();
        match self.tokens.iter().find(|issued| issued.token.expose() == text) {
            Some(issued) if issued.dead => TokenIs::Dead,
            Some(issued) => match self.good_since.filter(|since| *since == issued.turn) {
                Some(since) => TokenIs::Good(since),
                None => TokenIs::Unknown,
            },
            None => TokenIs::Unknown,
        }
    }

    /// Notes that tokens issued before this turn must be refused.
    fn buries(&mut self, turn: u64) {
        self.tokens.iter_mut().filter(|issued| issued.turn < turn).for_each(|issued| issued.dead = true);
    }
}

fn touches_webhook(request: &Request) -> bool {
    match request {
        Request::Enable | Request::Disable => true,
        Request::Delete(id) => *id == crate::requests::id(0),
        Request::Register(app, ..) => *app == 0,
        Request::Post(..)
        | Request::Push(..)
        | Request::Probe(_)
        | Request::Deploy(..)
        | Request::Redeploy(..)
        | Request::Scale(..)
        | Request::Configure(..)
        | Request::Rollback(..)
        | Request::Run(..)
        | Request::EndRun(_)
        | Request::Cancel(..)
        | Request::Decide(..)
        | Request::Promote(_)
        | Request::Release
        | Request::Rebuild(..)
        | Request::Source(..)
        | Request::Workloads(..)
        | Request::Lock(..)
        | Request::Policy(..)
        | Request::Require(..)
        | Request::Hint(_) => false,
    }
}

fn entry(rules: &Rules, app: AppUid, revision: Revision) -> Option<&Deploy> {
    rules.known.get(&app)?.history.get(revision.get() as usize - 1)
}

fn ended_by(rules: &Rules, app: AppUid, by: Revision) -> Vec<Revision> {
    use rollhook_core::deploy::State;
    let ended =
        |entry: &&Deploy| matches!(entry.state, State::Superseded { by: other, rollback: true, .. } if other == by);
    let history = rules.known.get(&app).map(|known| &known.history);
    history.into_iter().flatten().filter(ended).map(|entry| entry.revision).collect()
}

/// Whether the entry is of this call: a person's by their name, CI's by the commit, which no other call brings.
fn is_of(entry: &Deploy, call: &Call) -> bool {
    let name = entry.actor.to_string();
    let told = name.strip_prefix("GitHub: ");
    told.unwrap_or(&name) == call.name
        || entry.actor == Actor::Ci && matches!(&call.request, Request::Post(_, request) if same_commit(request, entry))
}

/// Whether the entry is of another call by which the same host told of the same push.
fn was_told_before(entry: &Deploy, call: &Call) -> bool {
    let Request::Push(_, delivery, _) = &call.request else { return false };
    let Event::Push(push) = &delivery.event else { return false };
    let heads = push.updates.iter().filter_map(|update| update.head.as_ref());
    let brought = heads.filter(|head| entry.commit.as_ref().is_some_and(|commit| commit.may_be(&head.commit)));
    delivery.host.made(entry) && !is_of(entry, call) && brought.count() > 0
}

/// A git app's entry names its commit in full once that is known.
fn same_commit(request: &DeployRequest, entry: &Deploy) -> bool {
    request.commit.as_ref().zip(entry.commit.as_ref()).is_some_and(|(request, has)| request.may_be(has))
}

/// Rule 4: what was accepted is in the history, and a repeated call made nothing else.
fn accepted_is_recorded(rules: &Rules, call: &mut Call, app: AppUid, told: &Deploy, environment: &Environment) {
    if !rules.known.contains_key(&app) {
        return;
    }
    environment.journal.count("rule 4: an accept was looked up");
    let entry = entry(rules, app, told.revision).filter(|entry| entry.id == told.id);
    let before = entry.is_some_and(|entry| was_told_before(entry, call));
    environment.journal.count_if(before, "push: a change was told of again");
    let recorded = before || entry.is_some_and(|entry| is_of(entry, call));
    environment.journal.expect(recorded, || format!("{}: revision {} is not in the history", call.name, told.revision));
    let before = call.accepted.replace((app, told.revision)).filter(|(former, _)| *former == app);
    environment.journal.expect(before.is_none_or(|(_, revision)| revision == told.revision), || {
        format!("{}: accepted as {:?}, then as {}", call.name, before, told.revision)
    });
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(_, accepted) if accepted.replayed => format!("is told again: {}", accepted.deploy.revision),
        Answer::Accepted(_, accepted) => format!("is accepted as revision {}", accepted.deploy.revision),
        Answer::Registered(_, Some(deploy)) => format!("is registered, with revision {}", deploy.revision),
        Answer::Registered(_, None) => "is registered, and waits for a build".to_owned(),
        Answer::Token(_) => "has a new token".to_owned(),
        Answer::Decided(_, deploy) => format!("has decided on revision {}", deploy.revision),
        Answer::Cancelled(_, deploy) => format!("has cancelled revision {}", deploy.revision),
        Answer::Hinted(hinted) => format!("is answered: {hinted:?}"),
        Answer::Changed | Answer::Done => "is done".to_owned(),
        Answer::Nothing(why) => why.clone(),
    }
}
