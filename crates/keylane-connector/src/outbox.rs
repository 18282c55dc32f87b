//! Changes on their way to the system: one request at a time, each with all that has gathered.

use std::sync::Arc;

use crate::changes::Changes;

/// Changes on their way to a system. Pure.
///
/// A change waits until the next request, is sent with it, and stays until the system has answered.
/// After a failure it is sent again, in front of later ones.
#[derive(Debug)]
pub struct Outbox<I> {
    waiting: Changes<I>,
    /// The changes in the current request. The system may have applied them.
    sent: Arc<Changes<I>>,
}

impl<I> Default for Outbox<I> {
    fn default() -> Self {
        Self {
            waiting: Changes::default(),
            sent: Arc::default(),
        }
    }
}

impl<I: Clone + PartialEq> Outbox<I> {
    /// Returns the changes that wait for the next request, to add more.
    pub fn waiting(&mut self) -> &mut Changes<I> {
        &mut self.waiting
    }

    /// Returns whether changes wait for the next request. `has_room`: whether returned messages may
    /// come again now; if not, they are no reason for a request.
    pub fn is_waiting(&self, has_room: bool) -> bool {
        !self.waiting.is_settled() || has_room && !self.waiting.again.is_empty()
    }

    /// Begins a request with all changes that wait. One request is in progress at a time.
    pub fn send(&mut self) -> Arc<Changes<I>> {
        debug_assert!(self.sent.is_empty(), "one request at a time");
        self.sent = Arc::new(std::mem::take(&mut self.waiting));
        Arc::clone(&self.sent)
    }

    /// Ends the request: the system has applied its changes, and has handed the first `came` of the
    /// returned messages over again. The others are asked for again, and first.
    pub fn confirm(&mut self, came: usize) {
        let left = self.sent.again.iter().skip(came).cloned();
        self.waiting.again.splice(..0, left);
        self.sent = Arc::default();
    }

    /// Ends a request that failed, or has an unknown result: its changes are sent again, and first.
    pub fn take_back(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        let later = std::mem::replace(&mut self.waiting, Arc::unwrap_or_clone(sent));
        self.waiting.append(later);
    }

    /// Returns whether the system knows all settlements and all attempts.
    pub fn is_confirmed(&self) -> bool {
        self.waiting.is_settled() && self.sent.is_settled()
    }

    /// Returns whether this message has settled, and the system may not know it.
    pub fn settles(&self, id: &I) -> bool {
        self.waiting.settles(id) || self.sent.settles(id)
    }

    /// Takes the settlements that the system may not know, once no request is in progress any more.
    pub(crate) fn take_settlements(&mut self) -> Changes<I> {
        self.take_back();
        std::mem::take(&mut self.waiting).settlements()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add(u8),
        Return(u8),
        Send,
        Answer(usize),
        Fail,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => any::<u8>().prop_map(Step::Add),
            1 => any::<u8>().prop_map(Step::Return),
            2 => Just(Step::Send),
            1 => (0..3_usize).prop_map(Step::Answer),
            1 => Just(Step::Fail),
        ]
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(1_000))]

        /// As one list of changes, of which a request takes all, and an answer removes those.
        #[test]
        fn every_change_is_confirmed_once_and_in_its_order(
            steps in prop::collection::vec(step(), 0..40),
        ) {
            let mut outbox = Outbox::default();
            let (mut settled, mut again) = (Vec::new(), Vec::new());
            let mut request: Option<(usize, usize)> = None;
            for step in steps {
                match step {
                    Step::Add(id) => {
                        outbox.waiting().done.push(id);
                        settled.push(id);
                    }
                    Step::Return(id) => {
                        outbox.waiting().again.push(id);
                        again.push(id);
                    }
                    Step::Send if request.is_none() => {
                        let sent = outbox.send();
                        prop_assert_eq!(&sent.done, &settled);
                        prop_assert_eq!(&sent.again, &again);
                        request = Some((settled.len(), again.len()));
                    }
                    Step::Answer(came) => if let Some((done, returned)) = request.take() {
                        let came = came.min(returned);
                        outbox.confirm(came);
                        settled.drain(..done);
                        again.drain(..came);
                    },
                    Step::Fail => if request.take().is_some() {
                        outbox.take_back();
                    },
                    Step::Send => {}
                }
                prop_assert_eq!(outbox.is_confirmed(), settled.is_empty());
                prop_assert!(settled.iter().all(|id| outbox.settles(id)));
            }
            let left = outbox.take_settlements();
            prop_assert_eq!(left.done, settled);
            prop_assert!(left.again.is_empty() && !outbox.is_waiting(true));
        }
    }
}
