//! A primary with a replica, and sentinels that decide who is the primary.
