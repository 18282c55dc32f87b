//! The counters of a proxy.

/// The traffic of a [`Proxy`](super::Proxy) since its creation. All counters are read at one
/// moment.
///
/// ```
/// use testkit_servers::proxy::Traffic;
///
/// let traffic = Traffic::default();
/// assert_eq!((traffic.accepted, traffic.open), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were accepted, without the refused ones.
    pub accepted: u64,
    /// Connections that were reset because of [`refuse`](super::Proxy::refuse).
    pub refused: u64,
    /// Accepted connections that are not closed yet.
    pub open: u64,
    /// Bytes that were passed to the server.
    pub to_server: u64,
    /// Bytes that were passed to the client.
    pub to_client: u64,
}
