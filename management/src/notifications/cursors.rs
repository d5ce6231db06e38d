//! How far a receiver was notified of each app: read, begun and stored.

use super::{
    delivery::{Delivery, Ended},
    worker::StoredCursor,
};
use rollhook_core::{
    deploy::{Deploy, Revision},
    error::{Error, Result},
    ledger::AppState,
    ports::Page,
};

use crate::{documents, notifications::outbox::Cursor, ports::RecordKind};

/// Entries per page while the begin of a receiver is sought.
const PAGE: usize = 50;

impl Delivery<'_> {
    /// Stores a cursor. If another replica has stored one meanwhile, that one counts.
    pub(super) async fn store(self, stored: &mut StoredCursor) -> Result<(), Ended> {
        let record = documents::encode(StoredCursor::key(&stored.cursor), &stored.cursor, None)?;
        match self.management.records.write(RecordKind::ReceiverCursor, record, stored.version).await {
            Ok(version) => {
                stored.version = Some(version);
                self.worker.keep(stored);
                Ok(())
            }
            Err(error @ Error::Conflict(_)) => {
                self.read_cursor(stored).await?;
                Err(error.into())
            }
            // The answer may have been lost: the next attempt reads what is stored.
            Err(error) => {
                self.worker.keep(&StoredCursor { version: None, ..stored.clone() });
                Err(error.into())
            }
        }
    }

    /// Has the worker go on with the stored cursor; one that cannot be read is written anew.
    async fn read_cursor(self, known: &StoredCursor) -> Result<()> {
        let read = self.management.records.read(RecordKind::ReceiverCursor, &StoredCursor::key(&known.cursor)).await?;
        let Some(record) = read else {
            self.worker.forget(known.cursor.app);
            return Ok(());
        };
        let cursor = documents::decode::<Cursor>(&record).unwrap_or_else(|error| {
            tracing::error!(error = %error.chain(), "reading how far a receiver was notified failed, writing it anew");
            known.cursor.clone()
        });
        self.worker.keep(&StoredCursor::read(cursor, &record));
        Ok(())
    }

    /// Returns the cursor of an app that the worker has none of: the stored one, which was not listed if it cannot be
    /// read, or a first one. One that cannot be read says that the receiver was notified of something: it is notified of unfinished
    /// deploys and of later ones, and not of the whole history again.
    pub(super) async fn unknown_cursor(self, state: &AppState) -> Result<StoredCursor> {
        let newest = Cursor::after(self.worker.receiver.id.clone(), state.app.uid, state.latest);
        let Some(record) =
            self.management.records.read(RecordKind::ReceiverCursor, &StoredCursor::key(&newest)).await?
        else {
            return Ok(StoredCursor { cursor: self.first_cursor(state).await?, version: None });
        };
        let cursor = documents::decode::<Cursor>(&record).unwrap_or_else(|error| {
            let (app, receiver) = (state.app.id.to_string(), self.worker.receiver.name.as_str());
            let error = error.chain();
            tracing::error!(
                app,
                receiver,
                error,
                "reading how far a receiver was notified failed: ends may stay unreported"
            );
            let oldest = state.unfinished.first().map(|deploy| deploy.revision.get());
            let seen = oldest.map_or(state.latest, |oldest| Revision::new(oldest - 1));
            Cursor { seen, ..newest }
        });
        Ok(StoredCursor::read(cursor, &record))
    }

    /// Returns the cursor of an app that the receiver was not notified of yet: after the deploys that were accepted before
    /// the receiver was added.
    async fn first_cursor(self, state: &AppState) -> Result<Cursor> {
        let receiver = &self.worker.receiver;
        let cursor = |seen| Cursor::after(receiver.id.clone(), state.app.uid, seen);
        if state.updated_at < receiver.added_at {
            return Ok(cursor(state.latest));
        }
        let is_older = |deploy: &Deploy| deploy.created_at < receiver.added_at;
        let unfinished = state.unfinished.iter().rfind(|deploy| is_older(deploy)).map(|deploy| deploy.revision);
        let mut oldest = state.unfinished.first().map(|deploy| deploy.revision);
        let mut before = None;
        loop {
            let page = Page::newest(PAGE).below(before);
            let entries = self.management.deployer.ports().history.page(state.app.uid, page).await?;
            if let Some(older) = entries.iter().find(|deploy| is_older(deploy)) {
                return Ok(cursor(unfinished.max(Some(older.revision))));
            }
            before = entries.last().map(|deploy| deploy.revision).or(before);
            oldest = oldest.into_iter().chain(before).min();
            if entries.len() < PAGE {
                // The revisions before the oldest are forgotten.
                let forgotten = oldest.and_then(|oldest| Revision::new(oldest.get() - 1));
                return Ok(cursor(unfinished.max(forgotten)));
            }
        }
    }
}
