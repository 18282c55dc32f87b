//! The class that goes next: urgent ones go first, and none waits for ever.

/// The maximum number of classes of priority.
pub const CLASSES: usize = 8;

/// How often in a row a class may be passed over while it has jobs that wait.
///
/// At least one less than the classes, or several that are due at once could not all be served.
const BOUND: u8 = 16;

/// The choice between classes, of which 0 is the most urgent.
///
/// The most urgent class that waits goes next, unless some class would then be passed over more
/// than [`BOUND`] times in a row. Each class that waits has a deadline, the choice before which it
/// must go; as with earliest-deadline-first scheduling (Liu and Layland, 1973), all deadlines can
/// be met if, for every `r`, at most `r + 1` of them are `r` choices away or less. If exactly that
/// many are, the earliest one goes.
#[derive(Debug, Default)]
pub(super) struct ClassOrder {
    /// How often each was passed over since it last went or came.
    passed: [u8; CLASSES],
}

impl ClassOrder {
    /// The class that goes next, of those whose bit is set; at least one must be.
    pub(super) fn choose(&mut self, waiting: u8) -> usize {
        let most_urgent = waiting.trailing_zeros() as usize;
        let next = self.due(waiting).unwrap_or(most_urgent);
        for (class, passed) in self.passed.iter_mut().enumerate() {
            if class == next || waiting & (1 << class) == 0 {
                *passed = 0;
            } else {
                *passed = passed.saturating_add(1);
            }
        }
        next
    }

    /// The class that has to go now, if one has to.
    fn due(&self, waiting: u8) -> Option<usize> {
        let left = |class: &usize| usize::from(BOUND.saturating_sub(self.passed[*class]));
        let classes = || (0..CLASSES).filter(|class| waiting & (1 << class) != 0);
        let earliest = classes().min_by_key(left)?;
        let is_tight = (left(&earliest)..CLASSES)
            .any(|choices| classes().filter(|class| left(class) <= choices).count() > choices);
        is_tight.then_some(earliest)
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_most_urgent_goes_first() {
        let mut order = ClassOrder::default();
        let chosen = [0b1000_0110, 0b1000_0000, 0b0000_0100, 0b1111_1111].map(|w| order.choose(w));
        assert_eq!(chosen, [1, 7, 2, 0]);
    }

    #[test]
    fn of_two_classes_the_other_goes_after_as_many_as_the_bound() {
        let mut order = ClassOrder::default();
        for _ in 0..3 {
            let chosen: Vec<_> = (0..=BOUND).map(|_| order.choose(0b11)).collect();
            let (last, before) = chosen.split_last().expect("it chose");
            assert!(
                *last == 1 && before.iter().all(|class| *class == 0),
                "{chosen:?}"
            );
        }
    }

    #[test]
    fn one_that_did_not_wait_was_not_passed_over() {
        let mut order = ClassOrder::default();
        for _ in 0..BOUND {
            assert_eq!(order.choose(0b11), 0);
        }
        assert_eq!(order.choose(0b01), 0, "no other class waits");
        for _ in 0..BOUND {
            assert_eq!(order.choose(0b11), 0, "it has only just come");
        }
        assert_eq!(order.choose(0b11), 1);
    }

    #[test]
    fn all_at_once_and_for_ever() {
        let mut order = ClassOrder::default();
        let mut chosen = [0_u32; CLASSES];
        for _ in 0..17 * 100 {
            chosen[order.choose(0xff)] += 1;
        }
        assert!(chosen[0] >= 900, "most are urgent: {chosen:?}");
        assert!(chosen.iter().all(|count| *count >= 95), "{chosen:?}");
    }

    /// How many jobs come, by class, before each choice.
    fn arrivals() -> impl Strategy<Value = Vec<[u8; CLASSES]>> {
        let count = prop_oneof![6 => Just(0_u8), 3 => Just(1), 1 => 2..40_u8];
        prop::collection::vec(prop::array::uniform(count), 1..300)
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(1_000))]

        #[test]
        fn no_class_is_passed_over_more_often_than_the_bound(arrivals in arrivals()) {
            let mut order = ClassOrder::default();
            let mut waiting = [0_u32; CLASSES];
            let mut passed = [0_u32; CLASSES];
            for came in arrivals {
                for class in 0..CLASSES {
                    waiting[class] += u32::from(came[class]);
                }
                let bits = (0..CLASSES).filter(|c| waiting[*c] > 0).fold(0, |b, c| b | 1 << c);
                if bits == 0 {
                    continue;
                }
                let next = order.choose(bits);
                prop_assert!(waiting[next] > 0, "nothing waits in class {next}");
                waiting[next] -= 1;
                let most_urgent = bits.trailing_zeros() as usize;
                let close = u32::from(BOUND) + 1 - CLASSES as u32;
                prop_assert!(next == most_urgent || passed[next] >= close, "{next} was not due");
                for (class, passed) in passed.iter_mut().enumerate() {
                    let was_passed = class != next && bits & (1 << class) != 0;
                    *passed = if was_passed { *passed + 1 } else { 0 };
                    prop_assert!(*passed <= u32::from(BOUND), "{class} starves");
                }
            }
        }
    }
}
