//! What `/metrics` shows: the dispatcher's own metrics, and how full the lanes are.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};

use crate::app::Lanes;

/// Bounds of the histograms, in seconds.
const BOUNDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0];

/// How often what was measured is added up, also when no request asks for it.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder of this process.
#[derive(Clone)]
pub(crate) struct Figures(PrometheusHandle);

impl Figures {
    /// Records from now on. What was built before is not recorded.
    pub(crate) fn install() -> Result<Self, BuildError> {
        let builder = PrometheusBuilder::new().set_buckets(&BOUNDS)?;
        let handle = builder.install_recorder()?;
        let kept = handle.clone();
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(UPKEEP);
            loop {
                beat.tick().await;
                kept.run_upkeep();
            }
        });
        Ok(Self(handle))
    }

    /// All of it, as Prometheus reads it. No user is ever a label: there are too many.
    pub(crate) fn render(&self, lanes: &Lanes) -> String {
        metrics::gauge!("orders_in_lanes").set(lanes.len() as f64);
        metrics::gauge!("orders_users").set(lanes.lanes() as f64);
        if let Some(turns) = lanes.permits_in_use() {
            metrics::gauge!("orders_being_handled").set(turns as f64);
        }
        self.0.render()
    }
}
