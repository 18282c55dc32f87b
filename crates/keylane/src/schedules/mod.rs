//! Runs the engine's own code under a scheduler that decides which task runs next.
//!
//! ```text
//!  RUSTFLAGS="--cfg keylane_shuttle" CARGO_TARGET_DIR=target/shuttle \
//!      cargo test --release -p keylane --lib schedules
//! ```
//!
//! A *scenario* is a few producers, a few messages and a shutdown. [`explore`] runs it under many
//! schedules, and in each one a [`Witness`] checks what it records. The model checker itself finds
//! lost wake-ups: no task can run, and the scenario has not ended. There is no time: a timer fires
//! at any moment after it was armed.
//!
//! `KEYLANE_SCHEDULES` sets the number of schedules over all scenarios together (100,000 by
//! default). `KEYLANE_SCHEDULER` is `random` or `pct`. They are the same in every run, and others
//! for each `KEYLANE_SEED`. A failure prints its schedule. To run that
//! schedule alone, put it into `KEYLANE_REPLAY`.

mod explore;
mod witness;

mod backoff;
mod capacity;
mod coalesce;
mod control;
mod ending;
mod halt;
mod leased;
mod letters;
mod operator;
mod order;
mod overflow;
mod pace;
mod queue;
mod rate;
mod resize;
mod semaphore;
mod sequence;
mod source;
mod turns;

use explore::explore;
use witness::Witness;

/// Makes the tests, and counts them to split the schedules among them: one for each scenario, and
/// for those of `both` a second one with the striped intake.
macro_rules! scenarios {
    (both { $($name:ident = $scenario:path;)* } $($other:ident = $else:path;)*) => {
        const SCENARIOS: usize =
            [$(stringify!($name)),*].len() * 2 + [$(stringify!($other)),*].len();

        $(
            #[test]
            fn $name() {
                explore($scenario, SCENARIOS, false);
            }
        )*

        $(
            #[test]
            fn $other() {
                explore($else, SCENARIOS, false);
            }
        )*

        mod striped {
            use super::*;

            $(
                #[test]
                fn $name() {
                    explore($scenario, SCENARIOS, true);
                }
            )*
        }
    };
}

scenarios! {
    both {
        order_two_keys_three_producers = order::two_keys_three_producers;
        order_one_runner_for_all = order::one_runner_for_all;
        order_keyless_beside_keys = order::keyless_beside_keys;
        backoff_retries_come_first = backoff::retries_come_first;
        backoff_others_go_on = backoff::others_go_on;
        backoff_meets_the_end = backoff::meets_the_end;
        backoff_timed_out_attempts = backoff::timed_out_attempts;
        capacity_of_one = capacity::of_one;
        capacity_of_bytes = capacity::of_bytes;
        overflow_wait = overflow::wait;
        overflow_wait_behind_a_stalled_head = overflow::wait_behind_a_stalled_head;
        overflow_wait_meets_the_end = overflow::wait_meets_the_end;
        overflow_reject = overflow::reject;
        overflow_drop_oldest = overflow::drop_oldest;
        overflow_dead_letter = overflow::dead_letter;
        ending_drain = ending::drain;
        ending_close = ending::close;
        ending_abort = ending::abort;
        ending_deadline = ending::deadline;
        ending_twice = ending::twice;
        ending_by_the_last_handle = ending::by_the_last_handle;
        halt_and_decide = halt::and_decide;
        halt_meets_the_end = halt::meets_the_end;
        leased_lost_and_granted = leased::lost_and_granted;
        leased_meets_the_end = leased::meets_the_end;
        letters_before_the_next = letters::before_the_next;
        letters_refused_at_first = letters::refused_at_first;
        letters_meet_the_end = letters::meet_the_end;
        rate_lets_all_go_in_time = rate::lets_all_go_in_time;
        rate_meets_the_end = rate::meets_the_end;
        rate_of_classes = rate::of_classes;
        pace_grows_for_who_waits = pace::grows_for_who_waits;
        pace_shrinks_and_grows = pace::shrinks_and_grows;
        pace_is_measured = pace::is_measured;
        control_pause_meets_the_start_and_the_end = control::pause_meets_the_start_and_the_end;
        control_purge_meets_the_finish = control::purge_meets_the_finish;
        control_skip_meets_the_timer = control::skip_meets_the_timer;
        control_delayed_meets_the_end = control::delayed_meets_the_end;
        control_a_failing_batch_meets_arrivals = control::a_failing_batch_meets_arrivals;
        coalesce_latest_meets_completion = coalesce::latest_meets_completion;
        coalesce_first_and_retries = coalesce::first_and_retries;
        coalesce_merge_meets_the_pick = coalesce::merge_meets_the_pick;
        coalesce_meets_the_end = coalesce::meets_the_end;
        sequence_gap_is_filled_and_skipped = sequence::gap_is_filled_and_skipped;
        sequence_gap_is_filled_and_halts = sequence::gap_is_filled_and_halts;
        sequence_full_lane = sequence::full_lane;
        sequence_meets_the_end = sequence::meets_the_end;
        operator_pause_meets_completion = operator::pause_meets_completion;
        operator_pause_meets_the_end = operator::pause_meets_the_end;
        operator_purge_meets_completion = operator::purge_meets_completion;
        source_revoked_in_line = source::revoked_in_line;
        source_revoked_beside_a_full_lane = source::revoked_beside_a_full_lane;
        source_revoked_in_backoff = source::revoked_in_backoff;
        source_revoked_while_halted = source::revoked_while_halted;
        source_revoked_as_it_halts = source::revoked_as_it_halts;
        source_revoked_in_a_batch = source::revoked_in_a_batch;
        source_revoked_and_superseded = source::revoked_and_superseded;
        source_revoked_and_merged = source::revoked_and_merged;
        source_revoked_in_a_sequence = source::revoked_in_a_sequence;
        source_revoked_as_a_letter = source::revoked_as_a_letter;
        source_meets_the_end = source::meets_the_end;
        source_is_stopped = source::is_stopped;
        turns_while_handlers_wait = turns::while_handlers_wait;
        turns_of_many_senders = turns::of_many_senders;
        turns_meet_the_end = turns::meet_the_end;
        turns_delayed_behind_a_halt = turns::delayed_behind_a_halt;
    }
    queue_dropped_lease = queue::dropped_lease;
    queue_expiry_and_complete = queue::expiry_and_complete;
    queue_close_and_dequeue = queue::close_and_dequeue;
    queue_capacity_and_complete = queue::capacity_and_complete;
    queue_full_lane = queue::full_lane;
    queue_delays_and_take_parked = queue::delays_and_take_parked;
    queue_cancelled_dequeue = queue::cancelled_dequeue;
    queue_all_ends = queue::all_ends;
    resize_twice_under_load = resize::twice_under_load;
    resize_meets_the_end = resize::meets_the_end;
    resize_merges_meanwhile = resize::merges_meanwhile;
    semaphore_release_meets_leaving = semaphore::release_meets_leaving;
    semaphore_queued_leaves_and_is_granted = semaphore::queued_leaves_and_is_granted;
    semaphore_acquire_meets_the_last_one = semaphore::acquire_meets_the_last_one;
    semaphore_reserve_leaves_with_a_slot_granted = semaphore::reserve_leaves_with_a_slot_granted;
    semaphore_close_meets_acquire = semaphore::close_meets_acquire;
    semaphore_close_meets_release = semaphore::close_meets_release;
    semaphore_one_permit_for_two_keys = semaphore::one_permit_for_two_keys;
    semaphore_all_at_once = semaphore::all_at_once;
}
