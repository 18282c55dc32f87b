//! What happens, as a stream for each subscriber: bounded and lossy; the engine never waits.

mod event;
pub use event::Event;

mod feed;
pub(crate) use feed::Feed;

mod stream;
pub use stream::Events;
