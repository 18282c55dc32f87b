//! The policy of a process while the server is away.

/// What happens while the server is away.
///
/// The server is away when a call has failed with a temporary error, or was not answered for as
/// long as permits are kept. It is asked again after 50 milliseconds, then at growing pauses of up
/// to a second.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenAway {
    /// Nothing starts, except with permits that were borrowed before.
    #[default]
    Stop,
    /// Each process goes on with its share of the rates: the rate and the burst divided by the
    /// number of processes, with a burst of 1 at least.
    ///
    /// If there are no more processes than this number, all together start no more than the rates
    /// allow, with a burst of one for each process where that is more. A process begins with its
    /// whole share of the burst, and does not count the permits that it got from the server: each
    /// change between the two can cost one more burst.
    LocalShare {
        /// The largest number of processes.
        processes: u32,
    },
}
