//! At most one message of a key waits, beside one that was out and came back.

use keylane_rt::clock::Instant;

use super::super::super::gate::Gate;
use super::super::super::item::Item;
use super::super::super::rules::{AtLimit, CoalesceRules, Rules, Survivor};
use super::super::effects::{Effects, Few, Left, Stall};
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
            return self.push(item, spares);
        }
        let is_full = rules.at_limit != AtLimit::Park && self.depth(rules) >= rules.capacity;
        // The newest: one that came back stands before it, and has its own start.
        let Some(waits) = self.parked_mut().next_back() else {
            return self.push(item, spares);
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
                self.forget_delay();
            }
            Survivor::Merged if is_full && rules.at_limit == AtLimit::Refuse => {
                effects.left.push((item, Left::Refused));
            }
            Survivor::Merged if is_full => {
                let old = std::mem::replace(waits, item);
                effects.left.push((old, Left::Displaced));
                self.forget_delay();
            }
            Survivor::Merged => {
                if let Some(old) = self.pop_newest() {
                    let messages = 2 + old.merged_len();
                    self.more_mut().plan = Plan::Merging(messages);
                    effects.rare_mut().merge = Some((old, Few::One(item)));
                }
            }
        }
    }

    /// Takes the one message that two have become, out of the lane. The user's function did their
    /// [`merge`](super::super::effects::Rare::merge).
    pub fn offer_merged(
        &mut self,
        item: T,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        if let Some(more) = &mut self.more {
            more.plan.end_merge();
        }
        if self.is_stalled() {
            effects.stall = Stall::Lane;
        }
        self.push(item, spares);
        self.forget_delay();
        let depth = self.depth(rules);
        // If it is only one of the two.
        self.open_gate(depth, rules, effects);
        self.after_offer(depth, now, rules, effects);
        // The end has not looked at a lane that was merging.
        effects.holds |= !self.is_out();
    }
}
