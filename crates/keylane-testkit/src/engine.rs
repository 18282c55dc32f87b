//! Connects the kit to the engine: a letter box as a dead-letter sink, a report as evidence.

use std::fmt;

use keylane::error::BoxError;
use keylane::{DeadLetter, DeadLetterSink, Report};

use crate::check::Drained;
use crate::events::Id;
use crate::letters::LetterBox;

impl LetterBox {
    /// Returns this box as the sink of a dispatcher. `id` returns the id of the message of a
    /// letter.
    ///
    /// ```
    /// # use keylane_testkit::{History, LetterBox, ScriptError};
    /// use keylane::OnExhausted;
    ///
    /// let letters = LetterBox::new(&History::new()).refuses(1);
    /// let policy: OnExhausted<u64, (u64, u64), ScriptError> =
    ///     OnExhausted::dead_letter(letters.sink(|&(_, id): &(u64, u64)| id));
    /// ```
    pub fn sink<M, F>(&self, id: F) -> LetterSink<F>
    where
        F: Fn(&M) -> Id,
    {
        LetterSink {
            letters: self.clone(),
            id,
        }
    }
}

/// The sink that [`LetterBox::sink`] returns.
#[derive(Clone)]
pub struct LetterSink<F> {
    letters: LetterBox,
    id: F,
}

impl<F> fmt::Debug for LetterSink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LetterSink")
            .field("letters", &self.letters)
            .finish_non_exhaustive()
    }
}

#[keylane::async_trait]
impl<K, M, E, F> DeadLetterSink<K, M, E> for LetterSink<F>
where
    K: Sync,
    M: Sync,
    E: fmt::Debug + Sync,
    F: Fn(&M) -> Id + Send + Sync,
{
    async fn accept(&self, letter: &DeadLetter<K, M, E>) -> Result<(), BoxError> {
        let id = (self.id)(&letter.message);
        let failure = letter.failure.to_string();
        Ok(self.letters.accept(id, letter.attempts, failure).await?)
    }
}

impl Drained {
    /// Adds `report`. At that moment the history was at `position`.
    pub fn new<K, M>(position: usize, report: &Report<K, M>) -> Self {
        Self {
            position,
            accepted: report.accepted,
            done: report.done,
            dead_lettered: report.dead_lettered,
            discarded: report.discarded,
            coalesced: report.coalesced,
            duplicates: report.duplicates,
            expired: report.expired,
            handed_back: report.handed_back,
        }
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::time::Duration;

    use keylane::error::Failure;
    use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
    use tokio::time::Instant;

    use super::*;
    use crate::check::{Evidence, Rule};
    use crate::history::History;
    use crate::script::{Act, Script, ScriptError};

    /// The kit around the real engine: everything is recorded, and every rule is judged.
    #[tokio::test(start_paused = true)]
    async fn a_dispatcher_is_judged_by_its_history() {
        let history = History::new();
        let script = Script::new(&history)
            .otherwise(Act::ok().sleeps(Duration::from_millis(10)))
            .attempt(3, 1, Act::panic_at_poll(2))
            .attempt(4, 1, Act::never().panics_in_drop())
            .message(5, Act::error())
            .message(6, Act::fatal());
        let letters = LetterBox::new(&history).refuses(2);
        let backoff = Duration::from_millis(50);
        let orders = Dispatcher::builder(|&(key, _): &(u64, u64)| key)
            .concurrency(2)
            .lane_capacity(100, Overflow::Wait)
            .attempt_timeout(Duration::from_millis(100))
            .retry(Retry::fixed(backoff).max_attempts(2).retry_if(
                |failure| !matches!(failure, Failure::Error(error) if ScriptError::is_fatal(error)),
            ))
            .on_exhausted(OnExhausted::dead_letter(
                letters.sink(|&(_, id): &(u64, u64)| id),
            ))
            .spawn(move |ctx: Context<u64>, (_, id): (u64, u64)| {
                script.run(ctx.key().copied(), id, ctx.attempt())
            })
            .expect("the settings agree");

        let mut seqs = [0; 4];
        for id in 0..40 {
            let key = id % 4;
            seqs[key as usize] += 1;
            let sending = history.sending(key, seqs[key as usize], id);
            orders
                .send((key, id))
                .await
                .expect("the dispatcher is open");
            sending.ok();
        }
        let report = orders.drain().await;

        let evidence = Evidence::new()
            .quiescent(Instant::now())
            .max_attempts(2)
            .concurrency(2)
            .backoff(backoff)
            .faults(Instant::now(), Duration::ZERO)
            .lanes(orders.stats().lanes)
            .drained(Drained::new(history.position(), &report));
        let verdict = history.check(&evidence).expect("a correct engine");
        verdict.assert_judged(&[
            Rule::NoLoss,
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
            Rule::Duplicates,
            Rule::DeadLetters,
            Rule::Liveness,
            Rule::Drain,
        ]);
        let dead: Vec<_> = letters
            .letters()
            .iter()
            .map(|l| (l.id, l.attempts))
            .collect();
        assert_eq!(dead.len(), 2, "{dead:?}");
        assert!(dead.contains(&(5, 2)) && dead.contains(&(6, 1)), "{dead:?}");
        assert_eq!(letters.refused().len(), 2);
    }
}
