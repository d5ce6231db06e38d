//! The effect of a choice on a run.

use std::time::Duration;

use rollhook_core::{
    app::Source,
    deploy::{Commit, Revision, Ruling, Scale},
    request::{DeployRequest, IdempotencyKey, RedeployRequest, RollbackRequest, ScaleRequest},
    requirement::{RequirementCopy, RequirementScope, ScopedRequirement},
};

use crate::{
    choices::{Ask, Choice, Expects, Key, Kind, Meddling, Step},
    faults::InjectedFault,
    images::image,
    registry::Reading,
    requests::{self, Request, id},
    rules::{Known, Wish, model},
    run::Run,
    signatures::signed_by,
    sources,
    verifying::Answers,
    workloads::{self, LISTS, parts},
};

impl Run {
    pub(crate) fn choose(&mut self, choice: &Choice) {
        let slots = self.slots.len();
        let seconds = |n: u8| Duration::from_secs(n.into());
        match choice {
            Choice::Pass(millis) => self.pass(Duration::from_millis(u64::from(*millis))),
            Choice::Ask { replica, ask, struck } => {
                struck.iter().for_each(|(nth, fault)| self.arm(*replica, "", *nth, *fault));
                self.ask(*replica % slots, ask);
            }
            Choice::Fault { replica, call, nth, fault } => self.arm(*replica, call, *nth, *fault),
            Choice::Restart { replica, orderly: true, .. } => {
                self.environment.journal.count("fault: an orderly restart");
                self.slots[replica % slots].iter().for_each(|replica| replica.leave());
            }
            Choice::Restart { replica, orderly: false, after, renamed } => {
                self.environment.journal.count(if *renamed { "fault: replaced" } else { "fault: killed" });
                self.crash(replica % slots, seconds(*after), *renamed);
            }
            Choice::Cluster(meddling) => self.meddle(*meddling),
            Choice::Clock(by) => {
                self.environment.journal.count(if *by < 0 {
                    "fault: clock set back"
                } else {
                    "fault: clock set ahead"
                });
                self.environment.set_clock(i64::from(*by) * 1000);
                let now = self.now();
                // Leases are counted anew from here.
                self.slots.iter_mut().flatten().for_each(|replica| replica.able = replica.able.max(now));
            }
            Choice::Ahead { replica, by } => {
                if let Some(replica) = &self.slots[replica % slots] {
                    self.environment.journal.count("fault: a replica's clock jumped");
                    self.environment.own_jumps(seconds(*by));
                    replica.clock.jump(seconds(*by));
                }
            }
            Choice::Order(order) => self.order = *order,
        }
    }

    fn arm(&self, replica: usize, call: &'static str, nth: u8, fault: InjectedFault) {
        if let Some(replica) = &self.slots[replica % self.slots.len()] {
            // A look is answered late only where it is meant: there are many more reads.
            let look = call == "branches.head" && matches!(fault, InjectedFault::Stale);
            let any =
                !look && matches!(fault, InjectedFault::Adrift(_) | InjectedFault::Stale | InjectedFault::Refused);
            replica.faults.arm(if any { "" } else { call }, if any { 0 } else { nth }, fault);
        }
    }

    fn meddle(&mut self, meddling: Meddling) {
        let app = id(0);
        let Some(parts) = self.known(0, |known| parts(&known.view.app.target)) else { return };
        let part = |number: usize| &parts[number % parts.len()];
        let cluster = &self.environment.cluster;
        let what = match meddling {
            Meddling::Reach(there) => {
                cluster.set_reachable(there);
                if there { "cluster: back" } else { "cluster: away" }
            }
            Meddling::Push => {
                cluster.push(&image("latest"));
                "cluster: a tag moved"
            }
            Meddling::Image(number) => {
                cluster.meddle(&app, &part(number).target, &image("v9"));
                "cluster: somebody set another image"
            }
            Meddling::Remove { part: number, anew } => {
                let part = part(number);
                cluster.delete(&app, &part.target);
                self.environment.rules.lock().unwrap().workload_is_gone(&app.namespace, &part.name);
                if anew {
                    cluster.seed(&app, &part.target, &workloads::anew());
                }
                if anew { "cluster: somebody made the workload anew" } else { "cluster: somebody removed the workload" }
            }
            Meddling::Unsupported(number, is) => {
                cluster.set_unsupported(&app, &part(number).target, is.then_some("its strategy is OnDelete"));
                "cluster: the workload cannot be rolled out"
            }
            Meddling::Head { branch, step } => {
                self.move_head(branch, step);
                match step {
                    Step::New(_) => "source: a push",
                    Step::Back(_) => "source: a branch was taken back",
                    Step::Gone => "source: a branch was deleted",
                }
            }
            Meddling::Builder(there) => {
                self.environment.builders.iter().for_each(|builder| builder.set_reachable(there));
                if there { "builder: back" } else { "builder: away" }
            }
            Meddling::LoseBuilds => {
                self.environment.builders.iter().for_each(|builder| builder.lose());
                self.environment.rules.lock().unwrap().builds_are_lost();
                "builder: its machine was lost"
            }
            Meddling::Provider(answers) => {
                self.environment.provider.set(answers);
                match answers {
                    Answers::Well => "checks: their provider answers",
                    Answers::Emptily => "checks: their provider has no data",
                    Answers::Never => "checks: their provider is away",
                    Answers::Broken => "checks: no replica can measure",
                }
            }
            Meddling::Registry(reading) => {
                self.environment.registry.set(reading);
                match reading {
                    Reading::Well => "registry: it answers",
                    Reading::Denied => "registry: it lets nobody read",
                    Reading::Away => "registry: it is away",
                }
            }
            Meddling::Publish { tag, below } => {
                self.environment.rules.lock().unwrap().published.publish(tag, below);
                if below { "registry: an older version was pushed" } else { "registry: a version was pushed" }
            }
            Meddling::Withdraw => {
                self.environment.rules.lock().unwrap().published.withdraw();
                "registry: a version was withdrawn"
            }
            Meddling::Sign => {
                self.environment.rules.lock().unwrap().all_are_signed();
                "registry: all images were signed"
            }
            Meddling::Scale(number, pods) => {
                cluster.scale(&app, &part(number).target, pods);
                "cluster: scaled"
            }
        };
        self.environment.journal.count(what);
    }

    pub(crate) fn move_head(&mut self, branch: u8, step: Step) {
        let mut rules = self.environment.rules.lock().unwrap();
        let moves = rules.moves(sources::branch(branch));
        let head = match step {
            Step::New(tag) => {
                self.pushes += 1;
                Some(sources::pushed(tag, self.pushes))
            }
            Step::Back(back) => moves.iter().rev().flatten().nth(back).cloned(),
            Step::Gone => None,
        };
        moves.push(head.clone());
        drop(rules);
        self.environment.set_head(branch, head);
    }

    /// Where the branch of an app's source is, or was so many moves ago; and its name.
    fn head(&self, app: usize, back: usize) -> Option<(String, Commit)> {
        let branch = self.known(app, |known| match &known.view.app.source {
            Source::Git(source) => Some(source.branch.as_str().to_owned()),
            Source::Image => None,
        });
        let mut rules = self.environment.rules.lock().unwrap();
        let branch = branch??;
        let commit = rules.moves(&branch).iter().rev().nth(back).cloned()??;
        Some((branch, commit))
    }

    fn known<T>(&self, app: usize, read: impl FnOnce(&Known) -> T) -> Option<T> {
        let rules = self.environment.rules.lock().unwrap();
        rules.known.values().find(|known| known.view.app.id == id(app)).map(read)
    }

    fn revision(&self, app: usize, back: usize) -> Option<Revision> {
        self.known(app, |known| known.history.iter().rev().nth(back).map(|entry| entry.revision)).flatten()
    }

    pub(crate) fn ask(&mut self, slot: usize, ask: &Ask) {
        let name = self.callers.name();
        let wanted = match ask {
            Ask::Post { tag, key, old_token } => {
                let token = self.callers.token(*old_token);
                let deploy = self.deploy(0, tag, keyed(*key, &name));
                let deploy = deploy.with(|deploy| deploy.order = requests::sequence(self.callers.count()).into());
                token.map(|token| (Request::Post(token, deploy), *key))
            }
            Ask::Deploy { app, tag, key } => {
                Some((Request::Deploy(id(*app), self.deploy(*app, tag, keyed(*key, &name))), *key))
            }
            Ask::Redeploy { app, expects, key } => Some((self.redeploy(*app, *expects, keyed(*key, &name)), *key)),
            Ask::Scale { app, stop, expects, key } => {
                Some((self.scale(*app, *stop, *expects, keyed(*key, &name)), *key))
            }
            Ask::Configure { app, variable, value, staged, expects, key } => {
                let if_current = self.expected(*app, *expects);
                self.wish(Wish { revision: None, pinned: false, if_current });
                let request = requests::configure(*app, (*variable, *value), *staged).with(|request| {
                    request.if_current = if_current;
                    request.key = keyed(*key, &name);
                });
                // A repeated call that was staged is decided anew.
                let key = if *staged && *key == Key::Twice { Key::Repeated } else { *key };
                Some((Request::Configure(id(*app), request), key))
            }
            Ask::Rollback { app, back, whole, expects, key } => {
                Some((self.rollback(*app, (*back, *whole), *expects, keyed(*key, &name)), *key))
            }
            Ask::Cancel { app, back } => {
                self.revision(*app, *back).map(|revision| (Request::Cancel(id(*app), revision), Key::None))
            }
            Ask::Decide { app, back, passes } => {
                let asking = |known: &Known| {
                    known.view.rolling_out().filter(|it| it.awaited_decision().is_some()).map(|it| it.revision)
                };
                let revision = match back {
                    Some(back) => self.revision(*app, *back),
                    None => self.known(*app, asking).flatten(),
                };
                let ruling = if *passes { Ruling::Pass } else { Ruling::Fail };
                revision.map(|revision| {
                    let mut rules = self.environment.rules.lock().unwrap();
                    rules.decisions.insert((id(*app), revision, name.clone(), ruling.as_str()));
                    (Request::Decide(id(*app), revision, ruling), Key::None)
                })
            }
            Ask::Run { app, word, key } => {
                Some((Request::Run(id(*app), requests::run(word, keyed(*key, &name))), *key))
            }
            Ask::EndRun { app } => Some((Request::EndRun(id(*app)), Key::None)),
            Ask::Promote { key } => Some((Request::Promote(keyed(*key, &name)), *key)),
            Ask::Release => {
                self.environment.rules.lock().unwrap().releasing = true;
                Some((Request::Release, Key::None))
            }
            Ask::Lock { app, lock } => Some((Request::Lock(id(*app), lock.map(requests::lock)), Key::None)),
            Ask::Policy { app, leave, hold_all, settle } => {
                Some((Request::Policy(id(*app), requests::policy(*leave, *hold_all, *settle)), Key::None))
            }
            Ask::Rebuild { app, back, key } => {
                let commit = back.map(|back| self.commit(*app, back));
                let known = commit != Some(None);
                known.then(|| (Request::Rebuild(id(*app), commit.flatten(), keyed(*key, &name)), *key))
            }
            Ask::Poll { app, on } => Some((Request::Policy(id(*app), requests::poll(*on)), Key::None)),
            Ask::Follow { app, on } => Some((Request::Policy(id(*app), requests::follow(*on)), Key::None)),
            Ask::Require { app, scope, signer } => Some((self.require(*app, *scope, *signer), Key::None)),
            Ask::Hint { app, twice } => {
                self.environment.journal.count("registry: a push was told of");
                self.environment.rules.lock().unwrap().published.hint(&id(*app));
                Some((Request::Hint(id(*app)), if *twice { Key::Twice } else { Key::None }))
            }
            Ask::Head { app, ci, back, key } => self.head(*app, *back).map(|(_, commit)| {
                let token = self.callers.token(false).filter(|_| *ci && *app == 0 && !self.posted.contains(&commit));
                let request = DeployRequest::commit(commit.clone()).with(|request| request.key = keyed(*key, &name));
                let wanted = match token {
                    Some(token) => {
                        self.posted.insert(commit);
                        Request::Post(token, request)
                    }
                    None => Request::Deploy(id(*app), request),
                };
                (wanted, *key)
            }),
            Ask::Tell { back, key } => self.head(0, *back).zip(self.callers.token(false)).map(|(told, token)| {
                let (branch, commit) = told;
                (Request::Push(token, sources::delivery(&name, branch, commit), keyed(*key, &name)), *key)
            }),
            Ask::Source { app, to } => Some((Request::Source(id(*app), sources::change(*to)), Key::None)),
            Ask::Workloads { app, list } => Some((Request::Workloads(id(*app), LISTS[*list]), Key::None)),
            Ask::Enable => Some((Request::Enable, Key::None)),
            Ask::Disable => Some((Request::Disable, Key::None)),
            Ask::Delete { app } => {
                self.environment.rules.lock().unwrap().deleting.insert(id(*app));
                Some((Request::Delete(id(*app)), Key::None))
            }
            Ask::Register { app, take_over } => Some((self.registration(*app, *take_over), Key::None)),
        };
        let Some((wanted, key)) = wanted else { return };
        let call = self.callers.call(wanted, key);
        self.make(call, slot);
        if key == Key::Twice {
            self.make(call, slot + 1);
        }
    }

    /// The deploy that CI or a person asks of an app of this kind.
    pub(crate) fn deploy(&self, app: usize, tag: &str, key: Option<IdempotencyKey>) -> DeployRequest {
        match self.kind(app) {
            Kind::Image => requests::deploy(tag, &self.callers.name(), key),
            Kind::Git | Kind::BareGit => sources::deploy(tag, self.callers.count(), key),
        }
    }

    fn commit(&self, app: usize, back: usize) -> Option<Commit> {
        self.known(app, |known| known.history.iter().rev().nth(back).and_then(|entry| entry.commit.clone())).flatten()
    }

    fn require(&mut self, app: usize, scope: RequirementScope, signer: Option<u8>) -> Request {
        let mut rules = self.environment.rules.lock().unwrap();
        rules.requirements += 1;
        let copy = RequirementCopy { requirement: signer.map(signed_by), sequence: rules.requirements };
        match scope {
            RequirementScope::App => Request::Policy(id(app), requests::sign(signer)),
            RequirementScope::Environment => Request::Require(id(app), ScopedRequirement::Environment(copy)),
            RequirementScope::Project => Request::Require(id(app), ScopedRequirement::Project(copy)),
        }
    }

    fn rollback(
        &mut self,
        app: usize,
        (back, whole): (Option<usize>, bool),
        expects: Expects,
        key: Option<IdempotencyKey>,
    ) -> Request {
        let revision = back.and_then(|back| self.revision(app, back));
        let digest = |known: &Known| known.history.iter().rev().nth(back?)?.digest.clone();
        let pinned = self.known(app, digest).flatten().is_some();
        let if_current = self.expected(app, expects);
        self.wish(Wish { revision, pinned, if_current });
        let request = RollbackRequest::default().with(|request| {
            request.revision = revision;
            request.if_current = if_current;
            request.with_configuration = whole && revision.is_some();
            // One in some does not know of release commands.
            request.past_releases = !self.callers.name().len().is_multiple_of(3) || revision.is_some();
            request.without_release = request.past_releases;
            request.key = key;
        });
        Request::Rollback(id(app), request)
    }

    fn redeploy(&mut self, app: usize, expects: Expects, key: Option<IdempotencyKey>) -> Request {
        let if_current = self.expected(app, expects);
        self.wish(Wish { revision: None, pinned: false, if_current });
        let request = RedeployRequest::default().with(|request| {
            request.if_current = if_current;
            request.key = key;
        });
        Request::Redeploy(id(app), request)
    }

    fn scale(&mut self, app: usize, stop: bool, expects: Expects, key: Option<IdempotencyKey>) -> Request {
        let if_current = self.expected(app, expects);
        self.wish(Wish { revision: None, pinned: false, if_current });
        let request = ScaleRequest::new(if stop { Scale::Stop } else { Scale::Start }).with(|request| {
            request.if_current = if_current;
            request.key = key;
        });
        Request::Scale(id(app), request)
    }

    /// Returns the revision that the next caller believes to be current.
    fn expected(&self, app: usize, expects: Expects) -> Option<Revision> {
        let current = |known: &Known| model::current(&known.history).map(|entry| entry.revision);
        match expects {
            Expects::Anything => None,
            Expects::Current => self.known(app, current).flatten(),
            Expects::Newest => self.revision(app, 0),
        }
    }

    /// Notes what the next caller wishes.
    fn wish(&self, wish: Wish) {
        self.environment.rules.lock().unwrap().wishes.insert(self.callers.name(), wish);
    }
}

fn keyed(key: Key, name: &str) -> Option<IdempotencyKey> {
    (key != Key::None).then(|| requests::key(name))
}

/// Returns a request in a line.
pub(crate) fn told(wanted: &Request) -> String {
    match wanted {
        Request::Post(_, request) | Request::Deploy(_, request) => {
            let commit = request.commit.as_ref().map(Commit::as_str).unwrap_or_default();
            format!("deploy {} {commit}", request.image.as_ref().and_then(|image| image.tag()).unwrap_or_default())
        }
        Request::Push(_, delivery, _) => format!("{:?}", delivery.event),
        Request::Probe(_) => "is this old token still good?".to_owned(),
        Request::Redeploy(id, request) => format!("redeploy {id}, if current is {:?}", request.if_current),
        Request::Scale(id, request) => format!("{} {id}, if current is {:?}", request.scale, request.if_current),
        Request::Configure(id, request) => {
            let when = if request.staged { " for the next deploy" } else { "" };
            format!("configure {id}{when}, if current is {:?}", request.if_current)
        }
        Request::Rollback(id, request) => {
            format!("roll {id} back, to {:?}, if current is {:?}", request.revision, request.if_current)
        }
        Request::Decide(id, revision, ruling) => format!("decide on revision {revision} of {id}: {ruling}"),
        Request::Cancel(id, revision) => format!("cancel revision {revision} of {id}"),
        Request::Run(id, request) => format!("run {:?} by hand on {id}", request.command),
        Request::EndRun(id) => format!("end the newest run by hand of {id}"),
        Request::Promote(_) => "promote".to_owned(),
        Request::Rebuild(id, commit, _) => format!("build {commit:?} of {id} again"),
        Request::Source(id, change) => format!("change the source of {id}: {change:?}"),
        Request::Workloads(id, also) => format!("change the further workloads of {id}: {also:?}"),
        Request::Release => "release the holds".to_owned(),
        Request::Lock(id, Some(lock)) => format!("lock {id} for {:?}", lock.ttl),
        Request::Lock(id, None) => format!("unlock {id}"),
        Request::Policy(id, change) => format!("change the policy of {id}: {change:?}"),
        Request::Require(id, place) => format!("require of {id}: {place:?}"),
        Request::Hint(id) => format!("tell {id} of a push to its repository"),
        Request::Enable => "a new token".to_owned(),
        Request::Disable => "close the webhook".to_owned(),
        Request::Delete(id) => format!("delete {id}"),
        Request::Register(app, take_over, kind, also) => {
            format!("register {} of {kind:?}, with {also:?}, take over: {take_over}", id(*app))
        }
    }
}
