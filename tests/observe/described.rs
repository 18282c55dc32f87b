//! The lines about messages of a source whose own call is under way.

use keylane::error::BoxError;
use keylane::source::{
    Deliveries, Describer, Features, Generation, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter,
};
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::reference::{ReferenceServer, ReferenceSource};
use keylane_testkit::scenario::until;
use tokio::sync::watch;

use super::origins::lines_of;

/// How far the letter of `Slow` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Letter {
    None,
    Offered,
    MayBeKept,
}

/// A source with positions of a text of its own, which keeps a letter when it may.
struct Slow {
    inner: ReferenceSource,
    letter: watch::Sender<Letter>,
}

impl Source for Slow {
    type Message = RawMessage;
    type Position = <ReferenceSource as Source>::Position;

    fn describer(&self) -> Describer<Self::Position> {
        Describer::new(|position: &Self::Position| format!("row {position:?}"))
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.inner.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Self::Position>,
    ) -> Result<Received<Self::Position>, SourceError> {
        self.inner.receive(into).await
    }

    async fn settle(&mut self, settled: &[Settlement<Self::Position>]) -> Result<(), SourceError> {
        self.inner.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.inner.confirm().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.inner.release(generations).await
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> Result<(), SourceError> {
        self.letter.send_replace(Letter::Offered);
        let mut may = self.letter.subscribe();
        let may = may.wait_for(|letter| *letter == Letter::MayBeKept).await;
        may.map_err(|_| SourceError::failed("the test is over"))?;
        self.inner.dead_letter(letter).await
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.inner.close().await
    }
}

/// The decoder has the source itself keep a letter. A handler fails meanwhile.
#[test]
fn a_line_during_a_call_of_the_inner_source_says_where_its_message_is() {
    let lines = lines_of(async |lines| {
        let server = ReferenceServer::new(Features::new().survives_restart().dead_letters());
        server.publish([
            RawMessage::new("no").key("user-7"),
            RawMessage::new("250").key("user-8"),
        ]);
        let (letter, offered) = watch::channel(Letter::None);
        let orders = Dispatcher::builder(|order: &u64| *order)
            .on_exhausted(OnExhausted::Discard)
            .spawn(move |_: u64| {
                let mut offered = offered.clone();
                async move {
                    offered
                        .wait_for(|letter| *letter >= Letter::Offered)
                        .await?;
                    Err::<(), BoxError>("no account".into())
                }
            })
            .unwrap();
        let source = Slow {
            inner: server.source(),
            letter: letter.clone(),
        };
        let decoded = source.decode(|raw: &RawMessage| {
            let text = std::str::from_utf8(&raw.payload)?;
            Ok(text.parse::<u64>()?)
        });
        let intake = orders.consume(decoded).unwrap();
        until(|| !lines.with("gave up on the message").is_empty()).await;
        assert_eq!(*letter.borrow(), Letter::Offered, "the call is under way");
        letter.send_replace(Letter::MayBeKept);
        until(|| intake.stats().dead_lettered == 1).await;
        intake.stop().await;
    });
    let cases = [
        ("a message cannot be decoded", "position=row 0:0#1"),
        ("an attempt failed", "position=row 0:1#"),
        ("gave up on the message", "position=row 0:1#"),
    ];
    for (what, position) in cases {
        let about = lines.iter().filter(|line| line.contains(what));
        let named = about.clone().filter(|line| line.contains(position));
        assert_eq!((about.count(), named.count()), (1, 1), "{what}: {lines:#?}");
    }
}
