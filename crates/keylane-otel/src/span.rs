//! A span that is open, and the future that runs in it.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Context, Key, KeyValue};
use pin_project_lite::pin_project;

use crate::names::{ERROR_TYPE, OUTCOME};

/// How an attempt or a call ended.
#[derive(Debug)]
pub(crate) enum End {
    Done,
    /// With the type of the error, and its text if that is to be shown.
    Failed(&'static str, String),
    Panicked,
    TimedOut,
    Dropped,
}

impl End {
    /// The outcome, and the type of the error.
    fn words(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Done => ("done", None),
            Self::Failed(of_type, _) => ("failed", Some(of_type)),
            Self::Panicked => ("panicked", Some("panic")),
            Self::TimedOut => ("timed_out", Some("timeout")),
            Self::Dropped => ("dropped", Some("dropped")),
        }
    }
}

/// A span that is open. If it is dropped, it ends as its future did: with a panic, or dropped.
#[derive(Debug)]
pub(crate) struct OpenSpan<L: Fn() -> bool> {
    context: Context,
    /// Whether the deadline is over, asked when the future is dropped.
    is_late: L,
    /// Whether the future is being polled. If it still is when the span is dropped, it has
    /// panicked.
    is_polled: bool,
    is_over: bool,
}

impl<L: Fn() -> bool> OpenSpan<L> {
    /// `context` has the span.
    pub(crate) fn new(context: Context, is_late: L) -> Self {
        Self {
            context,
            is_late,
            is_polled: false,
            is_over: false,
        }
    }

    /// Sets an attribute that is known at the end only.
    pub(crate) fn set(&self, name: &'static str, value: i64) {
        let attribute = KeyValue::new(Key::from_static_str(name), value);
        self.context.span().set_attribute(attribute);
    }

    pub(crate) fn end(mut self, end: End) {
        self.close(end);
    }

    fn close(&mut self, end: End) {
        self.is_over = true;
        let span = self.context.span();
        if span.is_recording() {
            let (outcome, of_type) = end.words();
            span.set_attribute(KeyValue::new(Key::from_static_str(OUTCOME), outcome));
            if let Some(of_type) = of_type {
                span.set_attribute(KeyValue::new(Key::from_static_str(ERROR_TYPE), of_type));
                let text = match end {
                    End::Failed(_, text) => text,
                    _ => String::new(),
                };
                span.set_status(Status::error(text));
            }
        }
        span.end();
    }
}

impl<L: Fn() -> bool> Drop for OpenSpan<L> {
    fn drop(&mut self) {
        if !self.is_over {
            let end = match self.is_polled {
                true => End::Panicked,
                false if (self.is_late)() => End::TimedOut,
                false => End::Dropped,
            };
            self.close(end);
        }
    }
}

pin_project! {
    /// Runs a future in a span: the context is current during each poll. Returns the span, to be
    /// ended.
    pub(crate) struct InSpan<F, L: Fn() -> bool> {
        // Dropped first: the span is open until the future is gone.
        #[pin]
        future: F,
        span: Option<OpenSpan<L>>,
    }
}

impl<F, L: Fn() -> bool> InSpan<F, L> {
    pub(crate) fn new(span: OpenSpan<L>, future: F) -> Self {
        Self {
            future,
            span: Some(span),
        }
    }
}

impl<F: Future, L: Fn() -> bool> Future for InSpan<F, L> {
    type Output = (F::Output, OpenSpan<L>);

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let span = this.span.as_mut().expect("it is polled until it is ready");
        let _current = span.context.clone().attach();
        span.is_polled = true;
        let polled = this.future.poll(cx);
        span.is_polled = false;
        polled.map(|output| {
            let span = this.span.take();
            (output, span.expect("it was there"))
        })
    }
}
