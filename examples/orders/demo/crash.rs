//! What lies on the disk when the worker has been killed.

use std::collections::HashSet;
use std::path::Path;

use keylane_inbox::Inbox;

use super::plan::{Place, Plan};
use crate::Failure;
use crate::order::Order;

/// How many messages are read at once, and how many bytes.
const PAGE: (usize, usize) = (4_096, 16 << 20);

/// The orders that were stored and not known to be done. Those of them that had started may be started
/// again, and no others.
#[derive(Debug, Default)]
pub(crate) struct AtKill {
    pub(crate) waiting: HashSet<Place>,
}

impl AtKill {
    /// Opens the inbox, which no process has open now, reads what waits in it, and closes it again.
    pub(crate) async fn look(directory: &Path, plan: &Plan) -> Result<Self, Failure> {
        let inbox = Inbox::builder(directory).create(false).open().await?;
        let mut waiting = HashSet::new();
        let mut from = 0;
        loop {
            let page = inbox.store().scan(from, PAGE.0, PAGE.1).await?;
            let Some(last) = page.last() else { break };
            from = last.sequence + 1;
            for message in page {
                let order = Order::from_payload(&message.payload)?;
                if let Some(place) = plan.place(&order.id) {
                    waiting.insert(place?);
                }
            }
        }
        inbox.close().await?;
        Ok(Self { waiting })
    }
}
