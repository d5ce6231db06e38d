//! What a choice does to a run.

use std::time::Duration;

use rollhook_core::{
    app::Source,
    deploy::{Commit, Revision},
    request::{DeployRequest, IdempotencyKey, RollbackRequest},
};

use crate::{
    asks::{self, WORKLOAD, Wanted, id},
    choices::{Ask, Choice, Expects, Key, Kind, Meddling, Step},
    faults::Trouble,
    images::image,
    rules::{Known, Wish, model},
    run::Run,
    sources,
};

impl Run {
    pub(crate) fn choose(&mut self, choice: &Choice) {
        let slots = self.slots.len();
        let seconds = |n: u8| Duration::from_secs(n.into());
        match choice {
            Choice::Pass(millis) => self.pass(Duration::from_millis(u64::from(*millis))),
            Choice::Ask { replica, ask, struck } => {
                struck.iter().for_each(|(nth, trouble)| self.arm(*replica, "", *nth, *trouble));
                self.ask(*replica % slots, ask);
            }
            Choice::Trouble { replica, call, nth, trouble } => self.arm(*replica, call, *nth, *trouble),
            Choice::Restart { replica, orderly: true, .. } => {
                self.stage.journal.count("fault: an orderly restart");
                self.slots[replica % slots].iter().for_each(|replica| replica.leave());
            }
            Choice::Restart { replica, orderly: false, after, renamed } => {
                self.stage.journal.count(if *renamed { "fault: replaced" } else { "fault: killed" });
                self.crash(replica % slots, seconds(*after), *renamed);
            }
            Choice::Cluster(meddling) => self.meddle(*meddling),
            Choice::Clock(by) => {
                self.stage.journal.count(if *by < 0 { "fault: clock set back" } else { "fault: clock set ahead" });
                self.stage.set_clock(i64::from(*by) * 1000);
                let now = self.now();
                // Leases are counted anew from here.
                self.slots.iter_mut().flatten().for_each(|replica| replica.able = replica.able.max(now));
            }
            Choice::Ahead { replica, by } => {
                if let Some(replica) = &self.slots[replica % slots] {
                    self.stage.journal.count("fault: a replica's clock jumped");
                    self.stage.own_jumps(seconds(*by));
                    replica.clock.jump(seconds(*by));
                }
            }
            Choice::Order(order) => self.order = *order,
        }
    }

    fn arm(&self, replica: usize, call: &'static str, nth: u8, trouble: Trouble) {
        if let Some(replica) = &self.slots[replica % self.slots.len()] {
            // A look is answered late only where it is meant: there are many more reads.
            let look = call == "heads.head" && matches!(trouble, Trouble::Stale);
            let any = !look && matches!(trouble, Trouble::Adrift(_) | Trouble::Stale | Trouble::Refused);
            replica.faults.arm(if any { "" } else { call }, if any { 0 } else { nth }, trouble);
        }
    }

    fn meddle(&mut self, meddling: Meddling) {
        let app = id(0);
        let Some(target) = self.known(0, |known| known.view.app.target.clone()) else { return };
        let cluster = &self.stage.cluster;
        let what = match meddling {
            Meddling::Reach(there) => {
                cluster.set_reachable(there);
                if there { "cluster: back" } else { "cluster: away" }
            }
            Meddling::Push => {
                cluster.push(&image("latest"));
                "cluster: a tag moved"
            }
            Meddling::Image => {
                cluster.meddle(&app, &target, &image("v9"));
                "cluster: somebody set another image"
            }
            Meddling::Remove => {
                cluster.delete(&app, &target);
                self.stage.rules.lock().unwrap().workload_is_gone(&app.namespace, WORKLOAD);
                "cluster: somebody removed the workload"
            }
            Meddling::Unsupported(is) => {
                cluster.set_unsupported(&app, &target, is.then_some("its strategy is OnDelete"));
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
                self.stage.builders.iter().for_each(|builder| builder.set_reachable(there));
                if there { "builder: back" } else { "builder: away" }
            }
            Meddling::LoseBuilds => {
                self.stage.builders.iter().for_each(|builder| builder.lose());
                self.stage.rules.lock().unwrap().builds_are_lost();
                "builder: its machine was lost"
            }
            Meddling::Scale(pods) => {
                cluster.scale(&app, &target, pods);
                "cluster: scaled"
            }
        };
        self.stage.journal.count(what);
    }

    pub(crate) fn move_head(&mut self, branch: u8, step: Step) {
        let mut rules = self.stage.rules.lock().unwrap();
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
        self.stage.set_head(branch, head);
    }

    /// Where the branch of an app's source is, or was so many moves ago; and its name.
    fn head(&self, app: usize, back: usize) -> Option<(String, Commit)> {
        let branch = self.known(app, |known| match &known.view.app.source {
            Source::Git(source) => Some(source.branch.as_str().to_owned()),
            Source::Image => None,
        });
        let mut rules = self.stage.rules.lock().unwrap();
        let branch = branch??;
        let commit = rules.moves(&branch).iter().rev().nth(back).cloned()??;
        Some((branch, commit))
    }

    fn known<T>(&self, app: usize, read: impl FnOnce(&Known) -> T) -> Option<T> {
        let rules = self.stage.rules.lock().unwrap();
        rules.known.values().find(|known| known.view.app.id == id(app)).map(read)
    }

    fn revision(&self, app: usize, back: usize) -> Option<Revision> {
        self.known(app, |known| known.history.iter().rev().nth(back).map(|entry| entry.revision)).flatten()
    }

    fn ask(&mut self, slot: usize, ask: &Ask) {
        let name = self.callers.name();
        let wanted = match ask {
            Ask::Post { tag, key, old_token } => {
                let token = self.callers.token(*old_token);
                token.map(|token| (Wanted::Post(token, self.deploy(0, tag, keyed(*key, &name))), *key))
            }
            Ask::Deploy { app, tag, key } => {
                Some((Wanted::Deploy(id(*app), self.deploy(*app, tag, keyed(*key, &name))), *key))
            }
            Ask::Rollback { app, back, expects, key } => {
                Some((self.rollback(*app, *back, *expects, keyed(*key, &name)), *key))
            }
            Ask::Cancel { app, back } => {
                self.revision(*app, *back).map(|revision| (Wanted::Cancel(id(*app), revision), Key::None))
            }
            Ask::Promote { key } => Some((Wanted::Promote(keyed(*key, &name)), *key)),
            Ask::Release => {
                self.stage.rules.lock().unwrap().releasing = true;
                Some((Wanted::Release, Key::None))
            }
            Ask::Policy { app, leave, hold_all, settle } => {
                Some((Wanted::Policy(id(*app), asks::policy(*leave, *hold_all, *settle)), Key::None))
            }
            Ask::Rebuild { app, back, key } => {
                let commit = back.map(|back| self.commit(*app, back));
                let known = commit != Some(None);
                known.then(|| (Wanted::Rebuild(id(*app), commit.flatten(), keyed(*key, &name)), *key))
            }
            Ask::Poll { app, on } => Some((Wanted::Policy(id(*app), asks::poll(*on)), Key::None)),
            Ask::Head { app, ci, key } => self.head(*app, 0).map(|(_, commit)| {
                let token = self.callers.token(false).filter(|_| *ci && *app == 0 && !self.posted.contains(&commit));
                let request = DeployRequest { image: None, commit: Some(commit.clone()), key: keyed(*key, &name) };
                let wanted = match token {
                    Some(token) => {
                        self.posted.insert(commit);
                        Wanted::Post(token, request)
                    }
                    None => Wanted::Deploy(id(*app), request),
                };
                (wanted, *key)
            }),
            Ask::Tell { back, key } => self.head(0, *back).zip(self.callers.token(false)).map(|(told, token)| {
                let (branch, commit) = told;
                (Wanted::Push(token, sources::delivery(&name, branch, commit), keyed(*key, &name)), *key)
            }),
            Ask::Source { app, to } => Some((Wanted::Source(id(*app), sources::change(*to)), Key::None)),
            Ask::Enable => Some((Wanted::Enable, Key::None)),
            Ask::Disable => Some((Wanted::Disable, Key::None)),
            Ask::Delete { app } => {
                self.stage.rules.lock().unwrap().deleting.insert(id(*app));
                Some((Wanted::Delete(id(*app)), Key::None))
            }
            Ask::Register { app, take_over } => Some((Wanted::Register(*app, *take_over, self.kind(*app)), Key::None)),
        };
        let Some((wanted, key)) = wanted else { return };
        let call = self.callers.call(wanted, key);
        self.make(call, slot);
        if key == Key::Twice {
            self.make(call, slot + 1);
        }
    }

    /// What CI or a person brings to an app of its kind.
    fn deploy(&self, app: usize, tag: &str, key: Option<IdempotencyKey>) -> DeployRequest {
        match self.kind(app) {
            Kind::Image => asks::deploy(tag, &self.callers.name(), key),
            Kind::Git | Kind::BareGit => sources::deploy(tag, self.callers.count(), key),
        }
    }

    fn commit(&self, app: usize, back: usize) -> Option<Commit> {
        self.known(app, |known| known.history.iter().rev().nth(back).and_then(|entry| entry.commit.clone())).flatten()
    }

    fn rollback(&mut self, app: usize, back: Option<usize>, expects: Expects, key: Option<IdempotencyKey>) -> Wanted {
        let revision = back.and_then(|back| self.revision(app, back));
        let digest = |known: &Known| known.history.iter().rev().nth(back?)?.digest.clone();
        let pinned = self.known(app, digest).flatten().is_some();
        let current = |known: &Known| model::current(&known.history).map(|entry| entry.revision);
        let if_current = match expects {
            Expects::Anything => None,
            Expects::Current => self.known(app, current).flatten(),
            Expects::Newest => self.revision(app, 0),
        };
        self.stage.rules.lock().unwrap().wishes.insert(self.callers.name(), Wish { revision, pinned, if_current });
        Wanted::Rollback(id(app), RollbackRequest { revision, if_current, key })
    }
}

fn keyed(key: Key, name: &str) -> Option<IdempotencyKey> {
    (key != Key::None).then(|| asks::key(name))
}

/// What is asked, in a line.
pub(crate) fn told(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Post(_, request) | Wanted::Deploy(_, request) => {
            let commit = request.commit.as_ref().map(Commit::as_str).unwrap_or_default();
            format!("deploy {} {commit}", request.image.as_ref().and_then(|image| image.tag()).unwrap_or_default())
        }
        Wanted::Push(_, delivery, _) => format!("{:?}", delivery.event),
        Wanted::Probe(_) => "is this old token still good?".to_owned(),
        Wanted::Rollback(id, request) => {
            format!("roll {id} back, to {:?}, if current is {:?}", request.revision, request.if_current)
        }
        Wanted::Cancel(id, revision) => format!("cancel revision {revision} of {id}"),
        Wanted::Promote(_) => "promote".to_owned(),
        Wanted::Rebuild(id, commit, _) => format!("build {commit:?} of {id} again"),
        Wanted::Source(id, change) => format!("change the source of {id}: {change:?}"),
        Wanted::Release => "release the holds".to_owned(),
        Wanted::Policy(id, change) => format!("change the policy of {id}: {change:?}"),
        Wanted::Enable => "a new token".to_owned(),
        Wanted::Disable => "close the webhook".to_owned(),
        Wanted::Delete(id) => format!("delete {id}"),
        Wanted::Register(app, take_over, kind) => {
            format!("register {} of {kind:?}, take over: {take_over}", id(*app))
        }
    }
}
