//! An app's entries, with what decisions look for at hand, so that no call reads a whole history.

use std::collections::BTreeSet;

use rollhook_core::{
    deploy::{Deploy, Revision, Status},
    ports::Page,
};

/// Entries by revision, without gaps.
#[derive(Default)]
pub(crate) struct Entries {
    all: Vec<Deploy>,
    unfinished: BTreeSet<Revision>,
    succeeded: BTreeSet<Revision>,
    touched: BTreeSet<Revision>,
    restores: BTreeSet<Revision>,
}

impl Entries {
    pub(crate) fn last(&self) -> Option<Revision> {
        self.all.last().map(|deploy| deploy.revision)
    }

    pub(crate) fn at(&self, revision: Revision) -> Option<&Deploy> {
        self.all.get(index(revision))
    }

    /// Adds the entry that follows the last, or replaces one.
    pub(crate) fn put(&mut self, deploy: Deploy) {
        let revision = deploy.revision;
        mark(&mut self.unfinished, revision, !deploy.is_terminal());
        mark(&mut self.succeeded, revision, deploy.status() == Status::Succeeded);
        mark(&mut self.touched, revision, deploy.touched);
        mark(&mut self.restores, revision, deploy.is_restore());
        match self.all.get_mut(index(revision)) {
            Some(stored) => *stored = deploy,
            None => self.all.push(deploy),
        }
    }

    pub(crate) fn unfinished(&self) -> Vec<Deploy> {
        self.unfinished.iter().filter_map(|revision| self.at(*revision)).cloned().collect()
    }

    pub(crate) fn unfinished_count(&self) -> usize {
        self.unfinished.len()
    }

    pub(crate) fn current(&self) -> Option<Deploy> {
        self.succeeded.last().and_then(|revision| self.at(*revision)).cloned()
    }

    pub(crate) fn on_cluster(&self) -> Option<Deploy> {
        self.touched.last().and_then(|revision| self.at(*revision)).cloned()
    }

    pub(crate) fn last_restore(&self) -> Option<Revision> {
        self.restores.last().copied()
    }

    pub(crate) fn page(&self, page: Page) -> Vec<Deploy> {
        let below = |revision: &Revision| page.before.is_none_or(|before| *revision < before);
        if page.succeeded {
            let newest_first = self.succeeded.iter().rev().filter(|revision| below(revision));
            return newest_first.filter_map(|revision| self.at(*revision)).take(page.limit).cloned().collect();
        }
        let end = page.before.map_or(self.all.len(), |before| index(before).min(self.all.len()));
        self.all[..end].iter().rev().take(page.limit).cloned().collect()
    }
}

fn mark(set: &mut BTreeSet<Revision>, revision: Revision, member: bool) {
    if member {
        set.insert(revision);
    } else {
        set.remove(&revision);
    }
}

fn index(revision: Revision) -> usize {
    usize::try_from(revision.get() - 1).unwrap_or(usize::MAX)
}
