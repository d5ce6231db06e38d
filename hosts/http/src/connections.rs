//! The open connections, of which strangers hold a bounded number.
//!
//! A connection is a stranger's unless it serves a call that was authenticated. Beyond the bounds, a stranger's
//! connection is closed to make room: of those that serve no call the one that has been idle longest, else the one whose
//! call began first. So a new caller gets in, however many connections others hold at the same address.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{AbortHandle, AbortRegistration};

/// The most connections of strangers at one address.
const SHARE: usize = 500;
/// The most connections of strangers.
const STRANGERS: usize = 2_000;

/// The connections of strangers.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Strangers>);

#[derive(Default)]
struct Strangers {
    /// The order in which connections became idle, or their calls began.
    next: u64,
    number: usize,
    sources: HashMap<IpAddr, BTreeMap<u64, Stranger>>,
}

struct Stranger {
    close: AbortHandle,
    is_in_call: bool,
}

/// Whether an address has a share, or may have all connections of strangers, as a trusted proxy may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    One,
    All,
}

/// An open connection.
pub(crate) struct Connection {
    all: Arc<Connections>,
    source: IpAddr,
    share: Share,
    close: AbortHandle,
    /// The place among the strangers; `None` while the connection serves an authenticated call.
    place: Mutex<Option<u64>>,
}

/// A call on a connection; ends when it is dropped. The answer to an authenticated call may still be sent then, unless
/// the answer holds it.
#[derive(Clone)]
pub(crate) struct InCall(Arc<Ending>);

struct Ending(Arc<Connection>);

impl Connections {
    /// Adds a connection of an address, which is closed through the registration.
    pub(crate) fn open(self: &Arc<Self>, source: IpAddr, share: Share) -> (Arc<Connection>, AbortRegistration) {
        let (close, registration) = AbortHandle::new_pair();
        let connection = Connection { all: self.clone(), source, share, close, place: Mutex::default() };
        connection.place(false);
        (Arc::new(connection), registration)
    }

    fn lock(&self) -> MutexGuard<'_, Strangers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> InCall {
        self.place(true);
        InCall(Arc::new(Ending(self.clone())))
    }

    /// Puts the connection behind all other strangers'.
    fn place(&self, is_in_call: bool) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let mut strangers = self.all.lock();
        if let Some(id) = place.take() {
            strangers.remove(self.source, id);
        }
        if self.close.is_aborted() {
            return;
        }
        let stranger = Stranger { close: self.close.clone(), is_in_call };
        *place = Some(strangers.add(self.source, self.share, stranger));
    }

    fn leave(&self) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = place.take() {
            self.all.lock().remove(self.source, id);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.leave();
    }
}

impl InCall {
    /// The call's caller is no stranger.
    pub(crate) fn authenticated(&self) {
        self.0.0.leave();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.place(false);
    }
}

impl Strangers {
    /// Adds a connection, and closes another one if there are too many.
    fn add(&mut self, source: IpAddr, share: Share, stranger: Stranger) -> u64 {
        let id = self.next;
        self.next += 1;
        let of_source = self.sources.entry(source).or_default();
        let is_over_share = share == Share::One && of_source.len() >= SHARE;
        let crowded = match is_over_share {
            true => Some(source),
            false if self.number >= STRANGERS => self.most(),
            false => None,
        };
        if let Some(crowded) = crowded {
            self.close_one(crowded);
        }
        self.sources.entry(source).or_default().insert(id, stranger);
        self.number += 1;
        id
    }

    fn remove(&mut self, source: IpAddr, id: u64) {
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        self.number -= usize::from(of_source.remove(&id).is_some());
        if of_source.is_empty() {
            self.sources.remove(&source);
        }
    }

    /// Returns the address with the most connections.
    fn most(&self) -> Option<IpAddr> {
        self.sources.iter().max_by_key(|(_, connections)| connections.len()).map(|(source, _)| *source)
    }

    fn close_one(&mut self, source: IpAddr) {
        let Some(of_source) = self.sources.get(&source) else { return };
        let idle = of_source.iter().find(|(_, stranger)| !stranger.is_in_call);
        let Some((id, stranger)) = idle.or_else(|| of_source.iter().next()) else { return };
        stranger.close.abort();
        self.remove(source, *id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.close.is_aborted()
    }

    #[test]
    fn beyond_its_share_an_address_loses_the_connection_that_was_idle_longest() {
        let all = Arc::new(Connections::default());
        let open = |share| all.open(source(1), share).0;
        let first = open(Share::One);
        let calling = open(Share::One);
        let call = calling.begin();
        let known = open(Share::One);
        let known_call = known.begin();
        known_call.authenticated();
        let held: Vec<_> = (2..SHARE).map(|_| open(Share::One)).collect();
        assert!(!is_closed(&first));
        let elsewhere = all.open(source(2), Share::One).0;
        assert!(!is_closed(&first) && !is_closed(&elsewhere), "another address has its own share");
        let next = open(Share::One);
        assert!(is_closed(&first) && !is_closed(&next));
        drop(first);
        let more: Vec<_> = (2..SHARE).map(|_| open(Share::One)).collect();
        assert!(held.iter().all(|idle| is_closed(idle)) && !is_closed(&calling), "a call is in progress");
        drop(held);
        let last: Vec<_> = (0..SHARE).map(|_| open(Share::One)).collect();
        assert!(more.iter().chain([&next]).all(|idle| is_closed(idle)));
        assert!(!is_closed(&known) && !is_closed(&elsewhere));
        drop((call, known_call, last, more, next));
        assert!(!is_closed(&known));
        assert_eq!(all.lock().number, 3, "calling, known and elsewhere");
    }

    #[test]
    fn beyond_all_shares_the_address_with_the_most_connections_loses_one() {
        let all = Arc::new(Connections::default());
        let one = all.open(source(1), Share::One).0;
        let proxy: Vec<_> = (1..STRANGERS).map(|_| all.open(source(2), Share::All).0).collect();
        assert!(proxy.iter().all(|connection| !is_closed(connection)), "a trusted proxy has no share");
        let next = all.open(source(3), Share::One).0;
        assert!(is_closed(&proxy[0]) && !is_closed(&proxy[1]) && !is_closed(&one) && !is_closed(&next));
    }
}
