//! The counting allocator, for one test at a time.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Counts from the first use to the end of the process. The fewest frames: what is wanted are
/// numbers, and a million backtraces take their time.
static COUNTER: LazyLock<Mutex<dhat::Profiler>> = LazyLock::new(|| {
    Mutex::new(
        dhat::Profiler::builder()
            .testing()
            .trim_backtraces(Some(4))
            .build(),
    )
});

/// The right to count: other tests of this process wait meanwhile.
pub(crate) struct Counting {
    _profiler: MutexGuard<'static, dhat::Profiler>,
}

impl Counting {
    pub(crate) fn begin() -> Self {
        Self {
            _profiler: COUNTER.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        dhat::HeapStats::get().curr_bytes as u64
    }

    /// Allocations since the beginning of the process.
    pub(crate) fn allocations(&self) -> u64 {
        dhat::HeapStats::get().total_blocks
    }
}

/// A runtime with one thread and real time.
pub(crate) fn one_thread() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}
