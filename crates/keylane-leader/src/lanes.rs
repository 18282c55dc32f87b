//! The term of a leader as the lease of all lanes of a dispatcher.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use keylane_source::lease::{LaneLease, LaneLeaseError, LaneLeases};
use tokio::time::Instant;

use crate::career::Term;

/// The term of a leader, for `Builder::leased_by` of a dispatcher.
///
/// Messages start only while the term is held, and `Context::lease_token` is its token. When the
/// term is lost, all attempts are dropped, before another process can lead. Made by
/// [`Term::lanes`].
#[derive(Clone, Debug)]
#[must_use = "give them to `Builder::leased_by`"]
pub struct TermLanes(Term);

impl Term {
    /// Returns the lease of all lanes of a dispatcher that runs while this term is held.
    pub fn lanes(&self) -> TermLanes {
        TermLanes(self.clone())
    }
}

#[async_trait]
impl<K: Sync + 'static> LaneLeases<K> for TermLanes {
    async fn acquire(&self, _: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        match self.0.check() {
            Ok(()) => Ok(Box::new(TermLane {
                term: self.0.clone(),
                lost: None,
            })),
            Err(_) => Err(LaneLeaseError::Closed),
        }
    }

    fn losses(&self) -> u64 {
        u64::from(self.0.check().is_err())
    }
}

struct TermLane {
    term: Term,
    /// Created when an attempt waits for the first time: most never do.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl LaneLease for TermLane {
    fn token(&self) -> u64 {
        self.term.token().0
    }

    fn held_until(&self) -> Option<Instant> {
        self.term.lease().held_until()
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lost = self.lost.get_or_insert_with(|| {
            let term = self.term.clone();
            // The task of a handler polls it, and the budget of that task belongs to the handler.
            Box::pin(tokio::task::unconstrained(async move {
                term.lease().lost().await;
            }))
        });
        lost.as_mut().poll(cx)
    }
}
