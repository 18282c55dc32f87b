//! Users: what they may do, and errors that say what is wrong.

use keylane_etcd::etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use keylane_etcd::{ErrorKind, Etcd, EtcdLeases, FenceError};
use keylane_leases::Owner;
use keylane_leases::store::{LeaseStore, Wish};
use testkit_servers::EtcdKind;

use crate::support::{LONG, each_kind, granted, own, renew};

/// Creates a user with the rights of a namespace, and switches users on.
async fn with_users(server: &testkit_servers::Etcd) -> Client {
    let mut operator = Client::connect([server.url()], None).await.unwrap();
    operator.user_add("root", "secret", None).await.unwrap();
    operator.user_grant_role("root", "root").await.unwrap();
    operator.role_add("accounts").await.unwrap();
    let prefix = "accounts/keylane/";
    let right = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
    operator
        .role_grant_permission("accounts", right)
        .await
        .unwrap();
    operator.user_add("worker", "work", None).await.unwrap();
    operator
        .user_grant_role("worker", "accounts")
        .await
        .unwrap();
    operator.auth_enable().await.unwrap();
    let options = ConnectOptions::new().with_user("root", "secret");
    Client::connect([server.url()], Some(options))
        .await
        .unwrap()
}

fn store(server: &testkit_servers::Etcd, namespace: &str, user: Option<[&str; 2]>) -> EtcdLeases {
    let mut etcd = Etcd::at([server.url()]).unwrap();
    if let Some([name, password]) = user {
        etcd = etcd.options(ConnectOptions::new().with_user(name, password));
    }
    EtcdLeases::open(&etcd, namespace).unwrap()
}

#[tokio::test]
async fn a_user_needs_the_rights_of_the_namespace_and_no_more() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let mut operator = with_users(&server).await;
        let owner = Owner::random();
        let wishes = [Wish::new("key", LONG)];
        let worker = Some(["worker", "work"]);
        let right = store(&server, "accounts", worker);
        let claim = granted(&right, &owner, "key", LONG).await;
        assert!(renew(&right, &owner, &claim).await, "{kind}");

        let wrong = [
            ("other", worker, "permission denied"),
            (
                "accounts",
                Some(["worker", "wrong"]),
                "authentication failed",
            ),
            ("accounts", None, "name a user"),
        ];
        for (namespace, user, why) in wrong {
            let store = store(&server, namespace, user);
            let error = store
                .acquire(&owner, &wishes)
                .await
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("the server refuses the user"),
                "{kind}: {error}"
            );
            assert!(error.contains(why), "{kind}: {error}");
            let place = server.url().replace("http://", "etcd at ") + ": ";
            assert!(error.contains(&place), "{kind}: {error}");
            if why == "authentication failed" {
                let advice = "correct the user and the password in `Etcd::options`";
                assert!(error.ends_with(advice), "{kind}: {error}");
            }
            assert!(
                !error.contains("wrong") || why != "authentication failed",
                "{error}"
            );
        }

        let denied = right.fence("key", claim.token);
        let write = keylane_etcd::etcd_client::TxnOp::put("elsewhere", "1", None);
        let txn = keylane_etcd::etcd_client::Txn::new().and_then([write]);
        match denied.commit(txn).await {
            Err(FenceError::Etcd(error)) => assert_eq!(error.kind(), ErrorKind::Denied),
            // It does not check the rights of a transaction in another one.
            Ok(_) => assert_eq!(kind, EtcdKind::Etcd34),
            other => panic!("{kind}: {other:?}"),
        }

        // The rights are taken away, and given back.
        operator
            .user_revoke_role("worker", "accounts")
            .await
            .unwrap();
        let claims = std::slice::from_ref(&claim);
        let error = right.renew(&owner, claims).await.unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{kind}: {error}");
        operator
            .user_grant_role("worker", "accounts")
            .await
            .unwrap();
        assert!(renew(&right, &owner, &claim).await, "{kind}");
    })
    .await;
}

/// A restart makes the tokens of users void.
#[tokio::test]
async fn a_token_of_a_user_that_is_void_is_renewed() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let _operator = with_users(&server).await;
        let store = store(&server, "accounts", Some(["worker", "work"]));
        let owner = Owner::random();
        let claim = granted(&store, &owner, "key", LONG).await;
        for _ in 0..2 {
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
            assert!(renew(&store, &owner, &claim).await, "{kind}");
        }
        store.release(&owner, &[claim]).await.unwrap();
    })
    .await;
}
