//! What happens, as a stream for each subscriber: bounded, lossy, and the engine never waits for
//! it.

mod event;
pub use event::{Event, SourceEvent};

mod feed;
pub(crate) use feed::Feed;

mod stream;
pub use stream::Events;
