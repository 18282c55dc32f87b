//! Dead letters that the source keeps.

use keylane_rt::clock;
use keylane_source::{Source, SourceLetter};

use super::call::call;
use super::core::Trouble;
use super::task::Driver;
use crate::engine::{LetterRequest, NotKept};
use crate::types::{Error, Key, Message, Output};

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    /// Gives a dead letter to the source, which keeps it.
    pub(super) async fn keep_letter(&mut self, letter: LetterRequest) {
        let LetterRequest {
            slot,
            attempts,
            cause,
            why,
            done,
        } = letter;
        let machine = &mut self.machine;
        let kept = match machine.core.position_of(slot) {
            None => Err(NotKept::Failed(
                "the generation of the message has ended".to_owned(),
            )),
            // It was kept, and those of messages that it stands for were not.
            Some(_) if machine.port.has_letter(slot) => Ok(()),
            Some(position) => {
                let letter = SourceLetter::new(position, attempts, cause, why);
                let limit = machine.core.settings().stall_after;
                let kept = call(limit, self.source.dead_letter(letter)).await;
                if kept.is_ok() {
                    machine.port.set_letter(slot);
                    machine.core.ledger.letter_kept(slot);
                }
                if let Err(late @ Trouble::Late(_)) = &kept {
                    machine.core.failed(late, clock::now());
                    self.carry_out().await;
                }
                kept.map_err(|trouble| match trouble {
                    Trouble::Failed(error) if error.is_pending() => NotKept::Pending,
                    trouble => NotKept::Failed(trouble.to_string()),
                })
            }
        };
        // If the attempt is gone, so is its generation.
        let _ = done.send(kept);
    }
}
