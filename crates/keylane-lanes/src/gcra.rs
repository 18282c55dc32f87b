//! Whether something may start now, from one word of memory.

/// The Generic Cell Rate Algorithm of ITU-T Recommendation I.371, as virtual scheduling.
///
/// Its state of one key, or of all, is one word, the *theoretical arrival time*: the time of the
/// next start if all starts came evenly. A start may come early by as much as the tolerance allows,
/// which is the burst. All times are nanoseconds since an epoch of the caller's; 0 is a word that
/// was never used. A clock that goes back grants nothing twice. Near the end of the 64 bits, after
/// 584 years, it grants too much, and never stops granting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// From one start to the next, when they come evenly.
    emission: u64,
    /// How much earlier than evenly one may start.
    tolerance: u64,
}

impl Gcra {
    /// Returns a limiter. A burst of 0 counts as 1.
    pub fn new(emission: u64, burst: u32) -> Self {
        let tolerance = emission.saturating_mul(u64::from(burst.saturating_sub(1)));
        Self {
            emission,
            tolerance,
        }
    }

    /// Starts one now, or returns from when on one may start; that time changes only when one
    /// starts.
    ///
    /// From the time in the word on, it returns the same as for a word that was never used.
    pub fn ask(&self, tat: &mut u64, now: u64) -> Result<(), u64> {
        let ready_at = tat.saturating_sub(self.tolerance);
        if now < ready_at {
            return Err(ready_at);
        }
        *tat = now.max(*tat).saturating_add(self.emission);
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_and_then_evenly() {
        let limiter = Gcra::new(10, 3);
        let mut tat = 0;
        let mut started = Vec::new();
        for now in 100..160 {
            let all = (0..9).filter(|_| limiter.ask(&mut tat, now).is_ok());
            started.extend(all.map(|_| now));
        }
        assert_eq!(started, [100, 100, 100, 110, 120, 130, 140, 150]);
    }

    #[test]
    fn what_was_not_used_is_saved_up_to_the_burst() {
        let limiter = Gcra::new(10, 2);
        let mut tat = 0;
        let mut at = |now| {
            (0..9)
                .filter(|_| limiter.ask(&mut tat, now).is_ok())
                .count()
        };
        assert_eq!(
            [at(0), at(9), at(10), at(25), at(30), at(1_000)],
            [2, 0, 1, 1, 1, 2]
        );
    }

    #[test]
    fn a_clock_that_goes_back_grants_nothing() {
        let limiter = Gcra::new(10, 1);
        let mut tat = 0;
        assert_eq!(limiter.ask(&mut tat, 100), Ok(()));
        assert_eq!(limiter.ask(&mut tat, 50), Err(110));
        assert_eq!(limiter.ask(&mut tat, 110), Ok(()));
    }

    /// A limiter, and its burst.
    fn limiter() -> impl Strategy<Value = (Gcra, u32)> {
        let emission = prop_oneof![1..20_u64, 1..=u64::MAX];
        (emission, 1..=20_u32).prop_map(|(emission, burst)| (Gcra::new(emission, burst), burst))
    }

    /// The times between one question and the next.
    fn gaps() -> impl Strategy<Value = Vec<u64>> {
        let gap = prop_oneof![4 => Just(0), 4 => 0..40_u64, 1 => any::<u64>()];
        prop::collection::vec(gap, 1..80)
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(256))]

        #[test]
        fn no_window_has_more_than_its_share(
            emission in 1..50_u64,
            burst in 1..10_u32,
            gaps in prop::collection::vec(0..60_u64, 1..80),
        ) {
            let limiter = Gcra::new(emission, burst);
            let (mut tat, mut now) = (0, 0);
            let mut started = Vec::new();
            for gap in gaps {
                now += gap;
                let all = (0..2 * burst).filter(|_| limiter.ask(&mut tat, now).is_ok());
                started.extend(all.map(|_| now));
            }
            for (i, from) in started.iter().enumerate() {
                for (j, to) in started.iter().enumerate().skip(i) {
                    let most = u64::from(burst) + (to - from) / emission;
                    prop_assert!((j - i + 1) as u64 <= most, "{} from {from} to {to}", j - i + 1);
                }
            }
        }

        #[test]
        fn the_moment_it_names_is_the_first((limiter, _) in limiter(), gaps in gaps()) {
            let (mut tat, mut now) = (0, 0_u64);
            for gap in gaps {
                now = now.saturating_add(gap);
                let before = tat;
                if let Err(ready_at) = limiter.ask(&mut tat, now) {
                    prop_assert_eq!(tat, before, "a refusal changes nothing");
                    prop_assert!(ready_at > now);
                    let (mut early, mut on_time, mut late) = (tat, tat, tat);
                    prop_assert_eq!(limiter.ask(&mut early, ready_at - 1), Err(ready_at));
                    prop_assert_eq!(limiter.ask(&mut on_time, ready_at), Ok(()));
                    prop_assert_eq!(limiter.ask(&mut late, ready_at.saturating_add(gap)), Ok(()));
                } else {
                    prop_assert!(tat >= before && tat > now || tat == u64::MAX);
                }
            }
        }

        #[test]
        fn no_time_wedges_it((limiter, _) in limiter(), gaps in gaps()) {
            let (mut tat, mut now) = (0, u64::MAX - 100);
            for gap in gaps {
                now = now.saturating_add(gap);
                let _ = limiter.ask(&mut tat, now);
            }
            prop_assert_eq!(limiter.ask(&mut tat, u64::MAX), Ok(()));
        }

        #[test]
        fn a_word_is_forgotten_when_it_says_nothing(
            (limiter, burst) in limiter(),
            gaps in gaps(),
            later in 0..100_u64,
        ) {
            let (mut tat, mut now) = (0, 0_u64);
            for gap in gaps {
                now = now.saturating_add(gap);
                let _ = limiter.ask(&mut tat, now);
            }
            let now = tat.saturating_add(later);
            let mut fresh = 0;
            for _ in 0..=burst {
                let answer = limiter.ask(&mut tat, now);
                prop_assert_eq!(answer, limiter.ask(&mut fresh, now));
                prop_assert_eq!(tat, fresh);
            }
        }
    }
}
