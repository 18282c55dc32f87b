//! Every runner's task, so that `abort` can drop what is in flight.

use crate::rt::{AbortHandle, Mutex, NumberMap, lock};

/// The handles of the running runners, by their number.
#[derive(Debug)]
pub(crate) struct Runners(Mutex<Tasks>);

#[derive(Debug)]
struct Tasks {
    next: u64,
    aborted: bool,
    /// `None` while the task is being spawned.
    running: NumberMap<u64, Option<AbortHandle>>,
}

impl Runners {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Tasks {
            next: 0,
            aborted: false,
            running: NumberMap::new(),
        }))
    }

    /// Starts a task under a new number.
    ///
    /// Not under the lock: a runtime that is shutting down drops the task before `spawn` returns,
    /// and the task takes its number out again.
    pub(crate) fn start(&self, spawn: impl FnOnce(u64) -> AbortHandle) {
        let number = {
            let mut tasks = lock(&self.0);
            tasks.next += 1;
            let number = tasks.next;
            tasks.running.insert(number, None);
            number
        };
        let task = spawn(number);
        let mut tasks = lock(&self.0);
        let aborted = tasks.aborted;
        if let Some(running) = tasks.running.get_mut(&number) {
            if aborted {
                drop(tasks);
                task.abort();
            } else {
                *running = Some(task);
            }
        }
    }

    /// A runner has ended.
    pub(crate) fn remove(&self, number: u64) {
        let removed = lock(&self.0).running.remove(&number);
        drop(removed);
    }

    /// Drops what is in flight, now and from now on.
    pub(crate) fn abort_all(&self) {
        let tasks: Vec<_> = {
            let mut tasks = lock(&self.0);
            tasks.aborted = true;
            tasks
                .running
                .values_mut()
                .filter_map(Option::take)
                .collect()
        };
        for task in tasks {
            task.abort();
        }
    }
}
