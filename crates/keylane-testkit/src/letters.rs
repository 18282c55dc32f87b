//! A dead-letter sink for tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::events::Id;
use crate::gate::Gate;
use crate::history::History;

/// Collects dead letters. It first refuses as many as the test says, and records each letter that
/// it takes as [`Event::Dead`](crate::Event::Dead).
///
/// A handle: clones are the same box.
///
/// ```
/// # use keylane_testkit::{History, LetterBox};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let history = History::new();
/// let letters = LetterBox::new(&history).refuses(1);
/// assert!(letters.accept(7, 5, "no funds").await.is_err());
/// assert!(letters.accept(7, 5, "no funds").await.is_ok());
/// assert_eq!(letters.letters()[0].attempts, 5);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LetterBox {
    history: History,
    gate: Option<Gate>,
    state: Arc<Mutex<State>>,
}

impl LetterBox {
    /// Creates an empty box. Its letters are recorded in `history`.
    pub fn new(history: &History) -> Self {
        Self {
            history: history.clone(),
            gate: None,
            state: Arc::default(),
        }
    }

    /// Refuses the next `times` letters.
    pub fn refuses(self, times: usize) -> Self {
        self.lock().refusals_left = times;
        self
    }

    /// Makes each letter wait at `gate` before the box takes or refuses it.
    pub fn waits(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Takes a letter, or refuses it.
    ///
    /// # Errors
    ///
    /// The letter was refused and is not in the box.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the letter is not in the box.
    pub async fn accept(
        &self,
        id: Id,
        attempts: u32,
        failure: impl Into<String>,
    ) -> Result<(), LetterRefused> {
        let letter = Letter {
            id,
            attempts,
            failure: failure.into(),
        };
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        let mut state = self.lock();
        if state.refusals_left > 0 {
            state.refusals_left -= 1;
            state.refused.push(letter);
            return Err(LetterRefused(id));
        }
        state.letters.push(letter);
        // Under the lock, so the letters are in the order of the history.
        self.history.dead(id);
        Ok(())
    }

    /// Returns the letters taken so far, in order.
    pub fn letters(&self) -> Vec<Letter> {
        self.lock().letters.clone()
    }

    /// Returns the letters refused so far, in order.
    pub fn refused(&self) -> Vec<Letter> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A dead letter as the box keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// The message.
    pub id: Id,
    /// How many attempts it had.
    pub attempts: u32,
    /// The reason of its last failure.
    pub failure: String,
}

/// The box has refused this letter.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("scripted refusal of the letter of id {0}")]
pub struct LetterRefused(pub Id);

keylane_rt::text_in_debug! { LetterRefused }

#[derive(Debug, Default)]
struct State {
    refusals_left: usize,
    letters: Vec<Letter>,
    refused: Vec<Letter>,
}

#[cfg(test)]
mod tests {
    use tokio_test::{assert_pending, assert_ready_eq, task};

    use super::*;
    use crate::events::Event;

    fn dead(history: &History) -> Vec<Id> {
        let id = |event| match event {
            Event::Dead { id } => Some(id),
            _ => None,
        };
        history
            .records()
            .iter()
            .filter_map(|record| id(record.event))
            .collect()
    }

    #[tokio::test]
    async fn refuses_first_and_records_only_what_it_takes() {
        let history = History::new();
        let letters = LetterBox::new(&history).refuses(2);
        let mut answers = Vec::new();
        for id in [1, 2, 1, 2] {
            answers.push(letters.clone().accept(id, 3, "broke").await);
        }
        let [one, two] = [1, 2].map(|id| Letter {
            id,
            attempts: 3,
            failure: "broke".into(),
        });
        assert_eq!(
            answers,
            [Err(LetterRefused(1)), Err(LetterRefused(2)), Ok(()), Ok(())]
        );
        assert_eq!(letters.letters(), [one.clone(), two.clone()]);
        assert_eq!(letters.refused(), [one, two]);
        assert_eq!(dead(&history), [1, 2]);
    }

    #[test]
    fn a_letter_at_the_gate_is_not_in_the_box() {
        let history = History::new();
        let gate = Gate::new();
        let letters = LetterBox::new(&history).waits(&gate);
        let mut first = task::spawn(letters.accept(1, 1, ""));
        assert_pending!(first.poll());
        drop(first);
        let mut second = task::spawn(letters.accept(2, 1, ""));
        assert_pending!(second.poll());
        assert!(letters.letters().is_empty() && dead(&history).is_empty());
        gate.release(1);
        assert_ready_eq!(second.poll(), Ok(()));
        assert_eq!(dead(&history), [2]);
    }
}
