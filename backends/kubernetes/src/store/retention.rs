//! How long entries are kept: the newest, and all that something still depends on.
//!
//! From each version a rollback leads to the newest before it with another image, from that to the next, and so on: of
//! this chain the first ten are kept, however often one image succeeded in between.

use std::time::Duration;

use futures_util::future::try_join_all;
use kube::api::Preconditions;
use rollhook_core::{
    Result,
    deploy::{Revision, Status},
    image::{Digest, ImageRef},
    time::Timestamp,
};

use super::{KubernetesStore, calls::delete, codec, head::Head, load::Loaded, mirror::Known};

/// How many of an app's newest entries are kept in any case.
pub(crate) const KEPT: usize = 200;
/// How many versions, each of another image than the one before, can be returned to in any case from what runs, or ran
/// last; it is the first of them.
const TARGETS: usize = 10;
/// What is younger is kept: far longer than any watch is behind, so that no number is ever given twice.
const YOUNG: Duration = Duration::from_secs(24 * 3600);
/// When a key is free whose time cannot be read.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);
/// How many entries are removed at a time, at once, while a record waits: a few more than a deploy adds.
const AT_ONCE: usize = 4;

/// An entry as far as its keeping goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) revision: Revision,
    /// How it ended, where its object says so.
    pub(crate) status: Option<Status>,
    /// None where that cannot be read: such an entry is kept.
    pub(crate) accepted_at: Option<Timestamp>,
    /// [`NEVER`] likewise.
    pub(crate) key_expires_at: Option<Timestamp>,
    /// What succeeded, as far as it can be read.
    pub(crate) image: Option<(ImageRef, Option<Digest>)>,
}

impl Item {
    fn same_image(&self, other: &Self) -> bool {
        let (Some((one, digest)), Some((two, other_digest))) = (&self.image, &other.image) else { return false };
        one.same_bits(digest.as_ref(), two, other_digest.as_ref())
    }
}

/// What need not be kept, oldest first. `items` are the app's entries, newest first; `returned_to` what a rollback goes
/// back from: the revisions that the current entry and the one on the cluster stand for.
pub(crate) fn surplus(items: &[Item], head: &Head, returned_to: &[Revision], now: Timestamp) -> Vec<Revision> {
    let succeeded = |item: &&Item| item.status == Some(Status::Succeeded);
    let targets = |from: u64| {
        let mut last: Option<&Item> = None;
        let fitting = items.iter().filter(succeeded).filter(move |item| item.revision.get() <= from);
        let others = fitting.filter(move |item| {
            let other = last.is_none_or(|last| !last.same_image(item));
            if other {
                last = Some(item);
            }
            other
        });
        others.take(TARGETS).map(|item| item.revision)
    };
    let mut kept: Vec<Revision> = targets(u64::MAX).collect();
    kept.extend(returned_to.iter().flat_map(|revision| targets(revision.get())));
    kept.extend(returned_to);
    kept.extend([head.current, head.on_cluster(), head.last_restore].into_iter().flatten());
    let goes = |item: &&Item| {
        item.revision.get() <= head.folded
            && head.state(item.revision).is_none()
            && item.status.is_some_and(Status::is_terminal)
            && !kept.contains(&item.revision)
            && item.accepted_at.is_some_and(|accepted_at| now.since(accepted_at) > YOUNG)
            && item.key_expires_at.is_none_or(|expires_at| expires_at <= now)
    };
    items.iter().skip(KEPT).filter(goes).map(|item| item.revision).rev().collect()
}

impl KubernetesStore {
    /// Removes some of what need not be kept; what is left is removed another time.
    pub(crate) async fn retain(&self, loaded: &Loaded) {
        if let Err(error) = self.try_retain(loaded).await {
            tracing::debug!(app = %codec::named(&loaded.app), error = %error.chain(), "old entries are left");
        }
    }

    async fn try_retain(&self, loaded: &Loaded) -> Result<()> {
        let entries = self.mirror.entries(loaded.uid, |(revision, known)| Some((*revision, known.clone())));
        if entries.len() <= KEPT {
            return Ok(());
        }
        let items: Vec<Item> = entries.iter().filter_map(|(revision, known)| item(*revision, known)).collect();
        let mut returned_to = Vec::new();
        for revision in [loaded.head.current, loaded.head.on_cluster()].into_iter().flatten() {
            returned_to.push(self.accepted(loaded, revision).await?.deploy.effective);
        }
        let api = self.calls.deploys(&loaded.namespace());
        let gone = surplus(&items, &loaded.head, &returned_to, self.clock.now());
        let removed = gone.into_iter().take(AT_ONCE).map(async |revision| {
            let object = self.mirror.entry(loaded.uid, revision.get()).and_then(|known| known.object);
            delete(&api, &loaded.name(revision), Preconditions { uid: object, resource_version: None }).await?;
            self.mirror.forget_entry(loaded.uid, revision.get());
            Ok(())
        });
        try_join_all(removed).await.map(drop)
    }
}

/// What is known of an entry, as far as its keeping goes.
fn item(revision: u64, known: &Known) -> Option<Item> {
    let time = |text: &str| codec::time(text, String::new).ok();
    let image = known.image.as_ref().and_then(|(image, digest)| {
        let digest = digest.as_deref().map(str::parse).transpose();
        Some((image.parse().ok()?, digest.ok()?))
    });
    Some(Item {
        revision: Revision::new(revision)?,
        status: codec::value(&known.status.as_str().into(), String::new).ok(),
        accepted_at: time(&known.accepted_at),
        key_expires_at: known.key.as_ref().map(|key| time(&key.expires_at).unwrap_or(NEVER)),
        image,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rollhook_conformance::samples;

    use super::*;
    use crate::store::head::Changing;

    const OLD: Timestamp = Timestamp::from_millis(0);
    const NOW: Timestamp = Timestamp::from_millis(8 * 24 * 3600 * 1000);

    fn item(number: u64, status: Status) -> Item {
        let image = (status == Status::Succeeded).then(|| (samples::image(&format!("v{number}")), None));
        Item {
            revision: samples::revision(number),
            status: Some(status),
            accepted_at: Some(OLD),
            key_expires_at: None,
            image,
        }
    }

    /// Entries up to 1000, newest first, of which every hundredth succeeded.
    fn history() -> Vec<Item> {
        let status = |number| if number % 100 == 0 { Status::Succeeded } else { Status::Failed };
        (1..=1000).rev().map(|number| item(number, status(number))).collect()
    }

    fn head() -> Head {
        Head { folded: 1000, current: Some(samples::revision(1000)), ..Head::default() }
    }

    fn kept(items: &[Item], head: &Head, returned_to: &[Revision]) -> Vec<u64> {
        let gone = surplus(items, head, returned_to, NOW);
        let old = items.iter().map(|item| item.revision).filter(|revision| !gone.contains(revision));
        old.map(Revision::get).filter(|number| *number <= 800).collect()
    }

    #[test]
    fn the_newest_and_what_can_be_returned_to_are_kept() {
        let items = history();
        assert_eq!(kept(&items, &head(), &[]), [800, 700, 600, 500, 400, 300, 200, 100]);
        let gone = surplus(&items, &head(), &[], NOW);
        assert_eq!(gone.first(), Some(&Revision::FIRST), "the oldest go first");
        assert!(gone.iter().all(|revision| revision.get() <= 800));
    }

    #[test]
    fn what_a_rollback_returned_to_keeps_what_lies_before_it() {
        let mut items = history();
        for item in &mut items {
            item.status = Some(if item.revision.get() > 300 { Status::Succeeded } else { item.status.unwrap() });
        }
        let returned_to = [samples::revision(300)];
        assert_eq!(kept(&items, &head(), &returned_to), [300, 200, 100]);
    }

    #[test]
    fn what_can_be_returned_to_is_counted_by_images() {
        let mut items = history();
        for item in &mut items {
            // Two images in turn, and one image ever since.
            let tag = match item.revision.get() {
                301.. => "new",
                even if even % 2 == 0 => "even",
                _ => "odd",
            };
            (item.status, item.image) = (Some(Status::Succeeded), Some((samples::image(tag), None)));
        }
        assert_eq!(kept(&items, &head(), &[]), [300, 299, 298, 297, 296, 295, 294, 293, 292]);
        items.iter_mut().for_each(|item| item.image = None);
        assert_eq!(kept(&items, &head(), &[]), [0; 0], "what cannot be read stands for itself");
    }

    #[test]
    fn times_that_cannot_be_read_keep_just_their_entry() {
        let mut items: Vec<Item> = (1..=1000).rev().map(|number| item(number, Status::Failed)).collect();
        items[990].accepted_at = None;
        items[991].key_expires_at = Some(NEVER);
        assert_eq!(kept(&items, &head(), &[]), [10, 9]);
    }

    #[test]
    fn what_something_depends_on_is_kept() {
        let mut items: Vec<Item> = (1..=1000).rev().map(|number| item(number, Status::Failed)).collect();
        let at = |number: u64| usize::try_from(1000 - number).unwrap();
        items[at(10)].accepted_at = Some(NOW);
        items[at(11)].key_expires_at = Some(NOW.after(Duration::from_secs(1)));
        items[at(12)].key_expires_at = Some(NOW);
        items[at(13)].status = None;
        items[at(14)].status = Some(Status::RollingOut);
        let pending = Changing {
            revision: samples::revision(15),
            step: 1,
            state: rollhook_core::deploy::State::Succeeded { note: None },
            touched: false,
            image: None,
            commit: None,
            digest: None,
            updated_at: OLD,
            extra: serde_json::Map::new(),
        };
        let head = Head {
            current: Some(samples::revision(16)),
            ended_on_cluster: Some(samples::revision(17)),
            last_restore: Some(samples::revision(18)),
            pending: BTreeMap::from([(pending.revision, pending)]),
            ..head()
        };
        assert_eq!(kept(&items, &head, &[samples::revision(9)]), [18, 17, 16, 15, 14, 13, 11, 10, 9]);
    }
}
