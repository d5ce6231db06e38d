//! A thread that reads: it takes all calls that wait, and answers them from one snapshot of the file.

use std::{
    io,
    path::Path,
    sync::mpsc::{self, Receiver},
    thread,
};

use crate::{
    call::{Call, Calls, Clocks, Session},
    connection::Link,
    error::SqlError,
};

/// The most calls that share a snapshot.
const TOGETHER: usize = 256;

struct Reader {
    link: Link,
    clocks: Clocks,
}

/// Starts a reader, which ends with the last sender of its calls.
pub(crate) fn start(path: &Path, clocks: &Clocks) -> io::Result<Calls> {
    let (calls, waiting) = mpsc::channel();
    let reader = Reader { link: Link::reader(path), clocks: clocks.clone() };
    thread::Builder::new().name("sqlite-read".to_owned()).spawn(|| reader.run(waiting))?;
    Ok(Calls(calls))
}

impl Reader {
    fn run(mut self, calls: Receiver<Box<dyn Call>>) {
        while let Ok(first) = calls.recv() {
            let batch: Vec<_> = [first].into_iter().chain(calls.try_iter()).take(TOGETHER).collect();
            let mut failed = None;
            for mut call in batch.into_iter().filter(|call| !call.is_abandoned()) {
                let done = match &failed {
                    // The file is out of reach, or locked: the first call has waited long enough for all.
                    Some(failure) => Err(SqlError::clone(failure)),
                    None => self.read(&mut *call),
                };
                if let Err(failure) = &done
                    && failed.is_none()
                {
                    tracing::warn!(error = failure.to_error().chain(), "reading the database failed");
                    self.link.recover(failure);
                    failed = failure.to_error().is_unavailable().then(|| failure.clone());
                }
                call.finish(done);
            }
            self.link.roll_back();
        }
    }

    fn read(&mut self, call: &mut dyn Call) -> Result<(), SqlError> {
        let connection = self.link.get()?;
        if connection.is_autocommit() {
            connection.prepare_cached("BEGIN")?.execute([])?;
        }
        Ok(call.run(&mut Session::new(connection, &self.clocks))?)
    }
}
