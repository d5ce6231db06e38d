//! The open connections, of which strangers hold a bounded number.
//!
//! A connection is a stranger's unless it serves a call of a known caller, of whom each has a bounded number, those of an
//! environment or a project a part, and all together leave places to strangers. Beyond the bounds of strangers, one is closed to make room, whatever it does: the
//! oldest of those that brought a call that was refused, else the oldest of all, since a caller that authenticates itself
//! does so soon after it connects. So a new caller gets in, however many connections others hold at the same address.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::{AbortHandle, AbortRegistration};

use crate::{
    callers::Caller,
    places::{CallerPlace, CallerPlaces},
    stream::LongAnswers,
};

/// The most connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The most of all; further ones wait in the kernel.
    pub(crate) all: usize,
    strangers: usize,
    /// The most of strangers at one address.
    share: usize,
    /// The most of one known caller that are not closed to make room.
    caller: usize,
}

/// The files that are left to everything else: stores, the cluster, builds, and the listener of probes.
const OTHER_FILES: usize = 256;

impl Bounds {
    /// The bounds of the listener of callers if files abound.
    pub(crate) const CALLERS: Self = Self { all: 10_000, strangers: 2_000, share: 1_000, caller: 200 };
    /// The bounds of the listener of probes.
    pub(crate) const PROBES: Self = Self { all: 128, strangers: 100, share: 100, caller: 20 };

    /// Returns the bounds of the listener of callers for a process that may open this many files. Known callers always
    /// have connections that strangers do not fill.
    pub(crate) fn within(files: usize) -> Self {
        let all = files.saturating_sub(OTHER_FILES).clamp(16, Self::CALLERS.all);
        let strangers = (all * 4 / 5).min(Self::CALLERS.strangers);
        let share = (strangers / 2).min(Self::CALLERS.share);
        Self { all, strangers, share, caller: ((all - strangers) / 10).clamp(1, Self::CALLERS.caller) }
    }

    /// Returns the most connections of known callers that are not closed to make room: with those of strangers one less
    /// than all, so that a new caller always gets in.
    fn known(self) -> usize {
        self.all - self.strangers - 1
    }

    /// Returns the number of open files that the bounds of [`Bounds::CALLERS`] need.
    pub(crate) fn files_wanted() -> usize {
        Self::CALLERS.all + OTHER_FILES
    }
}

/// The connections of a listener.
pub(crate) struct Connections {
    bounds: Bounds,
    strangers: Mutex<Strangers>,
    known: CallerPlaces,
}

#[derive(Default)]
struct Strangers {
    /// The next place: connections have them in the order in which they became strangers'.
    next: u64,
    number: usize,
    sources: HashMap<IpAddr, BTreeMap<Place, AbortHandle>>,
}

/// A place among strangers; the least is the first to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    conduct: Conduct,
    number: u64,
}

/// What is known of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Conduct {
    /// A call was refused for its credentials.
    Refused,
    /// No call was refused.
    Unknown,
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
    standing: Mutex<Standing>,
    long_answers: LongAnswers,
}

/// Whose a connection is.
enum Standing {
    Stranger(Place),
    /// A known caller's, while it serves its call.
    Known(#[allow(dead_code, reason = "held, so that it is taken")] CallerPlace),
}

/// A call on a connection; ends when it is dropped. The answer to a known caller may still be sent then, unless
/// the answer holds it.
#[derive(Clone)]
pub(crate) struct InCall(Arc<Ending>);

struct Ending {
    connection: Arc<Connection>,
    is_known: AtomicBool,
}

impl Connections {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, strangers: Mutex::default(), known: CallerPlaces::new(bounds.caller, bounds.known()) }
    }

    /// Adds a connection of an address, which is closed through the registration.
    pub(crate) fn open(self: &Arc<Self>, source: IpAddr, share: Share) -> (Arc<Connection>, AbortRegistration) {
        let (close, registration) = AbortHandle::new_pair();
        let place = self.lock().add(self.bounds, source, share, close.clone());
        let standing = Mutex::new(Standing::Stranger(place));
        let long_answers = LongAnswers::default();
        (Arc::new(Connection { all: self.clone(), source, share, close, standing, long_answers }), registration)
    }

    fn lock(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> InCall {
        InCall(Arc::new(Ending { connection: self.clone(), is_known: AtomicBool::new(false) }))
    }

    /// Returns the long answers that the connection is sending.
    pub(crate) fn long_answers(&self) -> &LongAnswers {
        &self.long_answers
    }

    /// Makes the connection a stranger's, if it is not.
    fn enter(&self) {
        let mut standing = self.standing();
        if let Standing::Known(_) = *standing {
            let place = self.all.lock().add(self.all.bounds, self.source, self.share, self.close.clone());
            *standing = Standing::Stranger(place);
        }
    }

    fn demote(&self) {
        if let Standing::Stranger(place) = &mut *self.standing() {
            *place = self.all.lock().demote(self.source, *place);
        }
    }

    /// Makes the connection a known caller's, unless it or those that it shares a part with have as many as they may.
    fn leave(&self, caller: Caller) {
        let mut standing = self.standing();
        if let Standing::Stranger(place) = *standing
            && let Some(known) = self.all.known.take(caller)
        {
            self.all.lock().remove(self.source, place);
            *standing = Standing::Known(known);
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Standing::Stranger(place) = *self.standing() {
            self.all.lock().remove(self.source, place);
        }
    }
}

impl InCall {
    /// The call's caller is no stranger: it is authenticated, or its credentials are recognised. Returns whether that was
    /// not known before.
    pub(crate) fn known(&self, caller: Caller) -> bool {
        self.0.connection.leave(caller);
        !self.0.is_known.swap(true, Ordering::Relaxed)
    }

    /// Returns the long answers that its connection is sending.
    pub(crate) fn long_answers(&self) -> &LongAnswers {
        self.0.connection.long_answers()
    }

    /// The call is refused for its credentials.
    pub(crate) fn refused(&self) {
        self.0.connection.demote();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.connection.enter();
    }
}

impl Strangers {
    /// Adds a connection, and closes another one if there are too many.
    fn add(&mut self, bounds: Bounds, source: IpAddr, share: Share, close: AbortHandle) -> Place {
        let held = self.sources.get(&source).map_or(0, BTreeMap::len);
        if share == Share::One && held >= bounds.share {
            self.close_first(source);
        } else if self.number >= bounds.strangers
            && let Some(most) = self.most()
        {
            self.close_first(most);
        }
        let place = Place { conduct: Conduct::Unknown, number: self.next };
        self.next += 1;
        self.insert(source, place, close);
        place
    }

    fn demote(&mut self, source: IpAddr, place: Place) -> Place {
        let demoted = Place { conduct: Conduct::Refused, ..place };
        if let Some(close) = self.remove(source, place) {
            self.insert(source, demoted, close);
        }
        demoted
    }

    fn insert(&mut self, source: IpAddr, place: Place, close: AbortHandle) {
        self.sources.entry(source).or_default().insert(place, close);
        self.number += 1;
    }

    fn remove(&mut self, source: IpAddr, place: Place) -> Option<AbortHandle> {
        let of_source = self.sources.get_mut(&source)?;
        let removed = of_source.remove(&place);
        self.number -= usize::from(removed.is_some());
        if of_source.is_empty() {
            self.sources.remove(&source);
        }
        removed
    }

    /// Returns the address with the most connections.
    fn most(&self) -> Option<IpAddr> {
        self.sources.iter().max_by_key(|(_, connections)| connections.len()).map(|(source, _)| *source)
    }

    fn close_first(&mut self, source: IpAddr) {
        let first = self.sources.get(&source).and_then(BTreeMap::first_key_value).map(|(place, _)| *place);
        if let Some(close) = first.and_then(|place| self.remove(source, place)) {
            close.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use crate::callers::Callers;

    use super::*;

    const SHARE: usize = Bounds::CALLERS.share;
    const STRANGERS: usize = Bounds::CALLERS.strangers;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn caller(token: &str) -> Caller {
        static CALLERS: LazyLock<Callers> = LazyLock::new(Callers::default);
        CALLERS.holder(token)
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.close.is_aborted()
    }

    #[test]
    fn beyond_its_share_an_address_loses_the_oldest_connection_of_a_stranger() {
        let all = Arc::new(Connections::new(Bounds::CALLERS));
        let open = || all.open(source(1), Share::One).0;
        let (known, first, calling) = (open(), open(), open());
        let known_call = known.begin();
        assert!(known_call.known(caller("a")) && !known_call.known(caller("a")), "told once");
        let call = calling.begin();
        let held: Vec<_> = (2..SHARE).map(|_| open()).collect();
        let elsewhere = all.open(source(2), Share::One).0;
        assert!(!is_closed(&first), "another address has its own share");
        let second = open();
        assert!(is_closed(&first) && !is_closed(&calling));
        let third = open();
        assert!(is_closed(&calling) && !is_closed(&held[0]), "a call that is not authenticated does not help");
        drop(known_call);
        assert!(is_closed(&held[0]) && !is_closed(&held[1]), "known is a stranger's again, and the youngest of them");
        assert!([&known, &elsewhere, &second, &third].iter().all(|connection| !is_closed(connection)));
        drop((call, first, calling, held, second, third));
        assert_eq!(all.lock().number, 2, "known and elsewhere");
    }

    #[test]
    fn connection_whose_call_was_refused_is_closed_before_older_ones() {
        let all = Arc::new(Connections::new(Bounds::CALLERS));
        let held: Vec<_> = (0..SHARE).map(|_| all.open(source(1), Share::One).0).collect();
        held[2].begin().refused();
        held[1].begin().refused();
        let more: Vec<_> = (0..3).map(|_| all.open(source(1), Share::One).0).collect();
        assert!([0, 1, 2].iter().all(|index| is_closed(&held[*index])) && !is_closed(&held[3]));
        drop((held, more));
        assert_eq!(all.lock().number, 0);
    }

    #[test]
    fn beyond_all_shares_the_address_with_the_most_connections_loses_one() {
        let all = Arc::new(Connections::new(Bounds::CALLERS));
        let one = all.open(source(1), Share::One).0;
        let proxy: Vec<_> = (1..STRANGERS).map(|_| all.open(source(2), Share::All).0).collect();
        assert!(proxy.iter().all(|connection| !is_closed(connection)), "a trusted proxy has no share");
        let next = all.open(source(3), Share::One).0;
        assert!(is_closed(&proxy[0]) && !is_closed(&proxy[1]) && !is_closed(&one) && !is_closed(&next));
    }

    #[test]
    fn known_callers_leave_a_connection_to_a_newcomer_however_many_calls_they_make() {
        let bounds = Bounds::within(700);
        let all = Arc::new(Connections::new(bounds));
        let mut held = Vec::new();
        let mut open = |number: usize, token: &str| {
            for _ in 0..number {
                let connection = all.open(source(1), Share::All).0;
                let call = connection.begin();
                call.known(caller(token));
                held.push((connection, call));
            }
            held.iter().filter(|(connection, _)| !is_closed(connection)).count()
        };
        let of_one = open(bounds.all, "one");
        assert_eq!(of_one, bounds.caller + bounds.strangers, "beyond its part, a known caller is as a stranger");
        let of_all = (0..bounds.all).map(|index| open(bounds.caller, &index.to_string())).max();
        assert_eq!(of_all, Some(bounds.all - 1));
        let newcomer = all.open(source(2), Share::One).0;
        assert!(!is_closed(&newcomer));
        drop((newcomer, held));
        assert_eq!(all.lock().number, 0);
        assert!((0..bounds.caller).all(|_| all.known.take(caller("one")).is_some()));
    }

    #[test]
    fn bounds_fit_the_open_files_and_leave_room_for_known_callers() {
        for files in [0, 64, 300, 1_024, 4_096, Bounds::files_wanted(), usize::MAX] {
            let bounds = Bounds::within(files);
            let Bounds { all, strangers, share, caller } = bounds;
            assert!(0 < share && share < strangers && strangers < all, "{files}");
            assert!(0 < caller && caller <= bounds.known(), "{files}");
            assert!(files < 300 || all + OTHER_FILES <= files, "{files}");
        }
        assert_eq!(Bounds::within(Bounds::files_wanted()), Bounds::CALLERS);
        assert_ne!(Bounds::within(Bounds::files_wanted() - 1), Bounds::CALLERS);
    }
}
