//! Who has a key.

use etcd_client::{Txn, TxnOp};
use keylane_leases::store::Holder;

use crate::error::EtcdError;
use crate::leases::calls::{Calls, Left, found};
use crate::leases::core::{Core, token};

pub(super) async fn held_by(
    core: &Core,
    calls: &Calls<'_>,
    key: &[u8],
) -> Result<Option<Holder>, EtcdError> {
    let read = Txn::new().and_then([TxnOp::get(core.names.lease(key), None)]);
    let mut done = calls.txn(read).await?;
    let Some(seen) = found(done.answers.pop())? else {
        return Ok(None);
    };
    let left = match seen.lease() {
        // It never ends, and an acquire says so in the log.
        0 => None,
        carrier => {
            let left = calls.left([carrier]).await?.pop();
            Some(left.map_or(Left::ENDED, |(_, left)| left).time())
        }
    };
    let owner = String::from_utf8_lossy(seen.value());
    Ok(Some(Holder::new(
        owner,
        token(seen.create_revision()),
        left,
    )))
}
