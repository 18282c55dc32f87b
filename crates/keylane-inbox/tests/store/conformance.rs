use std::sync::Arc;

use keylane_inbox::conformance::{self, Place};
use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings};

struct Directory(tempfile::TempDir);

#[keylane_inbox::async_trait]
impl Place for Directory {
    async fn open(&self) -> Arc<dyn InboxStore> {
        let directory = self.0.path().join("inbox");
        Arc::new(
            EmbeddedStore::open(directory, Settings::default())
                .await
                .unwrap(),
        )
    }
}

#[tokio::test]
async fn the_embedded_store_conforms() {
    conformance::check(|| Directory(tempfile::tempdir().unwrap())).await;
}
