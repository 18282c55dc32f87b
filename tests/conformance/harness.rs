//! The reference server as a connector's server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::{Features, RawMessage};
use keylane_testkit::conformance::{Fault, Harness, Site};
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::{History, Outcome};

use crate::spoiled::{Defect, Spoiled};

/// All faults, which the reference server can do.
const FAULTS: [Fault; 7] = [
    Fault::Restart,
    Fault::Kill,
    Fault::Stall,
    Fault::CutBeforeAck,
    Fault::Revoke,
    Fault::Lose,
    Fault::Storm,
];

/// Sources of the reference server, with these features and perhaps a defect.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    features: Features,
    partitions: usize,
    defect: Defect,
    kills: bool,
}

impl Reference {
    pub(crate) fn new(features: Features) -> Self {
        Self {
            features,
            partitions: 1,
            defect: Defect::None,
            kills: false,
        }
    }

    pub(crate) fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    pub(crate) fn defect(mut self, defect: Defect) -> Self {
        self.defect = defect;
        self
    }

    /// A harness that kills processes.
    pub(crate) fn kills(mut self) -> Self {
        self.kills = true;
        self
    }
}

/// A source that can do everything.
pub(crate) fn everything() -> Reference {
    let features = Features::new()
        .nack()
        .survives_restart()
        .random_access()
        .counts_attempts()
        .dead_letters()
        .finite()
        .lease(Duration::from_secs(10));
    Reference::new(features).kills()
}

#[keylane::async_trait]
impl Harness for Reference {
    type Site = Topic;

    async fn site(&self, _case: &str) -> Result<Topic, BoxError> {
        let server = ReferenceServer::new(self.features).partitions(self.partitions);
        if self.defect == Defect::AcceptsStaleAcks {
            server.faults().accept_stale();
        }
        Ok(Topic {
            server,
            defect: self.defect,
            is_troubled: Arc::default(),
        })
    }

    fn faults(&self) -> Vec<Fault> {
        FAULTS.to_vec()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(12)
    }

    async fn kill_process(&self) -> Result<Option<History>, BoxError> {
        if !self.kills {
            return Ok(None);
        }
        // As a harness would write it down: the process dies between the end of a handler and the
        // confirmation of its ack.
        let history = History::new();
        history.sending(1, 1, 1).ok();
        history.sending(1, 2, 2).ok();
        for (id, is_confirmed) in [(1, true), (2, false), (2, true)] {
            history.start(id, 1, 0);
            history.end(id, 1, Outcome::Ok);
            history.ack_req(id);
            if is_confirmed {
                history.ack_ok(id);
            }
            if !is_confirmed || (id == 1 && self.defect == Defect::ForgetsAcksInACrash) {
                history.crash(0);
            }
        }
        if self.defect == Defect::ForgetsAcksInACrash {
            history.start(1, 1, 0);
            history.end(1, 1, Outcome::Ok);
        }
        Ok(Some(history))
    }
}

/// One reference server.
pub(crate) struct Topic {
    server: ReferenceServer,
    defect: Defect,
    is_troubled: Arc<AtomicBool>,
}

#[keylane::async_trait]
impl Site for Topic {
    type Source = Spoiled;

    async fn source(&self) -> Result<Spoiled, BoxError> {
        Ok(Spoiled::new(&self.server, self.defect, &self.is_troubled))
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        self.server.publish(messages);
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        Ok(self.server.left())
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        let letters = self.server.letters().into_iter();
        Ok(letters.map(|letter| letter.message).collect())
    }

    async fn end(&self) -> Result<(), BoxError> {
        self.server.end();
        Ok(())
    }

    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        match fault {
            Fault::Restart => {
                self.server.shut_down();
                if self.defect == Defect::LosesInARestart {
                    self.lose_one();
                }
                self.server.start();
            }
            Fault::Kill => {
                self.server.kill();
                if self.defect == Defect::LosesWhenKilled {
                    self.lose_one();
                }
                self.server.start();
            }
            Fault::Stall => {
                self.is_troubled.store(true, Ordering::Relaxed);
                self.server.stall();
            }
            Fault::CutBeforeAck => self.server.faults().cut_before_ack(1),
            Fault::Revoke => self.server.revoke(),
            Fault::Lose => self.server.lose(),
            Fault::Storm => {
                self.is_troubled.store(true, Ordering::Relaxed);
                self.server.faults().storm(7, Duration::from_millis(300));
            }
            other => return Err(format!("there is no {other}").into()),
        }
        Ok(())
    }
}

impl Topic {
    /// The last message is gone.
    fn lose_one(&self) {
        if let Some(last) = self.server.entries().pop() {
            self.server
                .faults()
                .forget(|message| message.payload == last.message.payload);
        }
    }
}
