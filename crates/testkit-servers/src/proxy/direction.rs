//! The two directions of a connection.

/// A direction in which bytes go through a [`Proxy`](super::Proxy).
///
/// ```
/// use testkit_servers::proxy::Direction;
///
/// assert_ne!(Direction::ToServer, Direction::ToClient);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client: requests.
    ToServer,
    /// From the server: answers.
    ToClient,
}
