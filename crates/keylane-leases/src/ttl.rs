//! How long a lease may live.

use std::time::Duration;

/// The shortest time to live of a lease.
pub const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// The longest time to live of a lease.
pub const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);
