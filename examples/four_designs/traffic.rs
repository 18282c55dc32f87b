//! Who sends what and when: decided before the first design starts, and the same for each.

use std::num::NonZeroUsize;
use std::time::Duration;

use keylane::routing::hash_lane;

use crate::arguments::Arguments;

/// A user, and the key of its messages.
pub(crate) type User = u32;

/// The user whose messages take long.
pub(crate) const SLOW: User = 1;

/// One piece of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) user: User,
    /// Which of its user's messages this is, from 0.
    pub(crate) number: usize,
    /// When it is meant to be sent, from the start.
    pub(crate) due: Duration,
    /// How long its handler waits for something.
    pub(crate) work: Duration,
}

impl Message {
    /// The only message of a user who takes no time.
    pub(crate) fn of_crowd(user: User) -> Self {
        Self {
            user,
            number: 0,
            due: Duration::ZERO,
            work: Duration::ZERO,
        }
    }
}

/// The whole load.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) users: u32,
    pub(crate) lanes: NonZeroUsize,
    /// How long users send.
    pub(crate) length: Duration,
    pub(crate) slow: Duration,
    /// In the order in which they are due.
    pub(crate) messages: Vec<Message>,
}

impl Traffic {
    /// The slow user keeps one worker busy for 70 % of the time, and all others together send 380
    /// messages a second, however many they are: no setting makes it more than the machine can do.
    /// All send at random moments, so now and then a few messages of a user come at once.
    pub(crate) fn new(arguments: &Arguments) -> Self {
        let slow_gap = arguments.slow().as_secs_f64() / 0.7;
        let gap = f64::from(arguments.users - 1) / 380.0;
        let length = arguments.seconds.as_secs_f64();
        let mut dice = Dice(0x6B65_796C_616E_6521);
        let mut messages = Vec::new();
        for user in 1..=arguments.users {
            let gap = if user == SLOW { slow_gap } else { gap };
            let mut due = dice.fraction() * gap.min(length);
            let mut number = 0;
            while due < length {
                messages.push(Message {
                    user,
                    number,
                    due: Duration::from_secs_f64(due),
                    work: if user == SLOW {
                        arguments.slow()
                    } else {
                        Duration::from_millis(1 + u64::from(dice.fraction() < 0.5))
                    },
                });
                // Gaps of a Poisson process.
                due += gap * -(1.0 - dice.fraction()).ln();
                number += 1;
            }
        }
        messages.sort_by_key(|message| message.due);
        Self {
            users: arguments.users,
            lanes: arguments.lanes,
            length: arguments.seconds,
            slow: arguments.slow(),
            messages,
        }
    }

    /// The lane of a user in the static design.
    pub(crate) fn lane(&self, user: User) -> usize {
        hash_lane(self.lanes, &user)
    }

    /// Whether a user shares the slow one's lane in the static design.
    pub(crate) fn is_mate(&self, user: User) -> bool {
        user != SLOW && self.lane(user) == self.lane(SLOW)
    }

    /// The slow user, those who share its lane, and the others.
    pub(crate) fn rows(&self) -> Vec<User> {
        let mut users: Vec<User> = (1..=self.users).collect();
        users.sort_by_key(|user| (*user != SLOW, !self.is_mate(*user), *user));
        users
    }
}

/// The same throws each time. SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators" (2014).
struct Dice(u64);

impl Dice {
    /// From 0 to less than 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
