//! How keys are released.

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use keylane_connector::lock;
use keylane_leases::Owner;
use keylane_leases::store::Claim;

use crate::error::EtcdError;
use crate::leases::book::revision;
use crate::leases::calls::Calls;
use crate::leases::core::Core;

impl Core {
    pub(super) async fn give_back(
        &self,
        calls: &Calls<'_>,
        owner: &Owner,
        claims: &[Claim],
    ) -> Result<(), EtcdError> {
        calls
            .each(claims, |claim| {
                let name = self.names.lease(&claim.key);
                let token = revision(claim.token);
                let txn = Txn::new()
                    .when([
                        Compare::create_revision(name.clone(), CompareOp::Equal, token),
                        Compare::value(name.clone(), CompareOp::Equal, owner.as_str()),
                    ])
                    .and_then([TxnOp::delete(name.clone(), None)]);
                (name, txn)
            })
            .await?;
        let mut book = lock(&self.book);
        for claim in claims {
            book.lost(owner, &claim.key, claim.token);
        }
        Ok(())
    }
}
