//! What the source was told and has not confirmed.

use keylane_rt::clock::Instant;

#[derive(Debug, Default)]
pub(super) struct Unconfirmed(Option<Told>);

#[derive(Debug)]
struct Told {
    /// Only acks. Other settlements are confirmed with them.
    acks: u64,
    confirm_at: Instant,
}

impl Unconfirmed {
    /// The source is told settlements, among them so many acks. The first of them are confirmed at
    /// this time, and the others with them.
    pub(super) fn tell(&mut self, acks: u64, confirm_at: Instant) {
        let told = self.0.get_or_insert(Told {
            acks: 0,
            confirm_at,
        });
        told.acks += acks;
    }

    /// The source is asked to confirm. If it answers with something else, it is asked again then.
    pub(super) fn ask(&mut self, again_at: Instant) {
        if let Some(told) = &mut self.0 {
            told.confirm_at = again_at;
        }
    }

    /// When the source is to be asked.
    pub(super) fn confirm_at(&self) -> Option<Instant> {
        self.0.as_ref().map(|told| told.confirm_at)
    }

    pub(super) fn acks(&self) -> u64 {
        self.0.as_ref().map_or(0, |told| told.acks)
    }

    /// All of it is confirmed, or will never be. Returns the acks.
    pub(super) fn clear(&mut self) -> u64 {
        self.0.take().map_or(0, |told| told.acks)
    }
}
