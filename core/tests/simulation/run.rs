//! One run: replicas, callers and troubles on one environment, in one thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use rollhook_core::{check::WithoutVerdict, deploy::Commit, service::Outcome};

use crate::{
    broken::Promise,
    callers::{Callers, Next},
    choices::{Ask, Key, Kind, Scenario, Step},
    environment::Environment,
    executor::Executor,
    faults::Signal,
    journal::Tally,
    recording_ports::Life,
    replica::{POLL, Replica},
    requests::{self, Answer, Request},
    sources,
    verifying::{self, Checks},
    workloads::{self, Also},
};

/// More than any run needs: one that does more has no end.
const POLLS_MAX: u64 = 400_000;
const NAMES: [&str; 3] = ["one", "two", "three"];

/// The outcome of a run.
pub(crate) struct Ended {
    pub(crate) broken: Option<String>,
    pub(crate) tally: Tally,
    pub(crate) log: Vec<String>,
}

/// An event that is due at a time.
enum Due {
    /// A paused life goes on.
    Resume(u64),
    /// A replica's next life begins.
    Start(usize, String),
    /// A call is made, by way of a replica.
    Call(u64, usize),
}

type Answers = Arc<Mutex<Vec<(u64, Outcome<Answer>)>>>;

pub(crate) struct Run {
    pub(crate) environment: Arc<Environment>,
    pub(crate) callers: Callers,
    pub(crate) slots: Vec<Option<Replica>>,
    pub(crate) order: usize,
    /// Whether some read was answered with what had been.
    pub(crate) stale: bool,
    kinds: [Kind; 2],
    also: [Also; 3],
    /// How many commits were pushed.
    pub(crate) pushes: usize,
    /// The commits of these that CI has deployed.
    pub(crate) posted: BTreeSet<Commit>,
    tasks: Executor,
    calling: BTreeMap<u64, u64>,
    answers: Answers,
    agenda: BTreeMap<(Duration, u64), Due>,
    sequence: u64,
    polls: u64,
}

/// Plays a scenario, on sound backends or on ones that break a promise.
pub(crate) fn play(scenario: &Scenario, promise: Option<Promise>, told: bool) -> Ended {
    let mut run = Run::new(scenario, promise, told);
    run.begin(scenario);
    for choice in &scenario.choices {
        if run.is_over() {
            break;
        }
        run.environment.journal.log("—", || format!("{choice:?}"));
        run.choose(choice);
        run.pass(Duration::ZERO);
    }
    run.quieten();
    let (broken, tally, log) = run.environment.journal.close();
    Ended { broken, tally, log }
}

impl Run {
    fn new(scenario: &Scenario, promise: Option<Promise>, told: bool) -> Self {
        let replicas = scenario.replicas;
        let environment = Arc::new(Environment::new(told, promise));
        workloads::seed(&environment.cluster, &scenario.own);
        if scenario.resolves {
            environment.cluster.fetch_images();
        }
        let callers = Callers::new(&environment);
        let mut run = Self {
            environment,
            callers,
            slots: (0..replicas).map(|_| None).collect(),
            order: 0,
            stale: false,
            kinds: scenario.kinds,
            also: scenario.also,
            pushes: 0,
            posted: BTreeSet::new(),
            tasks: Executor::default(),
            calling: BTreeMap::new(),
            answers: Answers::default(),
            agenda: BTreeMap::new(),
            sequence: 0,
            polls: 0,
        };
        (0..replicas).for_each(|slot| run.start(slot, NAMES[slot].to_owned()));
        run
    }

    fn begin(&mut self, scenario: &Scenario) {
        for app in 0..2 {
            self.request(self.registration(app, false));
        }
        if scenario.settled && self.kind(0) == Kind::BareGit {
            self.pass(Duration::from_secs(1));
            let request = sources::deploy("v1", self.callers.count(), None);
            self.request(Request::Deploy(requests::id(0), request));
            self.pass(sources::BUILD);
        }
        let rollouts = 8 + 4 * self.also[0].len() as u64;
        self.pass(Duration::from_secs(if scenario.settled { rollouts } else { 0 }));
        if scenario.polled && self.kind(0) != Kind::Image {
            self.request(Request::Policy(requests::id(0), requests::poll(true)));
            for tag in ["v1", "v2"] {
                self.move_head(0, Step::New(tag));
                self.pass(if scenario.settled { POLL + sources::BUILD + Duration::from_secs(8) } else { POLL });
            }
        }
        if !scenario.polled && self.kind(0) != Kind::Image {
            ["v1", "v2", "v1"].into_iter().for_each(|tag| self.move_head(0, Step::New(tag)));
        }
        if let Some(signer) = scenario.signed.filter(|_| scenario.resolves) {
            self.request(Request::Policy(requests::id(0), requests::sign(Some(signer))));
        }
        if scenario.followed && scenario.resolves && self.kind(0) == Kind::Image {
            self.request(Request::Policy(requests::id(0), requests::follow(true)));
            self.pass(POLL);
            self.environment.rules.lock().unwrap().published.publish("v2", false);
            self.pass(if scenario.settled { 2 * POLL + Duration::from_secs(8) } else { POLL });
        }
        if let Some(checks) = scenario.checks {
            self.request(Request::Policy(requests::id(0), checks.policy()));
            self.pass(Duration::from_millis(200));
            if checks.without == WithoutVerdict::Ask {
                self.begin_with_questions(checks, rollouts);
            } else if checks.deploys && self.kind(0) == Kind::Image {
                self.deploy_at_the_beginning("v2", rollouts);
            }
        }
        if scenario.leave || scenario.hold_all {
            let request = Request::Policy(requests::id(0), requests::policy(scenario.leave, scenario.hold_all, 3));
            self.request(request);
        }
    }

    /// Makes a call without a key, by way of the first replica.
    fn request(&mut self, request: Request) {
        let call = self.callers.call(request, Key::None);
        self.make(call, 0);
    }

    fn deploy_at_the_beginning(&mut self, tag: &str, seconds: u64) {
        let request = Request::Deploy(requests::id(0), self.deploy(0, tag, None));
        self.request(request);
        self.pass(Duration::from_secs(seconds));
    }

    /// A version of which nobody knows whether it serves asks a person; once that one has decided, the next version asks.
    fn begin_with_questions(&mut self, checks: Checks, rollouts: u64) {
        if self.kind(0) != Kind::Image {
            return;
        }
        self.environment.provider.set(verifying::Answers::Emptily);
        let asked = rollouts + u64::from(checks.verify_for) + 5 * u64::from(checks.failures);
        // The first one serves for ever, and the other one for a while.
        self.deploy_at_the_beginning("v1", asked);
        let Some(passes) = checks.decides else { return };
        self.ask(0, &Ask::Decide { app: 0, back: None, passes });
        self.pass(Duration::from_secs(2 * rollouts));
        self.deploy_at_the_beginning("v2", asked);
    }

    /// The registration of an app.
    pub(crate) fn registration(&self, app: usize, take_over: bool) -> Request {
        Request::Register(app, take_over, self.kind(app), self.also[app])
    }

    /// The kind that an app is registered as.
    pub(crate) fn kind(&self, app: usize) -> Kind {
        match app {
            0 => self.kinds[0],
            1 => Kind::Image,
            _ => self.kinds[1],
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.environment.journal.is_broken()
    }

    pub(crate) fn now(&self) -> Duration {
        self.environment.time.now()
    }

    /// Lets all replicas go on until this much time has passed and none of them can go on.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now() + span;
        while !self.is_over() {
            self.hear();
            let running = |slot: usize| self.slots[slot].as_ref().is_some_and(|replica| !replica.paused);
            if let Some(task) = self.tasks.next(self.order, running) {
                self.poll(task);
                continue;
            }
            let times = [
                self.environment.time.next(),
                self.environment.next_arrival(),
                self.agenda.keys().next().map(|(at, _)| *at),
            ];
            let next = times.into_iter().flatten().min().filter(|at| *at <= end);
            self.environment.time.advance(next.unwrap_or(end));
            self.orphans();
            let Some(_) = next else { return };
            self.environment.arrive();
            self.happen();
        }
    }

    fn poll(&mut self, task: u64) {
        self.polls += 1;
        self.environment.journal.expect(self.polls < POLLS_MAX, || "there is no end in sight".to_owned());
        self.environment.set_caller(self.calling.contains_key(&task));
        let ended = self.tasks.poll(task);
        for slot in 0..self.slots.len() {
            let Some(replica) = &mut self.slots[slot] else { continue };
            if let Some(time) = replica.faults.disturbed() {
                replica.able = replica.able.max(self.environment.time.now() + time);
            }
            match replica.faults.signal() {
                Some(Signal::Crash) => self.crash(slot, Duration::from_secs(2), false),
                Some(Signal::Pause(time)) => self.pause(slot, time),
                None if ended && replica.engine == task => self.crash(slot, Duration::from_secs(3), false),
                None => {}
            }
        }
    }

    /// Passes on the answers that have come.
    fn hear(&mut self) {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        for (call, answer) in answers {
            let next = self.callers.answered(call, answer);
            self.follow(call, next);
        }
    }

    fn follow(&mut self, call: u64, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Again => self.at(Duration::from_secs(1), Due::Call(call, (call + 1) as usize)),
            Next::Enable => {
                let call = self.callers.call(Request::Enable, Key::None);
                self.make(call, call as usize);
            }
            Next::Probe => {
                let Some(token) = self.callers.token(true) else { return };
                for slot in 0..self.slots.len() {
                    let call = self.callers.call(Request::Probe(token.clone()), Key::None);
                    self.make(call, slot);
                }
            }
        }
    }

    fn at(&mut self, after: Duration, due: Due) {
        self.sequence += 1;
        self.agenda.insert((self.now() + after, self.sequence), due);
    }

    /// Whether nothing is going to happen by itself.
    pub(crate) fn nothing_is_due(&self) -> bool {
        self.agenda.is_empty()
    }

    fn happen(&mut self) {
        while let Some(first) = self.agenda.first_entry().filter(|first| first.key().0 <= self.environment.time.now()) {
            match first.remove() {
                Due::Resume(life) => {
                    let now = self.now();
                    for replica in self.slots.iter_mut().flatten().filter(|replica| replica.life.number == life) {
                        self.environment.journal.log(&replica.life.name, || "goes on".to_owned());
                        (replica.paused, replica.able) = (false, replica.able.max(now));
                    }
                }
                Due::Start(slot, name) if self.slots[slot].is_none() => self.start(slot, name),
                Due::Start(..) => {}
                Due::Call(call, slot) => self.make(call, slot),
            }
        }
    }

    fn start(&mut self, slot: usize, name: String) {
        self.sequence += 1;
        let mut replica = Replica::new(&self.environment, Life { number: self.sequence, name });
        self.environment.journal.log(&replica.life.name, || "starts".to_owned());
        replica.engine = self.tasks.spawn(slot, replica.run());
        self.slots[slot] = Some(replica);
    }

    /// Ends a replica's life; what it was doing is not done any more.
    pub(crate) fn crash(&mut self, slot: usize, after: Duration, renamed: bool) {
        let Some(replica) = self.slots[slot].take() else { return };
        self.environment.journal.log(&replica.life.name, || "is no more".to_owned());
        let next = if renamed { format!("{}'", replica.life.name) } else { replica.life.name.clone() };
        for task in self.tasks.kill(slot) {
            if let Some(call) = self.calling.remove(&task) {
                let next = self.callers.cut_off(call);
                self.follow(call, next);
            }
        }
        self.at(after, Due::Start(slot, next));
    }

    pub(crate) fn pause(&mut self, slot: usize, time: Duration) {
        let Some(replica) = &mut self.slots[slot] else { return };
        replica.paused = true;
        let life = replica.life.number;
        self.at(time, Due::Resume(life));
    }

    /// Makes a call, by way of this replica or the next one that lives.
    pub(crate) fn make(&mut self, call: u64, slot: usize) {
        let count = self.slots.len();
        let Some(slot) = (slot..slot + count).map(|slot| slot % count).find(|slot| self.slots[*slot].is_some()) else {
            self.at(Duration::from_secs(2), Due::Call(call, slot));
            return;
        };
        let Some((name, request)) = self.callers.make(call) else { return };
        let Some(replica) = &self.slots[slot] else { return };
        if matches!(request, Request::Enable) {
            self.environment.rules.lock().unwrap().enables += 1;
        }
        self.environment
            .journal
            .log(&name, || format!("asks {}: {}", replica.life.name, crate::apply_choice::told(&request)));
        let (answers, deployer) = (Arc::clone(&self.answers), Arc::clone(&replica.deployer));
        let task = self.tasks.spawn(slot, async move {
            let answer = Box::pin(request.send(deployer, name)).await;
            answers.lock().unwrap().push((call, answer));
        });
        self.calling.insert(task, call);
    }

    /// Rule 6: work is never without an owner for long while a replica lives.
    fn orphans(&mut self) {
        let alive = || self.slots.iter().flatten().filter(|replica| !replica.paused);
        let running: BTreeSet<u64> = alive().map(|replica| replica.life.number).collect();
        let able = alive().map(|replica| replica.able).min();
        let mut rules = self.environment.rules.lock().unwrap();
        let working = rules.at_work().collect();
        rules.owners.overdue(&working, &running, able, self.environment.time.now(), &self.environment.journal);
    }
}
