//! Runs the cases of the suite.

use keylane::source::{Features, Source};

use super::broken::Broken;
use super::case::Case;
use super::cases;
use super::harness::{Harness, Site};
use super::outcome::{Found, Outcome};
use super::stage::Stage;

/// Runs all cases, one after the other.
pub async fn run<H: Harness>(harness: &H) -> Outcome {
    let mut outcome = Outcome::default();
    for case in Case::ALL {
        let found = case.run(harness).await;
        outcome.found.push((case, found));
    }
    outcome
}

impl Case {
    /// Runs the case, if the harness supports it and the source declares the feature.
    pub async fn run<H: Harness>(self, harness: &H) -> Found {
        let run = async {
            let site = harness.site(self.name()).await?;
            let features = site.source().await?.features();
            if let Some(why) = self.lacks(features, &harness.faults()) {
                return Ok(Found::LeftOut(why));
            }
            if self == Self::ProcessKilled {
                return cases::process_killed(harness).await;
            }
            self.run_at(site, features, harness).await?;
            Ok::<_, Broken>(Found::Passed)
        };
        // No wait is endless: each wait of a case has the patience of the harness.
        run.await.unwrap_or_else(Found::Failed)
    }

    async fn run_at<H: Harness>(
        self,
        site: H::Site,
        features: Features,
        harness: &H,
    ) -> Result<(), Broken> {
        let stage = Stage::new(site, features, harness.patience());
        match self {
            Self::Refusals => cases::refusals(stage).await,
            Self::Order => cases::order(stage).await,
            Self::SlowKey => cases::slow_key(stage).await,
            Self::HotKey => cases::hot_key(stage).await,
            Self::Room => cases::room(stage).await,
            Self::Idle => cases::idle(stage).await,
            Self::DroppedReceive => cases::dropped_receive(stage).await,
            Self::Retry => cases::retry(stage).await,
            Self::DeadLetter => cases::dead_letter(stage).await,
            Self::DeadLetterAtSource => cases::dead_letter_at_source(stage).await,
            Self::Undecodable => cases::undecodable(stage).await,
            Self::RoundTrip => cases::round_trip(stage).await,
            Self::Payloads => cases::payloads(stage).await,
            Self::Acked => cases::acked(stage).await,
            Self::HandedBack => cases::handed_back(stage).await,
            Self::Nack => cases::nack(stage).await,
            Self::AckLost => cases::ack_lost(stage).await,
            Self::StaleAck => cases::stale_ack(stage).await,
            Self::LateAck => cases::late_ack(stage).await,
            Self::RevokeParked => cases::revoke_parked(stage).await,
            Self::RevokeInFlight => cases::revoke_in_flight(stage).await,
            Self::RevokeBackingOff => cases::revoke_backing_off(stage).await,
            Self::RevokeHalted => cases::revoke_halted(stage).await,
            Self::Lost => cases::lost(stage).await,
            Self::Stop => cases::stop(stage).await,
            Self::Restart => cases::restart(stage).await,
            Self::Kill => cases::kill(stage).await,
            Self::Storm => cases::storm(stage).await,
            Self::Stall => cases::stall(stage).await,
            Self::Lease => cases::lease(stage).await,
            Self::RandomAccess => cases::random_access(stage).await,
            Self::Attempts => cases::attempts(stage).await,
            Self::End => cases::end(stage).await,
            Self::ProcessKilled => Ok(()),
        }
    }
}
