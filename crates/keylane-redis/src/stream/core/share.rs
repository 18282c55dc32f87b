//! The share of each member of a group in the streams. Pure.

/// Returns how many of `streams` the member at this place among `members` gets. The oldest members
/// come first, so that a new one takes as few as possible. All members together get exactly all
/// streams.
pub(crate) fn quota(streams: usize, members: usize, place: usize) -> usize {
    let members = members.max(1);
    streams / members + usize::from(place < streams % members)
}

/// Returns the streams in the order in which the member at this place tries them: members begin at
/// different ones, so that few collide.
pub(crate) fn order(streams: usize, members: usize, place: usize) -> impl Iterator<Item = usize> {
    let first = streams * place / members.max(1);
    (0..streams).map(move |step| (first + step) % streams)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn all_streams_are_shared_and_no_member_has_two_more(
            streams in 0..200_usize,
            members in 1..40_usize,
        ) {
            let quotas: Vec<_> = (0..members).map(|place| quota(streams, members, place)).collect();
            prop_assert_eq!(quotas.iter().sum::<usize>(), streams);
            let (least, most) = (quotas.iter().min(), quotas.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
        }

        /// Members give up surplus streams, and take free ones: in a few rounds each has its share,
        /// and nothing moves any more.
        #[test]
        fn shares_are_reached_and_then_nothing_moves(
            streams in 1..40_usize,
            sizes in proptest::collection::vec(1..8_usize, 1..5),
        ) {
            let mut owners: Vec<Option<usize>> = vec![None; streams];
            for members in sizes {
                // Members that are gone have left their streams.
                owners.iter_mut().for_each(|owner| *owner = owner.filter(|one| *one < members));
                let before = owners.clone();
                let mut moves = 0;
                for _ in 0..4 {
                    for place in 0..members {
                        let mine = owners.iter().filter(|owner| **owner == Some(place)).count();
                        let quota = quota(streams, members, place);
                        let surplus = mine.saturating_sub(quota);
                        let given = owners.iter_mut().rev().filter(|owner| **owner == Some(place));
                        for owner in given.take(surplus) {
                            *owner = None;
                            moves += 1;
                        }
                        let mut wanted = quota.saturating_sub(mine);
                        for stream in order(streams, members, place) {
                            if wanted > 0 && owners[stream].is_none() {
                                owners[stream] = Some(place);
                                wanted -= 1;
                            }
                        }
                    }
                }
                for place in 0..members {
                    let mine = owners.iter().filter(|owner| **owner == Some(place)).count();
                    prop_assert_eq!(mine, quota(streams, members, place));
                }
                // Only surplus streams have moved.
                let surplus: usize = (0..members)
                    .map(|place| {
                        let had = before.iter().filter(|owner| **owner == Some(place)).count();
                        had.saturating_sub(quota(streams, members, place))
                    })
                    .sum();
                prop_assert_eq!(moves, surplus);
            }
        }
    }
}
