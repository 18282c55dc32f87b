//! At most one message of a key waits, beside one that was out and came back.

use super::super::super::gate::Gate;
use super::super::super::item::Item;
use super::super::super::rules::{AtLimit, CoalesceRules, Rules, Survivor};
use super::super::effects::{Effects, Few, Left};
use super::super::state::State;
use super::super::{Lane, Spares};
use super::Plan;

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    pub(in super::super) fn coalesce(
        &mut self,
        coalesce: CoalesceRules,
        item: T,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        if coalesce.survivor == Survivor::Merged && matches!(self.state, State::Entered) {
            // A merge is of what waits and of what comes, in this order, and the first of what
            // waits is not here.
            return self.parked.push(item, spares);
        }
        let is_full = rules.at_limit != AtLimit::Park && self.depth(rules) >= rules.capacity;
        // The newest: one that came back stands before it, and has its own start.
        let Some(waits) = self.parked.iter_mut().next_back() else {
            return self.parked.push(item, spares);
        };
        // At an exact limit nothing more is kept for the sake of its receipt.
        let shares = coalesce.shares && !is_full;
        match coalesce.survivor {
            Survivor::First if shares || item.settles_with_survivor() => {
                effects.rare_mut().bodies.push(waits.absorb_newer(item));
            }
            Survivor::First => effects.left.push((item, Left::Declined)),
            Survivor::Latest => {
                let mut old = std::mem::replace(waits, item);
                if shares || old.settles_with_survivor() {
                    effects.rare_mut().bodies.push(waits.absorb_older(old));
                } else {
                    waits.inherit_merged(&mut old);
                    effects.left.push((old, Left::Superseded));
                }
                self.state.forget_delay();
            }
            Survivor::Merged if is_full && rules.at_limit == AtLimit::Refuse => {
                effects.left.push((item, Left::Refused));
            }
            Survivor::Merged if is_full => {
                let old = std::mem::replace(waits, item);
                effects.left.push((old, Left::Displaced));
                self.state.forget_delay();
            }
            Survivor::Merged => {
                if let Some(old) = self.parked.pop_newest() {
                    let messages = 2 + old.merged_len();
                    *self.more.make_plan() = Plan::Merging(messages);
                    effects.rare_mut().merge = Some((old, Few::One(item)));
                }
            }
        }
    }
}
