//! An executor of one thread, whose order is a choice.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

type Ready = Arc<Mutex<VecDeque<u64>>>;

/// Futures, each of a replica, and which of them can go on.
#[derive(Default)]
pub(crate) struct Executor {
    next: u64,
    all: BTreeMap<u64, Task>,
    ready: Ready,
}

struct Task {
    replica: usize,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    task_waker: Arc<TaskWaker>,
    waker: Waker,
}

/// Queues its task once, however often it is rung.
struct TaskWaker {
    task: u64,
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap().push_back(self.task);
        }
    }
}

impl Executor {
    pub(crate) fn spawn(&mut self, replica: usize, future: impl Future<Output = ()> + Send + 'static) -> u64 {
        let task = self.next;
        self.next += 1;
        let task_waker = Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready: Arc::clone(&self.ready) });
        task_waker.wake_by_ref();
        let waker = Waker::from(Arc::clone(&task_waker));
        self.all.insert(task, Task { replica, future: Box::pin(future), task_waker, waker });
        task
    }

    /// The task whose turn it is among those whose replica runs: the first that is ready, or a later one where the
    /// order is another.
    pub(crate) fn next(&mut self, order: usize, runs: impl Fn(usize) -> bool) -> Option<u64> {
        let mut ready = self.ready.lock().unwrap();
        ready.retain(|task| self.all.contains_key(task));
        let can = |task: &&u64| self.all.get(*task).is_some_and(|task| runs(task.replica));
        let count = ready.iter().filter(can).count();
        let task = *ready.iter().filter(can).nth(order.checked_rem(count)?)?;
        ready.retain(|other| *other != task);
        Some(task)
    }

    /// Lets a task go on; true where it has ended.
    pub(crate) fn poll(&mut self, task: u64) -> bool {
        let Some(Task { future, task_waker, waker, .. }) = self.all.get_mut(&task) else { return true };
        task_waker.queued.store(false, Ordering::Relaxed);
        let ended = future.as_mut().poll(&mut Context::from_waker(waker)).is_ready();
        if ended {
            self.all.remove(&task);
        }
        ended
    }

    /// Drops whatever a replica was doing, and says what that was.
    pub(crate) fn kill(&mut self, replica: usize) -> Vec<u64> {
        let killed: Vec<u64> =
            self.all.iter().filter(|(_, task)| task.replica == replica).map(|(task, _)| *task).collect();
        for task in &killed {
            self.all.remove(task);
        }
        killed
    }
}
