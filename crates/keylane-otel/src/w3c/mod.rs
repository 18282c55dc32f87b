//! The headers of the W3C: text to values and back. Pure.

pub(crate) mod baggage;
pub(crate) mod traceparent;
pub(crate) mod tracestate;
