//! What people and CI ask for, and what they must get, read off the whole history.

use rollhook_core::{
    app::HoldPolicy,
    decide::{
        admission,
        target::{self, Target},
    },
    deploy::{Actor, Deploy, Reason, Revision, State, Status, Trigger},
    ports::{Admitted, History, Record, View},
    request::{Cause, DeployRequest, Refusal},
};

use crate::{
    choices::{By, Image},
    world::{World, at_once},
};

impl World {
    pub(crate) fn deploy(&mut self, image: Image, by: By) {
        let view = self.view();
        let cause = match by {
            By::Ci => Cause { trigger: Trigger::Webhook, actor: Actor::ci() },
            By::Person => Cause { trigger: Trigger::Manual, actor: Actor::named("alice") },
            By::Found => Cause { trigger: Trigger::Git, actor: Actor::auto() },
        };
        let request = DeployRequest { image: Some(image.reference()), commit: None, key: None };
        match admission::deploy(&view.app, &request, &cause) {
            Ok(accepted) => {
                assert!(!is_held(&view, image, by), "what was rolled away from came back");
                let admitted = self.admit(&view, accepted.draft, None, false, None);
                let full = view.unfinished.len() >= rollhook_core::ports::UNFINISHED_MAX;
                assert!(matches!(admitted, Admitted::New { .. }) || full, "{admitted:?}");
                self.written();
            }
            Err(Refusal::ImageHeld { .. }) => assert!(is_held(&view, image, by), "nothing holds it"),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(crate) fn roll_back(&mut self, back: Option<u8>) {
        let (view, history) = (self.view(), self.history());
        let named = back.and_then(|back| history.iter().rev().nth(back.into())).cloned();
        let meant = named.clone().or_else(|| meant(&history));
        let target = named.or_else(|| match target::default_target(&view) {
            Target::Entry(entry) => Some(*entry),
            Target::Before { below, other_than } => {
                let mut good = history.iter().rev().filter(|d| d.revision < below && d.status() == Status::Succeeded);
                good.find(|deploy| !deploy.same_image(&other_than)).cloned()
            }
            Target::None => None,
        });
        assert_eq!(target, meant, "another version than the rules name");
        let Some(target) = target else { return };
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::named("alice") };
        let draft = target::rollback(&target, &cause).expect("every entry of an image app has an image");
        assert_eq!(draft.image, target.pinned_image(), "the same bits, where they are known");
        let hold = target::hold(&view, &target);
        let top = view.on_cluster.as_ref().filter(|top| !top.same_image(&target));
        assert_eq!(hold.as_ref().map(|hold| &hold.image), top.map(|top| &top.image), "what it goes away from is held");
        match self.admit(&view, draft, Some(view.last), true, hold) {
            Admitted::New { deploy, superseded } => {
                assert_eq!(deploy.effective, target.effective);
                let unfinished: Vec<Revision> = view.unfinished.iter().map(|deploy| deploy.revision).collect();
                assert_eq!(superseded, unfinished);
            }
            other => panic!("{other:?}"),
        }
        self.written();
    }

    pub(crate) fn cancel(&mut self, back: u8) {
        let entry = self.history().into_iter().rev().nth(back.into());
        let Some(entry) = entry.filter(|deploy| !deploy.is_terminal()) else { return };
        let state = State::Cancelled { reason: Reason::new(Reason::CANCELLED), message: "alice cancelled it.".into() };
        let record =
            Record { app: self.uid, claim: None, changes: vec![entry.moved(state)], lift: Vec::new(), rest: false };
        at_once(self.store.record(record)).expect("it was read just now");
        self.written();
    }
}

/// Rule 10.
fn meant(history: &[Deploy]) -> Option<Deploy> {
    let newest_good = |wanted: &dyn Fn(&Deploy) -> bool| {
        history.iter().rev().find(|deploy| deploy.status() == Status::Succeeded && wanted(deploy)).cloned()
    };
    let top = history.iter().rev().find(|deploy| deploy.touched)?;
    let before = || newest_good(&|deploy| deploy.revision < top.effective && !deploy.same_image(top));
    match (top.trigger == Trigger::Rollback, top.status()) {
        (_, Status::Succeeded) | (true, Status::Failed) => before(),
        (true, Status::Queued | Status::Building | Status::RollingOut) => Some(top.clone()),
        _ => newest_good(&|_| true),
    }
}

/// Rule 11: automation never, CI where the app says so, a person always.
fn is_held(view: &View, image: Image, by: By) -> bool {
    let bound = match by {
        By::Found => true,
        By::Ci => view.app.policy.hold == HoldPolicy::All,
        By::Person => false,
    };
    let digest = image.digest();
    bound
        && view.app.holds.iter().any(|hold| {
            let held = hold.image.as_ref().expect("an image app's hold");
            match (hold.digest.as_ref().or(held.digest()), &digest) {
                (Some(held), Some(given)) => held == given,
                _ => held.tag() == Some(image.tag.name()),
            }
        })
}
