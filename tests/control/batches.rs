//! `.batch(max, linger)`: several messages of one key in one handler.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use keylane::batch::{Answers, BatchAnswer};
use keylane::{Builder, Context};
use keylane_testkit::ScriptError;
use keylane_testkit::scenario::{Message, ScriptedDispatcher};

use crate::support::Recorder;

mod answers;
mod bounds;
mod endings;
mod failures;
mod forming;
mod linger;

/// What a handler does with a batch.
#[derive(Clone, Debug)]
enum Reply {
    Done,
    /// All fail with the number of the first message.
    Fail,
    Panic,
    Never,
    /// One answer each as told, perhaps too few or too many.
    Each(Vec<bool>),
    /// After so many milliseconds.
    After(u64, Box<Reply>),
}

/// What it answers: any of the three forms.
struct Said(Answers<u64, ScriptError>);

impl BatchAnswer for Said {
    type Output = u64;
    type Error = ScriptError;

    fn into_answers(self, _: usize) -> Answers<u64, ScriptError> {
        self.0
    }
}

/// How a batch with these ids is answered at this attempt.
type Answering = Arc<dyn Fn(&[u64], u32) -> Reply + Send + Sync>;

type Handler = Box<
    dyn Fn(Context<u64>, Vec<Message>) -> Pin<Box<dyn Future<Output = Said> + Send>> + Send + Sync,
>;

fn batched(
    recorder: &Recorder,
    builder: Builder<
        u64,
        Message,
        ScriptError,
        impl Fn(&Message) -> Option<u64> + Send + Sync + 'static,
    >,
    reply: impl Fn(&[u64], u32) -> Reply + Send + Sync + 'static,
) -> ScriptedDispatcher {
    builder
        .spawn_batches(handler(recorder.clone(), Arc::new(reply)))
        .unwrap()
}

/// One type for all answers: the engine's runner is compiled once.
fn handler(recorder: Recorder, reply: Answering) -> Handler {
    Box::new(move |context, batch| {
        let (recorder, reply) = (recorder.clone(), Arc::clone(&reply));
        Box::pin(async move { handle(&recorder, &context, &batch, &*reply).await })
    })
}

async fn handle(
    recorder: &Recorder,
    context: &Context<u64>,
    batch: &[Message],
    reply: &(dyn Fn(&[u64], u32) -> Reply + Send + Sync),
) -> Said {
    let ids: Vec<_> = batch.iter().map(|message| message.id).collect();
    assert!(
        batch
            .iter()
            .all(|message| message.key == context.key().copied())
    );
    let _running = recorder.begin(batch[0].key, ids.clone(), context.attempt());
    let mut reply = reply(&ids, context.attempt());
    if let Reply::After(ms, then) = reply {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        reply = *then;
    }
    Said(match reply {
        Reply::Fail => Err(ScriptError::Error(ids[0])),
        Reply::Panic => resume_unwind(Box::new("as told")),
        Reply::Never => std::future::pending().await,
        Reply::Each(each) => {
            let ids = ids.into_iter().chain(std::iter::repeat(0));
            let each = each.into_iter().zip(ids);
            Ok(each
                .map(|(ok, id)| {
                    if ok {
                        Ok(id)
                    } else {
                        Err(ScriptError::Error(id))
                    }
                })
                .collect())
        }
        Reply::Done | Reply::After(..) => Ok(ids.into_iter().map(Ok).collect()),
    })
}

fn after(ms: u64, reply: Reply) -> Reply {
    Reply::After(ms, Box::new(reply))
}
