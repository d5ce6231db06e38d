//! Recording: one replacement of the App, decided anew where others were faster.

use std::collections::BTreeMap;

use rollhook_core::{Error, Result, deploy::Deploy, deploy::Revision, ports::Record};

use super::{
    KubernetesStore, codec,
    head::{Changing, Head},
    load::{ATTEMPTS, Depth, Loaded, contended},
};

impl KubernetesStore {
    pub(crate) async fn write(&self, record: &Record) -> Result<()> {
        // What was seen is enough for a first attempt: where it is old, the replacement fails.
        let mut depth = Depth::Seen;
        for _ in 0..ATTEMPTS {
            let loaded = self.load(record.app, depth).await?;
            match self.decided(&loaded, record, depth).await {
                Ok(head) => {
                    let states = record.changes.iter().filter_map(|change| head.state(change.revision));
                    let changed: Vec<Changing> = states.cloned().collect();
                    if let Some(app) = self.commit(&loaded, head).await? {
                        self.show(&loaded, &changed).await;
                        if record.rest && record.claim.is_some() {
                            // Its owner has nothing better to do.
                            self.retain(&Loaded { head: codec::head(&app)?, app, ..loaded }).await;
                        }
                        return Ok(());
                    }
                }
                Err(error) if depth == Depth::All => return Err(error),
                Err(_) => {}
            }
            depth = Depth::All;
        }
        Err(contended())
    }

    /// The head with the record's changes made, or why not.
    async fn decided(&self, loaded: &Loaded, record: &Record, depth: Depth) -> Result<Head> {
        if let Some(claim) = record.claim {
            self.check_claim(loaded, claim, depth).await?;
        }
        let mut accepted: BTreeMap<Revision, Deploy> = BTreeMap::new();
        for change in &record.changes {
            if loaded.head.open.contains_key(&change.revision) {
                accepted.insert(change.revision, self.accepted(loaded, change.revision).await?.deploy);
            }
        }
        let mut head = loaded.head.clone();
        head.record(record, &accepted, self.clock.now())?;
        if head.work_since.is_none() && codec::is_polled(&loaded.app)? {
            head.work_since = loaded.head.work_since.or(Some(head.time(self.clock.now())));
        }
        Ok(head)
    }

    /// Whether this incarnation owns the app.
    async fn check_claim(&self, loaded: &Loaded, claim: u64, depth: Depth) -> Result<()> {
        let owner = loaded.head.owner.as_ref().filter(|owner| owner.incarnation == claim.to_string());
        let Some(owner) = owner else { return Err(Error::Conflict("claim")) };
        if self.holds_lease(owner, depth).await? { Ok(()) } else { Err(Error::Conflict("claim")) }
    }
}
