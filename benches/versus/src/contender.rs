//! What a contender is: the trait behind which everything is measured.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use tokio::sync::oneshot;

use crate::latency::Asked;
use crate::limits::Limits;
use crate::message::{Ask, Tick};
use crate::probe;
use crate::traffic::Errand;
use crate::work::{Echo, Work};

/// One way to dispatch messages.
///
/// A value is one sender's handle. The contender ends with its runtime and its last handle.
pub trait Contender<W: Work>: Clone + Send + Sync + Sized + 'static {
    /// Starts it on the current runtime.
    fn start(limits: Limits) -> impl Future<Output = Self> + Send;

    /// Sends one message, and waits for room first where there is a limit.
    fn send(&mut self, message: W::Message) -> impl Future<Output = ()> + Send;
}

/// A contender that can be asked, by its own means or with a channel inside the message.
pub trait Answers: Contender<Echo> {
    /// Sends a message and waits for the handler's answer.
    fn ask(&mut self, key: u64) -> impl Future<Output = ()> + Send {
        async move {
            let (reply, answer) = oneshot::channel();
            self.send(Ask {
                key,
                reply: Some(reply),
            })
            .await;
            answer
                .await
                .expect("every message is answered while the runtime lives");
        }
    }
}

/// A future, its type forgotten.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A contender that runs, its type forgotten: the harness is compiled once, not once for each pair
/// of contender and handler. Within an errand nothing is boxed.
pub trait Running: Send + Sync {
    /// Sends the messages of an errand, through a handle of its own.
    fn send(&self, errand: Errand) -> Boxed<()>;
}

/// The same, for the contenders' answers.
pub trait Answering: Send + Sync {
    /// Asks so many questions, one after the other.
    fn ask(&self, questions: u64) -> Boxed<Asked>;
}

struct Started<C, W>(C, PhantomData<W>);

impl<W: Work<Message: From<Tick>>, C: Contender<W>> Running for Started<C, W> {
    fn send(&self, errand: Errand) -> Boxed<()> {
        let mut handle = self.0.clone();
        Box::pin(async move {
            for i in errand.range.clone() {
                // The last send may have failed without a wait, and the next ones would.
                if errand.endless && probe::is_open() {
                    break;
                }
                handle.send(errand.tick(i).into()).await;
            }
        })
    }
}

impl<C: Answers> Answering for Started<C, Echo> {
    fn ask(&self, questions: u64) -> Boxed<Asked> {
        let mut handle = self.0.clone();
        Box::pin(async move {
            let mut asked = Asked::new();
            for i in 0..questions {
                handle.ask(i % Asked::KEYS).await;
                asked.answered();
            }
            asked
        })
    }
}

/// Starts a contender with this handler.
pub async fn start<W, C>(limits: Limits) -> Box<dyn Running>
where
    W: Work<Message: From<Tick>>,
    C: Contender<W>,
{
    Box::new(Started(C::start(limits).await, PhantomData::<W>))
}

/// Starts a contender that is asked.
pub async fn start_answering<C: Answers>(limits: Limits) -> Box<dyn Answering> {
    Box::new(Started(C::start(limits).await, PhantomData))
}
