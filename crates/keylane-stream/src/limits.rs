//! The limits of an adapter.

/// The default capacity of a lane.
const LANE_CAPACITY: usize = 64;

pub(super) struct Limits {
    pub(super) concurrency: usize,
    pub(super) lane_capacity: usize,
    capacity: Option<usize>,
}

impl Limits {
    #[track_caller]
    pub(super) fn new(concurrency: usize) -> Self {
        assert!(concurrency > 0, "the concurrency must not be zero");
        Self {
            concurrency,
            lane_capacity: LANE_CAPACITY,
            capacity: None,
        }
    }

    #[track_caller]
    pub(super) fn set_lane_capacity(&mut self, elements: usize) {
        assert!(elements > 0, "the capacity of a lane must not be zero");
        self.lane_capacity = elements;
    }

    #[track_caller]
    pub(super) fn set_capacity(&mut self, elements: usize) {
        assert!(elements > 0, "the capacity must not be zero");
        self.capacity = Some(elements);
    }

    pub(super) fn capacity(&self) -> usize {
        let every_lane = || self.concurrency.saturating_mul(self.lane_capacity);
        self.capacity.unwrap_or_else(every_lane)
    }
}

/// The settings of every adapter.
macro_rules! settings {
    () => {
        /// Sets the maximum number of elements of one key that are in flight or parked. The default
        /// is 64.
        ///
        /// At the limit the next element of the key is held, and nothing is pulled until one of the
        /// key's elements has finished. So a hot key leaves the concurrency to others: it has one
        /// future in flight, and a lane of its own for the rest.
        ///
        /// # Panics
        ///
        /// If it is zero.
        #[track_caller]
        pub fn lane_capacity(mut self, elements: usize) -> Self {
            self.core.limits.set_lane_capacity(elements);
            self
        }

        /// Sets the maximum number of elements that were pulled and whose output was not taken:
        /// parked, in flight, and finished. In input order this also counts elements that panicked
        /// behind one that has not finished. The default is the concurrency times the capacity of a
        /// lane.
        ///
        /// At the limit nothing is pulled.
        ///
        /// # Panics
        ///
        /// If it is zero.
        #[track_caller]
        pub fn capacity(mut self, elements: usize) -> Self {
            self.core.limits.set_capacity(elements);
            self
        }
    };
}

pub(super) use settings;
