//! In front of a service: what a request costs behind keylane's layer, beside tower's own.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::time::Instant;

use keylane_tower::{KeyedLayer, KeyedSemaphore};
use serde::Serialize;
use tower::limit::ConcurrencyLimitLayer;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::measure;

/// What a request meets in front of the service.
pub const STACKS: [&str; 4] = ["nothing", "ConcurrencyLimit", "Buffer", "keylane"];

/// What the service does with it.
pub const INNER: [&str; 2] = ["ready at once", "pending once"];

/// Requests that every stack lets in.
const LIMIT: usize = 1_024;

/// Tasks that call, each with a clone of its own, one request after the other.
const CALLERS: u64 = 64;

const KEYS: u64 = 10_000;

/// One stack in front of one service.
#[derive(Clone, Debug, Serialize)]
pub struct Front {
    /// Which stack.
    pub stack: &'static str,
    /// Which service.
    pub inner: &'static str,
    /// Nanoseconds per request, both workers together: the median of the rounds.
    pub nanos: f64,
    /// To `ConcurrencyLimit` in the same round: the median.
    pub ratio: f64,
}

/// Measures all stacks, in turns.
pub fn measure(quick: bool, rounds: usize) -> Vec<Front> {
    let requests = if quick { 300_000 } else { 2_000_000 };
    let mut fronts = Vec::new();
    for (waits, inner) in [false, true].into_iter().zip(INNER) {
        let mut samples = [const { Vec::new() }; STACKS.len()];
        for _ in 0..rounds {
            for (stack, samples) in STACKS.into_iter().zip(&mut samples) {
                samples.push(one(stack, waits, requests));
            }
        }
        let limits = samples[1].clone();
        for (stack, samples) in STACKS.into_iter().zip(samples) {
            let ratios = samples.iter().zip(&limits).map(|(own, limit)| own / limit);
            fronts.push(Front {
                stack,
                inner,
                ratio: median(ratios.collect()),
                nanos: median(samples),
            });
        }
    }
    fronts
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Measures one stack, on a fresh runtime.
pub fn one(stack: &str, waits: bool, requests: u64) -> f64 {
    let inner = Inner { waits };
    let runtime = measure::runtime();
    let _entered = runtime.enter();
    match stack {
        "ConcurrencyLimit" => {
            let service = ConcurrencyLimitLayer::new(LIMIT).layer(inner);
            runtime.block_on(run(service, requests))
        }
        "Buffer" => {
            let service = inner.map_err(BoxError::from);
            runtime.block_on(run(tower::buffer::Buffer::new(service, LIMIT), requests))
        }
        "keylane" => {
            let semaphore = KeyedSemaphore::builder()
                .capacity(LIMIT)
                .concurrency(LIMIT)
                .build();
            let semaphore = semaphore.expect("the limits fit");
            let layer = KeyedLayer::with_semaphore(semaphore, |key: &u64| Some(*key));
            runtime.block_on(run(layer.layer(inner), requests))
        }
        _ => runtime.block_on(run(inner, requests)),
    }
}

async fn run<S>(service: S, requests: u64) -> f64
where
    S: Service<u64, Response = u64, Error: fmt::Debug, Future: Send> + Clone + Send + 'static,
{
    let share = requests / CALLERS;
    call(&service, share / 8).await;
    let began = Instant::now();
    call(&service, share).await;
    began.elapsed().as_nanos() as f64 / (share * CALLERS) as f64
}

async fn call<S>(service: &S, share: u64)
where
    S: Service<u64, Response = u64, Error: fmt::Debug, Future: Send> + Clone + Send + 'static,
{
    let callers = (0..CALLERS).map(|caller| {
        let mut service = service.clone();
        tokio::spawn(async move {
            for request in 0..share {
                // Of all keys, and two callers seldom at the same.
                let key = (caller * 157 + request * 61) % KEYS;
                let ready = service.ready().await.expect("it takes requests");
                black_box(ready.call(key).await.expect("it answers"));
                if request % 32 == 31 {
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no caller panics");
    }
}

/// Answers at once, or after having been pending once.
#[derive(Clone, Debug)]
struct Inner {
    waits: bool,
}

impl Service<u64> for Inner {
    type Response = u64;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Answer {
        Answer {
            waits: self.waits,
            request,
        }
    }
}

/// The inner service's future.
#[derive(Debug)]
struct Answer {
    waits: bool,
    request: u64,
}

impl Future for Answer {
    type Output = Result<u64, Infallible>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        if std::mem::take(&mut self.waits) {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(Ok(self.request + 1))
    }
}
