//! Messages that may not start yet.

/// The behaviour of the messages of a key behind one that may not start yet
/// ([`send_when`](crate::Dispatcher::send_when)).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Delayed {
    /// They wait behind it: messages start in the order in which they were accepted. The default.
    #[default]
    Wait,
    /// They pass it: the message takes its place in the lane when its time has come, behind the
    /// messages that are parked by then.
    ///
    /// Until then it takes up capacity, but it is not in its lane:
    /// [`inspect`](crate::Dispatcher::inspect) does not see it,
    /// [`LaneControl`](crate::LaneControl) cannot decide about it, and the lane's limit does not
    /// count it.
    Pass,
}
