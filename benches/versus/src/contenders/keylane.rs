//! keylane, in the ways it is used.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use keylane::{Builder, Dispatcher, Overflow, Receipt, Retry};

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::message::Ask;
use crate::work::{Echo, Work};

type Lanes<W> = Dispatcher<u64, <W as Work>::Message, (), Infallible>;

macro_rules! senders {
    ($($(#[doc = $doc:literal])* $name:ident: $set:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone)]
            pub(super) struct $name<W: Work>(Lanes<W>);

            impl<W: Work> Contender<W> for $name<W> {
                async fn start(limits: Limits) -> Self {
                    let started = $set(builder::<W>(limits)).spawn(handle::<W>);
                    Self(started.expect("the limits are not zero and there is a runtime"))
                }

                async fn send(&mut self, message: W::Message) {
                    // It is closed only when the runtime is gone.
                    let _ = self.0.send(message).await;
                }
            }
        )*
    };
}

senders! {
    /// Without anything: no answer, no retry.
    Plain: std::convert::identity;
    /// With retries, for which each attempt gets a clone of its message.
    Full: |builder: Builder<_, _, _, _>| {
        builder.retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
    };
    /// With the striped intake.
    Striped: |builder: Builder<_, _, _, _>| builder.striped_intake(true);
    /// With a faster hasher.
    Foldhash: |builder: Builder<_, _, _, _>| builder.hasher(foldhash::fast::RandomState::default());
}

impl Answers for Plain<Echo> {}
impl Answers for Striped<Echo> {}
impl Answers for Foldhash<Echo> {}

impl Answers for Full<Echo> {
    async fn ask(&mut self, key: u64) {
        // The copy that an attempt gets has no channel, so the answer comes by receipt.
        let receipt = self
            .0
            .submit(Ask { key, reply: None })
            .await
            .expect("it is open");
        receipt.await.expect("the handler does not fail");
    }
}

/// Every message with a receipt. A sender awaits them in turn, the oldest once it has more than can
/// be in flight and a quarter of the capacity.
pub(super) struct Submit<W: Work, const STRIPED: bool = false> {
    lanes: Lanes<W>,
    receipts: VecDeque<Receipt<W::Message, (), Infallible>>,
    most: usize,
}

impl<W: Work, const STRIPED: bool> Clone for Submit<W, STRIPED> {
    /// Another sender, with receipts of its own.
    fn clone(&self) -> Self {
        Self {
            lanes: self.lanes.clone(),
            receipts: VecDeque::new(),
            most: self.most,
        }
    }
}

impl<W: Work, const STRIPED: bool> Contender<W> for Submit<W, STRIPED> {
    async fn start(limits: Limits) -> Self {
        let builder = builder::<W>(limits).striped_intake(STRIPED);
        let started = builder.spawn(handle::<W>);
        let lanes = started.expect("the limits are not zero and there is a runtime");
        Self {
            lanes,
            receipts: VecDeque::new(),
            most: limits.concurrency + limits.capacity / 4,
        }
    }

    async fn send(&mut self, message: W::Message) {
        if let Ok(receipt) = self.lanes.submit(message).await {
            self.receipts.push_back(receipt);
        }
        if self.receipts.len() > self.most
            && let Some(oldest) = self.receipts.pop_front()
        {
            let _ = oldest.await;
        }
    }
}

impl<const STRIPED: bool> Answers for Submit<Echo, STRIPED> {
    async fn ask(&mut self, key: u64) {
        let receipt = self
            .lanes
            .submit(Ask { key, reply: None })
            .await
            .expect("it is open");
        receipt.await.expect("the handler does not fail");
    }
}

fn builder<W: Work>(
    limits: Limits,
) -> Builder<u64, W::Message, Infallible, impl Fn(&W::Message) -> Option<u64> + Sync + 'static> {
    Dispatcher::builder(W::key)
        .concurrency(limits.concurrency)
        .capacity(limits.capacity)
        .lane_capacity(limits.lane, Overflow::Wait)
}

async fn handle<W: Work>(message: W::Message) -> Result<(), Infallible> {
    W::default().run(message).await;
    Ok(())
}
