//! What people and CI ask for, and what they must get, read off the whole history.

use rollhook_core::{
    app::HoldPolicy,
    deploy::{Actor, Deploy, Reason, Revision, State, Status, Trigger},
    ledger::{
        Admission, Admitted, AppState, ExpectedLatest, OtherDeploys, Record, UNFINISHED_MAX, admission,
        rollback::{self, Target},
    },
    request::{Cause, DeployRequest, Refusal},
};

use crate::{
    choices::{By, Image},
    world::World,
};

impl World {
    pub(crate) fn deploy(&mut self, image: Image, by: By) {
        let view = self.view();
        let cause = match by {
            By::Ci => Cause { trigger: Trigger::Webhook, actor: Actor::Ci },
            By::Person => Cause { trigger: Trigger::Manual, actor: Actor::person("alice") },
            By::Found => Cause { trigger: Trigger::Git, actor: Actor::Service },
        };
        let request = DeployRequest::image(image.reference());
        match admission::deploy(&view.app, &request, &cause) {
            Ok(decided) => {
                assert!(!is_held(&view, image, by), "what was rolled away from came back");
                let admission = Admission::plain(self.admission_id(), decided.deploy);
                let admitted = self.admit(admission);
                let full = view.unfinished.len() >= UNFINISHED_MAX;
                assert!(matches!(admitted, Admitted::New { .. }) != full, "{admitted:?}");
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
        let target = named.or_else(|| match rollback::default_target(&view) {
            Target::Entry(entry) => Some((*entry).clone()),
            Target::Before { below, other_than } => {
                let mut good = history.iter().rev().filter(|d| d.revision < below && d.status() == Status::Succeeded);
                good.find(|deploy| !deploy.same_image(&other_than)).cloned()
            }
            Target::None => None,
        });
        assert_eq!(target, meant, "another version than the rules name");
        let Some(target) = target else { return };
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::person("alice") };
        let deploy = rollback::deploy(&view, &target, &cause).expect("every entry of an image app has an image");
        assert_eq!(deploy.image, target.pinned_image(), "the same bits, where they are known");
        let hold = rollback::hold(&view, &target);
        let top = view.on_cluster().filter(|top| !top.same_image(&target));
        assert_eq!(hold.as_ref().map(|hold| &hold.image), top.map(|top| &top.image), "what it goes away from is held");
        let admission = Admission {
            expected: ExpectedLatest::Exactly(view.latest),
            others: OtherDeploys::EndSuperseded,
            hold,
            ..Admission::plain(self.admission_id(), deploy)
        };
        match self.admit(admission) {
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
        let record = Record { changes: vec![entry.moved(state)], ..Record::default() };
        self.commit(|change, now| change.record(record, now)).expect("it was read just now");
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
        (true, _) if !top.is_terminal() => Some(top.clone()),
        _ => newest_good(&|_| true),
    }
}

/// Rule 11: automation never, CI where the app says so, a person always.
fn is_held(view: &AppState, image: Image, by: By) -> bool {
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
