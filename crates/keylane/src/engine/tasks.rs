//! The tasks of all runners, so that `abort` can drop the jobs in flight.

use keylane_rt::{AbortHandle, Arc, Mutex, lock};

use crate::handler::Details;

/// The handles of the running runners, by their number.
#[derive(Debug)]
pub(crate) struct RunningTasks {
    tasks: Mutex<Tasks>,
    /// The part of a context that all handlers share.
    pub(super) details: Arc<Details>,
}

#[derive(Debug)]
struct Tasks {
    aborted: bool,
    /// By number. `None`: the number is free, or its task is being spawned.
    handles: Vec<Option<AbortHandle>>,
    /// The free numbers. They are reused, so numbers stay below the most runners there ever were at
    /// once.
    free: Vec<u32>,
    /// Numbers of tasks that ended before `spawn` returned. They are not free until then.
    ended: Vec<u32>,
}

impl RunningTasks {
    pub(crate) fn new(details: Details) -> Self {
        Self {
            tasks: Mutex::new(Tasks {
                aborted: false,
                handles: Vec::new(),
                free: Vec::new(),
                ended: Vec::new(),
            }),
            details: Arc::new(details),
        }
    }

    /// Starts a task under a number that no other running task has.
    ///
    /// Must not be called under the lock: a runtime that is shutting down drops the task before
    /// `spawn` returns, and then the task frees its number.
    pub(crate) fn start(&self, spawn: impl FnOnce(u32) -> AbortHandle) {
        let number = {
            let mut tasks = lock(&self.tasks);
            tasks.free.pop().unwrap_or_else(|| {
                tasks.handles.push(None);
                u32::try_from(tasks.handles.len() - 1).expect("fewer runners than 2^32")
            })
        };
        let task = spawn(number);
        let mut tasks = lock(&self.tasks);
        if let Some(at) = tasks.ended.iter().position(|ended| *ended == number) {
            tasks.ended.swap_remove(at);
            tasks.free.push(number);
        } else if tasks.aborted {
            drop(tasks);
            task.abort();
        } else {
            tasks.handles[number as usize] = Some(task);
        }
    }

    /// A runner has ended: frees its number.
    pub(crate) fn remove(&self, number: u32) {
        let mut tasks = lock(&self.tasks);
        let removed = tasks.handles[number as usize].take();
        if removed.is_some() {
            tasks.free.push(number);
        } else if !tasks.aborted {
            tasks.ended.push(number);
        }
        drop(tasks);
        drop(removed);
    }

    /// Aborts all runners, and all that are spawned later.
    pub(crate) fn abort_all(&self) {
        let tasks: Vec<_> = {
            let mut tasks = lock(&self.tasks);
            tasks.aborted = true;
            tasks.handles.iter_mut().filter_map(Option::take).collect()
        };
        for task in tasks {
            task.abort();
        }
    }
}
