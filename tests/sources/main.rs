//! Sources that are consumed: what the driver guarantees, with the reference source.
#![cfg(not(keylane_shuttle))]
