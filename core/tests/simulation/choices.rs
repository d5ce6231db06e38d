//! All that can happen, as lists of choices: generated whole, so that a failing list shrinks to a short one.

use std::time::Duration;

use proptest::{prelude::*, sample::select};
use rollhook_core::{check::WithoutVerdict, requirement::RequirementScope};

use crate::{
    faults::InjectedFault,
    images::TAGS,
    registry::Reading,
    requests::{FAILS, HANGS, MIGRATES},
    verifying::{Answers, Checks, Smoke},
    workloads::{Also, Course, LISTS, Own},
};

/// How a run goes.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// How many replicas there are.
    pub(crate) replicas: usize,
    /// Whether the first version has settled before anything else happens.
    pub(crate) settled: bool,
    /// Whether failures are left as they are, from the beginning.
    pub(crate) leave: bool,
    /// Whether holds bind CI too, from the beginning.
    pub(crate) hold_all: bool,
    /// Whether app 0 is polled from the beginning, where it is built.
    pub(crate) polled: bool,
    /// The checks of app 0, once its first version has been registered.
    pub(crate) checks: Option<Checks>,
    /// The kinds of apps 0 and 2.
    pub(crate) kinds: [Kind; 2],
    pub(crate) choices: Vec<Choice>,
    /// The further workloads of each app.
    pub(crate) also: [Also; 3],
    /// Versions that take another course on one further workload.
    pub(crate) own: Vec<Own>,
    /// Whether images are a registry's, which is asked for their digests.
    pub(crate) resolves: bool,
    /// Whether app 0 follows its repository from the beginning, where its images are a registry's.
    pub(crate) followed: bool,
    /// The signer of app 0's images from the beginning, where they are a registry's.
    pub(crate) signed: Option<u8>,
}

/// The source of an app's deploys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Images.
    Image,
    /// Commits, and at first an image.
    Git,
    /// Commits alone.
    BareGit,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// Lets time pass, in milliseconds.
    Pass(u32),
    /// A caller asks one of the replicas; a fault may wait for one of its next calls.
    Ask { replica: usize, ask: Ask, struck: Option<(u8, InjectedFault)> },
    /// InjectedFault waits for one of a replica's calls (empty: any), after so many others.
    Fault { replica: usize, call: &'static str, nth: u8, fault: InjectedFault },
    /// A replica dies, or leaves in good order, and comes back after so many seconds, by its name or another.
    Restart { replica: usize, orderly: bool, after: u8, renamed: bool },
    /// A person or a cloud changes the cluster.
    Cluster(Meddling),
    /// The store's clock is set, by seconds.
    Clock(i32),
    /// A replica's own clock jumps ahead, by seconds.
    Ahead { replica: usize, by: u8 },
    /// Whose turn it is among those that can go on.
    Order(usize),
}

/// A request of a caller; apps are 0 (`shop-test/api`), 1 (`shop-prod/api`), and 2, which wants the workload of 0.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// CI posts an image, with a token that may be an old one.
    Post { tag: &'static str, key: Key, old_token: bool },
    /// A person deploys an image.
    Deploy { app: usize, tag: &'static str, key: Key },
    /// A person deploys what runs once more, perhaps only if what they expect is current.
    Redeploy { app: usize, expects: Expects, key: Key },
    /// A person stops or starts an app, perhaps only if what they expect is current.
    Scale { app: usize, stop: bool, expects: Expects, key: Key },
    /// A person sets one of two variables to one of some values, for now or for the next deploy.
    Configure { app: usize, variable: u8, value: u8, staged: bool, expects: Expects, key: Key },
    /// A person rolls back: by default, or to a revision counted from the newest and perhaps with its configuration, perhaps
    /// only if what they expect is current.
    Rollback { app: usize, back: Option<usize>, whole: bool, expects: Expects, key: Key },
    /// A person cancels a revision counted from the newest.
    Cancel { app: usize, back: usize },
    /// A person decides on a revision counted from the newest, or on the one that waits for it.
    Decide { app: usize, back: Option<usize>, passes: bool },
    /// A person runs a command by hand, which ends as its word says.
    Run { app: usize, word: &'static str, key: Key },
    /// A person ends the newest run by hand.
    EndRun { app: usize },
    /// The current image of app 0 is deployed as app 1.
    Promote { key: Key },
    /// The holds of app 0 are released.
    Release,
    /// New deploys of an app are refused, for so many seconds or until the lock is ended; or the lock is ended.
    Lock { app: usize, lock: Option<Option<u8>> },
    /// Policy: leave failures as they are, hold against CI too, settle for so many seconds.
    Policy { app: usize, leave: bool, hold_all: bool, settle: u8 },
    /// An app is polled from now on, or not any more.
    Poll { app: usize, on: bool },
    /// An app follows its repository from now on, or not any more.
    Follow { app: usize, on: bool },
    /// What is required of an app's images from now on, by itself, its environment or its project: a signer, or nothing.
    Require { app: usize, scope: RequirementScope, signer: Option<u8> },
    /// The registry tells of a push, once or twice.
    Hint { app: usize, twice: bool },
    /// What an app's branch is at, or was so many moves ago, is deployed by CI, unless CI did so before, or by a person.
    Head { app: usize, ci: bool, back: usize, key: Key },
    /// A git host tells app 0 where the branch of its source is, or was so many moves ago.
    Tell { back: usize, key: Key },
    /// A person has a commit built again: what is current, or that of a revision counted from the newest.
    Rebuild { app: usize, back: Option<usize>, key: Key },
    /// The source of an app is changed to one of three.
    Source { app: usize, to: u8 },
    /// The further workloads of an app are changed to another list.
    Workloads { app: usize, list: usize },
    /// A new token for app 0.
    Enable,
    /// The webhook of app 0 is closed.
    Disable,
    /// An app is deleted.
    Delete { app: usize },
    /// An app is registered; if its workload belongs to another, by taking that over.
    Register { app: usize, take_over: bool },
}

/// The revision that a person who rolls back or redeploys expects to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    Anything,
    /// The current one when they ask.
    Current,
    /// The newest revision, whatever has become of it.
    Newest,
}

/// Whether a call has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// No key: a call whose answer is lost is not repeated.
    None,
    /// A key under which the call is repeated until it is answered.
    Repeated,
    /// A key under which the call is made twice at once, and again later.
    Twice,
}

/// A change of the cluster by others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meddling {
    /// The cluster goes away, or comes back.
    Reach(bool),
    /// Other content is pushed under the tag that moves.
    Push,
    /// A person sets another image in a workload of app 0.
    Image(usize),
    /// A person removes a workload of app 0, and perhaps makes it anew.
    Remove { part: usize, anew: bool },
    /// A workload of app 0 cannot be rolled out any more, or can again.
    Unsupported(usize, bool),
    /// A person scales a workload of app 0.
    Scale(usize, u32),
    /// A branch, one of two, is moved.
    Head { branch: u8, step: Step },
    /// The builder goes away, or comes back.
    Builder(bool),
    /// The builder's machine is lost, with all that it knew.
    LoseBuilds,
    /// The provider of readings answers otherwise.
    Provider(Answers),
    /// The registry answers otherwise.
    Registry(Reading),
    /// A version is pushed to the registry, of the kind that the tag stands for: the next one, or one below the last.
    Publish { tag: &'static str, below: bool },
    /// The newest version is not listed any more.
    Withdraw,
    /// Both signers sign what they have not signed yet.
    Sign,
}

/// Where a branch is moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// To a new commit, of the kind that the tag stands for.
    New(&'static str),
    /// To where it was before, so many moves ago.
    Back(usize),
    /// Nowhere: it is deleted.
    Gone,
}

/// What may require signatures.
const SCOPES: [RequirementScope; 3] = [RequirementScope::App, RequirementScope::Environment, RequirementScope::Project];

/// Every call to a port; none of them is safe.
pub(crate) const CALLS: [&str; 35] = [
    "",
    "history.commit",
    "history.load",
    "history.page",
    "history.heartbeat",
    "history.work",
    "history.watch",
    "rollouts.apply",
    "rollouts.observe",
    "rollouts.changed",
    "rollouts.evidence",
    "builds.start",
    "builds.running",
    "builds.observe",
    "builds.changed",
    "builds.cancel",
    "branches.head",
    "rollouts.validate",
    "tokens.find_fitting",
    "tokens.put",
    "tokens.remove",
    "releases.prepare",
    "releases.start",
    "releases.observe",
    "releases.cancel",
    "history.archived",
    "configurations.put",
    "configurations.get",
    "configurations.remove",
    "history.list",
    "verifier.measure",
    "registry.resolve",
    "registry.tags",
    "branches.log",
    "signatures.verify",
];

pub(crate) fn scenarios() -> impl Strategy<Value = Scenario> {
    let choices = proptest::collection::vec(choice(), 1..30);
    let sometimes = || proptest::bool::weighted(0.3);
    let kinds = [kind(8), kind(10)];
    let workloads = ([also(), also(), also()], proptest::collection::vec(own(), 0..3));
    let checks = proptest::option::weighted(0.4, checks());
    let registry =
        (proptest::bool::weighted(0.5), proptest::bool::weighted(0.4), proptest::option::weighted(0.2, 0..2u8));
    let hold_all = proptest::bool::weighted(0.5);
    (1..=3usize, sometimes(), sometimes(), hold_all, sometimes(), kinds, choices, workloads, checks, registry).prop_map(
        |(
            replicas,
            unsettled,
            leave,
            hold_all,
            polled,
            kinds,
            choices,
            (also, own),
            checks,
            (resolves, followed, signed),
        )| {
            Scenario {
                replicas,
                settled: !unsettled,
                leave,
                hold_all,
                polled,
                checks,
                kinds,
                choices,
                also,
                own,
                resolves,
                followed,
                signed,
            }
        },
    )
}

fn checks() -> impl Strategy<Value = Checks> {
    let without = prop_oneof![
        5 => Just(WithoutVerdict::Accept),
        2 => Just(WithoutVerdict::Wait),
        3 => Just(WithoutVerdict::Ask),
    ];
    let smoke = prop_oneof![
        2 => Just(None),
        2 => Just(Some(Smoke::Succeeds)),
        1 => Just(Some(Smoke::Fails)),
        1 => Just(Some(Smoke::Hangs)),
    ];
    let watched = (select(&[0u8, 30, 60]), any::<bool>());
    let asks = (without, any::<Option<bool>>());
    (1..=3u32, select(&[0u8, 0, 10, 30]), watched, any::<bool>(), asks, smoke).prop_map(
        |(failures, verify_for, (watch_for, deploys), observes, (without, decides), smoke)| Checks {
            failures,
            verify_for,
            watch_for,
            deploys: deploys && watch_for > 0,
            decides,
            observes,
            without,
            smoke,
        },
    )
}

fn kind(images: u32) -> impl Strategy<Value = Kind> {
    prop_oneof![images => Just(Kind::Image), 3 => Just(Kind::Git), 3 => Just(Kind::BareGit)]
}

fn also() -> impl Strategy<Value = Also> {
    prop_oneof![5 => Just(LISTS[0]), 5 => select(&LISTS[1..])]
}

/// A version other than the first, which runs before anything happens.
fn own() -> impl Strategy<Value = Own> {
    let course = select(&[
        Course::Completes,
        Course::Slow,
        Course::Crashes,
        Course::Missing,
        Course::Hangs,
        Course::Dies,
        Course::Relapses,
        Course::Full,
    ]);
    let tag = prop_oneof![4 => select(&TAGS[1..6]), 1 => select(&TAGS[6..])];
    (0..2usize, tag, course).prop_map(|(further, tag, course)| Own { further, tag, course })
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        10 => prop_oneof![4 => 0..60u32, 4 => 100..3_000u32, 5 => 3_000..25_000u32, 1 => 60_000..80_000u32]
            .prop_map(Choice::Pass),
        13 => (0..3usize, ask(), proptest::option::weighted(0.1, (0..6u8, fault())))
            .prop_map(|(replica, ask, struck)| Choice::Ask { replica, ask, struck }),
        7 => (0..3usize, call(), select(&[0u8, 0, 0, 1, 2, 3]), fault())
            .prop_map(|(replica, call, nth, fault)| Choice::Fault { replica, call, nth, fault }),
        1 => (0..3usize, any::<bool>(), select(&[0u8, 3, 40]), any::<bool>())
            .prop_map(|(replica, orderly, after, renamed)| Choice::Restart { replica, orderly, after, renamed }),
        4 => meddling().prop_map(Choice::Cluster),
        1 => select(&[5, -5, 40, -40, 200, -200, 4_000]).prop_map(Choice::Clock),
        2 => (0..3usize, select(&[2u8, 12, 60])).prop_map(|(replica, by)| Choice::Ahead { replica, by }),
        1 => (0..4usize).prop_map(Choice::Order),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let app = || prop_oneof![8 => Just(0usize), 2 => Just(1), 2 => Just(2)];
    let policy = (app(), any::<bool>(), any::<bool>(), select(&[3u8, 0, 10, MIGRATES, FAILS, HANGS]));
    prop_oneof![
        10 => (tag(), key(), proptest::bool::weighted(0.1))
            .prop_map(|(tag, key, old_token)| Ask::Post { tag, key, old_token }),
        4 => (app(), tag(), key()).prop_map(|(app, tag, key)| Ask::Deploy { app, tag, key }),
        4 => (app(), expects(), key()).prop_map(|(app, expects, key)| Ask::Redeploy { app, expects, key }),
        3 => (app(), proptest::bool::weighted(0.6), expects(), key())
            .prop_map(|(app, stop, expects, key)| Ask::Scale { app, stop, expects, key }),
        8 => (app(), proptest::option::weighted(0.5, 0..5usize), any::<bool>(), expects(), key())
            .prop_map(|(app, back, whole, expects, key)| Ask::Rollback { app, back, whole, expects, key }),
        5 => (app(), 0..2u8, 0..4u8, proptest::bool::weighted(0.3), expects(), key()).prop_map(
            |(app, variable, value, staged, expects, key)| Ask::Configure { app, variable, value, staged, expects, key }),
        3 => (app(), 0..3usize).prop_map(|(app, back)| Ask::Cancel { app, back }),
        4 => (app(), proptest::option::weighted(0.3, 0..3usize), any::<bool>())
            .prop_map(|(app, back, passes)| Ask::Decide { app, back, passes }),
        3 => (app(), select(&["fix", "fail-3", "hang"]), key()).prop_map(|(app, word, key)| Ask::Run { app, word, key }),
        1 => app().prop_map(|app| Ask::EndRun { app }),
        2 => key().prop_map(|key| Ask::Promote { key }),
        1 => Just(Ask::Release),
        2 => (app(), proptest::option::weighted(0.5, proptest::option::weighted(0.7, select(&[2u8, 20]))))
            .prop_map(|(app, lock)| Ask::Lock { app, lock }),
        2 => policy.prop_map(|(app, leave, hold_all, settle)| Ask::Policy { app, leave, hold_all, settle }),
        2 => (app(), proptest::option::weighted(0.6, 0..3usize), key())
            .prop_map(|(app, back, key)| Ask::Rebuild { app, back, key }),
        2 => (app(), 0..3u8).prop_map(|(app, to)| Ask::Source { app, to }),
        3 => (select(&[0usize, 0, 0, 1, 2]), key()).prop_map(|(back, key)| Ask::Tell { back, key }),
        2 => (app(), proptest::bool::weighted(0.8)).prop_map(|(app, on)| Ask::Poll { app, on }),
        2 => (app(), proptest::bool::weighted(0.8)).prop_map(|(app, on)| Ask::Follow { app, on }),
        2 => (app(), any::<bool>()).prop_map(|(app, twice)| Ask::Hint { app, twice }),
        3 => (app(), select(&SCOPES), proptest::option::weighted(0.6, 0..2u8))
            .prop_map(|(app, scope, signer)| Ask::Require { app, scope, signer }),
        5 => (app(), proptest::bool::weighted(0.7), select(&[0usize, 0, 1, 2]), key())
            .prop_map(|(app, ci, back, key)| Ask::Head { app, ci, back, key }),
        2 => (app(), 0..LISTS.len()).prop_map(|(app, list)| Ask::Workloads { app, list }),
        1 => Just(Ask::Enable),
        1 => Just(Ask::Disable),
        2 => app().prop_map(|app| Ask::Delete { app }),
        2 => (0..3usize, proptest::bool::weighted(0.8)).prop_map(|(app, take_over)| Ask::Register { app, take_over }),
    ]
}

fn tag() -> impl Strategy<Value = &'static str> {
    select(&TAGS)
}

fn expects() -> impl Strategy<Value = Expects> {
    select(&[Expects::Anything, Expects::Current, Expects::Newest])
}

fn key() -> impl Strategy<Value = Key> {
    select(&[Key::None, Key::Repeated, Key::Twice])
}

fn call() -> impl Strategy<Value = &'static str> {
    prop_oneof![2 => Just(""), 4 => select(&CALLS[1..3]), 2 => select(&CALLS[4..9]), 2 => select(&CALLS[11..17]),
        2 => select(&CALLS[17..]), 3 => select(&CALLS)]
}

fn fault() -> impl Strategy<Value = InjectedFault> {
    let time = || select(&[1u64, 4, 12, 20, 40]).prop_map(Duration::from_secs);
    prop_oneof![
        2 => Just(InjectedFault::Before),
        3 => Just(InjectedFault::Lost),
        1 => time().prop_map(InjectedFault::Slow),
        1 => time().prop_map(InjectedFault::Late),
        3 => any::<bool>().prop_map(|done| InjectedFault::Crash { done }),
        3 => (any::<bool>(), time()).prop_map(|(done, time)| InjectedFault::Pause { done, time }),
        1 => time().prop_map(InjectedFault::Adrift),
        1 => Just(InjectedFault::Stale),
        1 => Just(InjectedFault::Refused),
    ]
}

fn meddling() -> impl Strategy<Value = Meddling> {
    prop_oneof![
        3 => any::<bool>().prop_map(Meddling::Reach),
        2 => Just(Meddling::Push),
        1 => (0..3usize).prop_map(Meddling::Image),
        1 => (0..3usize, any::<bool>()).prop_map(|(part, anew)| Meddling::Remove { part, anew }),
        1 => (0..3usize, any::<bool>()).prop_map(|(part, is)| Meddling::Unsupported(part, is)),
        1 => (0..3usize, 0..3u32).prop_map(|(part, pods)| Meddling::Scale(part, pods)),
        6 => (select(&[0u8, 0, 0, 1]), step()).prop_map(|(branch, step)| Meddling::Head { branch, step }),
        2 => any::<bool>().prop_map(Meddling::Builder),
        1 => Just(Meddling::LoseBuilds),
        4 => select(&[Answers::Well, Answers::Well, Answers::Emptily, Answers::Never, Answers::Broken])
            .prop_map(Meddling::Provider),
        2 => select(&[Reading::Well, Reading::Denied, Reading::Away]).prop_map(Meddling::Registry),
        5 => (select(&["v2", "slow", "crash", "dies", "drains"]), proptest::bool::weighted(0.2))
            .prop_map(|(tag, below)| Meddling::Publish { tag, below }),
        1 => Just(Meddling::Withdraw),
        1 => Just(Meddling::Sign),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![5 => tag().prop_map(Step::New), 3 => (1..4usize).prop_map(Step::Back), 1 => Just(Step::Gone)]
}
