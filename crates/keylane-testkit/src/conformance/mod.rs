//! One suite for all sources.
//!
//! A connector implements [`Harness`] over its real server, and runs every case of the suite
//! against it. A case drives the source through the public API alone, and the history checker
//! judges the result. If a source does not declare a feature, the suite checks that the source
//! refuses its calls; the cases about the feature are left out, and the [`Outcome`] says so.
//!
//! # Examples
//!
//! The reference source, used as a connector would use it:
//!
//! ```
//! use keylane::error::BoxError;
//! use keylane::source::{Features, RawMessage};
//! use keylane_testkit::conformance::{self, Harness, Site};
//! use keylane_testkit::reference::{ReferenceServer, ReferenceSource};
//!
//! struct Connector;
//! struct Topic(ReferenceServer);
//!
//! #[keylane::async_trait]
//! impl Harness for Connector {
//!     type Site = Topic;
//!
//!     async fn site(&self, _case: &str) -> Result<Topic, BoxError> {
//!         Ok(Topic(ReferenceServer::new(Features::new())))
//!     }
//! }
//!
//! #[keylane::async_trait]
//! impl Site for Topic {
//!     type Source = ReferenceSource;
//!
//!     async fn source(&self) -> Result<ReferenceSource, BoxError> {
//!         Ok(self.0.source())
//!     }
//!
//!     async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
//!         self.0.publish(messages);
//!         Ok(())
//!     }
//!
//!     async fn left(&self) -> Result<usize, BoxError> {
//!         Ok(self.0.left())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let outcome = conformance::run(&Connector).await;
//! outcome.assert_passed();
//! println!("{outcome}"); // every case: passed, or left out and why
//! # }
//! ```
//!
//! In a test binary, one test for each case: [`conformance_tests!`](crate::conformance_tests).

mod suite;
pub use suite::run;

mod case;
pub use case::{Case, cases};

mod harness;
pub use harness::{Fault, Harness, Site};

mod outcome;
pub use outcome::{Found, Outcome};

mod broken;
pub use broken::Broken;

mod cases;

mod stage;

mod direct;

mod witness;

mod message;

/// Writes one `#[tokio::test]` for each case of the suite. The argument is an expression that
/// creates the [`Harness`]; the arguments in brackets, if any, are those of `#[tokio::test]`.
///
/// ```
/// # mod tests {
/// # use keylane_testkit::conformance::{Harness, Site};
/// # fn kafka() -> impl Harness { Nothing }
/// # struct Nothing;
/// # #[keylane::async_trait]
/// # impl Harness for Nothing {
/// #     type Site = Nowhere;
/// #     async fn site(&self, _: &str) -> Result<Nowhere, keylane::error::BoxError> { Ok(Nowhere) }
/// # }
/// # struct Nowhere;
/// # #[keylane::async_trait]
/// # impl Site for Nowhere {
/// #     type Source = keylane_testkit::reference::ReferenceSource;
/// #     async fn source(&self) -> Result<Self::Source, keylane::error::BoxError> {
/// #         Err("".into())
/// #     }
/// #     async fn publish(&self, _: Vec<keylane::source::RawMessage>)
/// #         -> Result<(), keylane::error::BoxError> { Ok(()) }
/// #     async fn left(&self) -> Result<usize, keylane::error::BoxError> { Ok(0) }
/// # }
/// keylane_testkit::conformance_tests!([flavor = "multi_thread"] kafka());
/// # }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ([$($setting:tt)*] $harness:expr) => {
        $crate::conformance_tests! {
            @each [$($setting)*] $harness;
            refusals order slow_key hot_key room idle dropped_receive retry dead_letter
            dead_letter_at_source undecodable round_trip payloads acked handed_back nack ack_lost
            stale_ack late_ack revoke_parked revoke_in_flight revoke_backing_off revoke_halted lost stop
            restart kill storm stall lease random_access attempts end process_killed
        }

        /// Each case has its test here.
        #[test]
        fn all_cases_are_tests() {
            let names: Vec<_> = $crate::conformance::cases().map(|case| case.name()).collect();
            assert_eq!(CONFORMANCE_TESTS, names);
        }
    };
    ($harness:expr) => {
        $crate::conformance_tests!([] $harness);
    };
    (@each $setting:tt $harness:expr; $($name:ident)*) => {
        const CONFORMANCE_TESTS: &[&str] = &[$(stringify!($name)),*];
        $($crate::conformance_tests!(@one $setting $harness; $name);)*
    };
    (@one [$($setting:tt)*] $harness:expr; $name:ident) => {
        #[tokio::test($($setting)*)]
        async fn $name() {
            let case = $crate::conformance::Case::of_name(stringify!($name)).expect("a case");
            let found = case.run(&$harness).await;
            println!("{case}: {found}");
            found.assert_passed();
        }
    };
}
