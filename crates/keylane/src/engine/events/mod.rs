//! What happened, for whoever wants to watch: a bounded, lossy stream that the engine never waits for.

mod event;
pub use event::Event;

mod feed;
pub(crate) use feed::Feed;

mod stream;
pub use stream::Events;
