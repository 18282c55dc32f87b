//! A source with one defect fails the cases that are about it, and no other.

use std::time::Duration;

use keylane::source::Features;
use keylane_testkit::conformance;

use crate::harness::{Reference, everything};
use crate::spoiled::Defect;

/// The cases that a defect fails.
async fn failed(harness: Reference) -> Vec<&'static str> {
    let outcome = conformance::run(&harness).await;
    println!("{outcome}");
    outcome.failed()
}

macro_rules! finds {
    ($($name:ident: $defect:ident => [$($case:literal),+];)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let harness = everything().defect(Defect::$defect);
            assert_eq!(failed(harness).await, [$($case),+]);
        }
    )*};
}

finds! {
    two_messages_of_a_key_that_changed_places: Swaps => ["order"];
    a_source_that_waits_for_a_slow_key: WaitsForSlowKeys => ["slow_key"];
    a_source_that_waits_for_a_hot_key: WaitsForHotKeys => ["hot_key"];
    more_messages_than_room: GoesBeyondItsRoom => ["room"];
    messages_that_a_dropped_receive_loses: LosesWhatWasCancelled => ["dropped_receive"];
    a_third_attempt_that_may_not_start: RefusesThirdAttempts => ["retry"];
    a_dead_lettered_message_that_is_not_acked: IgnoresDeadLettered => ["dead_letter"];
    an_undecodable_message_that_is_not_acked: IgnoresUndecodable => ["undecodable"];
    dead_letters_that_are_not_kept: SwallowsDeadLetters => ["dead_letter_at_source", "round_trip"];
    headers_without_a_value_that_have_one: FillsHeaders => ["round_trip"];
    empty_keys_that_are_none: DropsEmptyKeys => ["payloads"];
    an_ack_that_is_forgotten: ForgetsAnAck => ["acked"];
    messages_that_came_back_and_are_acked: AcksWhatCameBack => ["handed_back"];
    messages_that_came_back_and_go_to_the_tail: NacksToTheTail => ["nack"];
    an_ack_that_did_not_arrive_and_counts: AcksInACut => ["ack_lost"];
    stale_acks_that_count: AcceptsStaleAcks => ["stale_ack"];
    a_small_loss_that_is_not_told: HidesSmallLosses => ["late_ack"];
    a_large_loss_that_is_not_told: HidesLargeLosses => ["lost"];
    parked_messages_that_a_revoke_loses: LosesParked => ["revoke_parked"];
    messages_in_flight_that_a_revoke_loses: LosesInFlight => ["revoke_in_flight"];
    messages_between_attempts_that_a_revoke_loses:
        LosesTried => ["revoke_backing_off", "revoke_halted"];
    messages_that_a_close_loses: LosesWhenClosed => ["stop"];
    messages_that_a_restart_loses: LosesInARestart => ["restart"];
    messages_that_a_kill_loses: LosesWhenKilled => ["kill"];
    messages_that_a_storm_loses: LosesInAStorm => ["storm"];
    a_stall_that_does_not_end: StaysStalled => ["stall"];
    leases_that_are_not_extended: IgnoresExtensions => ["lease"];
    random_access_that_is_claimed: RereadsNothing => ["random_access"];
    attempts_that_are_miscounted: MiscountsAttempts => ["attempts"];
    a_finite_source_that_does_not_end: NeverEnds => ["end"];
    acks_that_a_crash_forgets: ForgetsAcksInACrash => ["process_killed"];
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_declared_and_answered() {
    let harness = Reference::new(Features::new().survives_restart());
    let harness = harness.defect(Defect::AnswersUndeclared);
    assert_eq!(failed(harness).await, ["refusals"]);
}

/// Without a lease: the case about it is so long that the watchdog finds this as well.
#[tokio::test(start_paused = true)]
async fn a_source_that_never_says_that_it_is_well() {
    let features = Features::new().nack().survives_restart();
    let harness = Reference::new(features).defect(Defect::NeverIdle);
    assert_eq!(failed(harness).await, ["idle"]);
}

/// A source that acks before the handler loses whatever is interrupted.
#[tokio::test(start_paused = true)]
async fn acks_before_the_handler() {
    let features = Features::new()
        .nack()
        .survives_restart()
        .lease(Duration::from_secs(10));
    let harness = Reference::new(features).defect(Defect::AcksAtOnce);
    let found = [
        "undecodable",
        "handed_back",
        "nack",
        "ack_lost",
        "stale_ack",
        "late_ack",
        "revoke_parked",
        "revoke_in_flight",
        "revoke_backing_off",
        "revoke_halted",
        "lost",
        "restart",
        "kill",
        "lease",
    ];
    assert_eq!(failed(harness).await, found);
}
