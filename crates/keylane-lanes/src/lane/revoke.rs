//! A source takes messages back that it has handed over.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::Rules;
use super::Lane;
use super::effects::{Effects, Left, Taken};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Takes out the messages that their source has taken back: parked ones, early ones, and the
    /// head if the lane holds it. `is_head_revoked` returns the version of a head that is taken
    /// back.
    ///
    /// A head that is out is not touched; the rest of the lane goes on behind it.
    pub fn revoke(
        &mut self,
        is_revoked: &dyn Fn(&T) -> bool,
        is_head_revoked: &dyn Fn(&H) -> Option<u64>,
        now: Instant,
        rules: &Rules,
        effects: &mut Effects<T, H, G>,
    ) {
        let in_line = self.parked.extract(is_revoked);
        // What comes again must not be taken for a duplicate.
        let first = in_line.iter().map(Item::version).min();
        for item in in_line {
            effects.left.push((item, Left::Revoked));
        }
        if let Some(sequencer) = self.more.sequencer_mut() {
            for item in sequencer.extract_early(is_revoked) {
                effects.left.push((item, Left::Revoked));
            }
        }
        if let Some(first) = first {
            self.rewind(first, now, rules, effects);
        }
        if let Some(version) = self.state.head().and_then(is_head_revoked) {
            self.state.uncount(effects);
            let head = self.state.take_head();
            effects.rare_mut().taken = head.map(|head| (head, Taken::Revoked));
            self.rewind(version, now, rules, effects);
            return self.advance(now, rules, effects);
        }
        if effects.left.is_empty() {
            return;
        }
        self.more.open_gate(self.depth(rules), rules, effects);
        self.ask_again(now, rules, effects);
    }
}
