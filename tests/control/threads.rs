//! Every public function that is not `async`, called outside the dispatcher's runtime: from a plain
//! thread, and inside another runtime that does nothing afterwards or is gone.
//!
//! What comes of it is compared with the same call inside the runtime: the answer, each start of a
//! handler and its time, each receipt, and the report of a drain that has to end.

use std::future::IntoFuture;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use futures::{FutureExt, Sink};
use keylane::discipline::{OnGap, Sequence};
use keylane::error::BuildError;
use keylane::routing::HashLanes;
use keylane::watching::LaneState;
use keylane::{Context, Dispatcher, OnExhausted, Rate};
use keylane_testkit::scenario::{
    self, Elsewhere, MS, Message, SECOND, ScriptedDispatcher, settle, within, within_years,
};
use keylane_testkit::{Act, ScriptError};
use tokio::time::Instant;

use crate::states::{State, arrange};
use crate::support::{CAPACITY, HOUR, Recorder, at, dispatcher, rounded, send_all};

/// Versions of one key from 1 on, which are waited for this long.
const PATIENCE: Duration = Duration::from_secs(10);

fn versions(then: OnGap) -> Sequence<u64, Message> {
    Sequence::contiguous(|job: &Message| job.id)
        .from(1)
        .gap_timeout(PATIENCE, then)
}

/// The case is broken if the drain does not end in this time.
async fn drained(
    jobs: &Dispatcher<u64, Message, u64, ScriptError>,
    case: &str,
) -> keylane::Report<u64, Message> {
    let report = tokio::time::timeout(10 * HOUR, async { jobs.drain().await }).await;
    report.unwrap_or_else(|_| panic!("{case}: the drain does not end"))
}

/// A skipped gap with another one behind it, for which the time starts.
#[tokio::test(start_paused = true)]
async fn a_gap_is_skipped() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .sequence(versions(OnGap::Halt))
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        send_all(&jobs, 1, [2, 4]).await;
        at(&recorder, 20_000).await;
        assert_eq!(jobs.stats().halted, 1, "{case}");
        let skipped = place.call(|| jobs.lane(&1).skip());
        assert_eq!(skipped, Ok(()), "{case}");
        at(&recorder, 22_000).await;
        assert_eq!(recorder.times(), [(20_000, 2)], "{case}");
        // What is armed from now on shares the wheel with what the operator armed.
        send_all(&jobs, 2, [3]).await;
        at(&recorder, 29_900).await;
        assert_eq!(jobs.stats().halted, 0, "{case}");
        at(&recorder, 30_100).await;
        assert_eq!(jobs.stats().halted, 1, "{case}: the next gap in its time");
        at(&recorder, 32_100).await;
        assert_eq!(jobs.stats().halted, 2, "{case}: and that of the other key");
        let report = drained(&jobs, &case).await;
        assert_eq!((report.done, report.handed_back), (1, 2), "{case}");
        recorder.judge(&jobs, &report, CAPACITY);
    }
}

/// The last message goes, and the rate of its key is remembered until it has recovered.
#[tokio::test(start_paused = true)]
async fn the_last_message_of_a_rate_is_skipped() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .rate_per_key(Rate::per(1, SECOND))
            .on_exhausted(OnExhausted::Halt)
            .spawn(recorder.handler(|id, _| if id == 1 { Act::error() } else { Act::ok() }))
            .unwrap();
        send_all(&jobs, 1, [1]).await;
        at(&recorder, 100).await;
        assert_eq!(jobs.stats().halted, 1, "{case}");
        let skipped = place.call(|| jobs.lane(&1).skip());
        assert_eq!(skipped, Ok(()), "{case}");
        assert_eq!(jobs.inspect(&1), None, "{case}: a rate costs no lane");
        // Rates of other keys share the wheel with what the operator armed.
        send_all(&jobs, 2, [21, 22]).await;
        at(&recorder, 1_010).await;
        let report = drained(&jobs, &case).await;
        assert_eq!((report.done, report.discarded), (2, 1), "{case}");
        assert_eq!(recorder.times(), [(0, 1), (100, 21), (1_100, 22)], "{case}");
        recorder.judge(&jobs, &report, CAPACITY);
    }
}

/// A key that was halted by missing versions waits for them once more.
#[tokio::test(start_paused = true)]
async fn a_halted_gap_is_resumed() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .sequence(versions(OnGap::Halt))
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        send_all(&jobs, 1, [2]).await;
        at(&recorder, 20_000).await;
        assert_eq!(jobs.stats().halted, 1, "{case}");
        let resumed = place.call(|| jobs.lane(&1).resume());
        assert_eq!(resumed, Ok(()), "{case}");
        let view = jobs.inspect(&1).unwrap();
        let gap = LaneState::Gap {
            first: 1,
            last: 1,
            due_in: Some(PATIENCE),
        };
        assert_eq!(view.state, gap, "{case}");
        send_all(&jobs, 2, [3]).await;
        at(&recorder, 29_000).await;
        assert_eq!(jobs.stats().halted, 0, "{case}");
        at(&recorder, 31_000).await;
        assert_eq!(
            jobs.stats().halted,
            2,
            "{case}: each key when its time is over"
        );
        let report = drained(&jobs, &case).await;
        assert_eq!(report.handed_back, 2, "{case}");
        recorder.judge(&jobs, &report, CAPACITY);
    }
}

/// A call of an operator or a producer, and what it answered in words.
type Call = fn(&ScriptedDispatcher) -> String;

/// The functions of a lane.
const OF_A_LANE: [(&str, Call); 8] = [
    ("key", |jobs| jobs.lane(&1).key().to_string()),
    ("inspect", |jobs| {
        let view = jobs.inspect(&1);
        assert_eq!(view.is_some(), jobs.lane(&1).inspect().is_some());
        view.map_or_else(String::new, |view| {
            let ages = (rounded(view.head_age), rounded(view.oldest_waiting));
            format!("{:?} {} {ages:?} {}", view.state, view.depth, view.full)
        })
    }),
    ("resume", |jobs| format!("{:?}", jobs.lane(&1).resume())),
    ("skip", |jobs| format!("{:?}", jobs.lane(&1).skip())),
    ("purge", |jobs| jobs.lane(&1).purge().to_string()),
    ("retry_now", |jobs| {
        format!("{:?}", jobs.lane(&1).retry_now())
    }),
    ("pause", |jobs| {
        jobs.lane(&1).pause();
        String::new()
    }),
    ("replace", |jobs| {
        format!("{:?}", jobs.lane(&1).replace(Message::new(1, 3)))
    }),
];

/// The functions of the dispatcher, and of what it returns. Messages are of key 1, and of key 2.
const OF_THE_DISPATCHER: [(&str, Call); 19] = [
    ("try_send", |jobs| {
        let sent = [1, 2].map(|key| jobs.try_send(Message::new(key, 10 + key)));
        format!("{sent:?}")
    }),
    ("try_submit", |jobs| {
        let submitted = [1, 2].map(|key| jobs.try_submit(Message::new(key, 10 + key)).map(drop));
        format!("{submitted:?}")
    }),
    ("a receipt is polled", |jobs| {
        let mut receipt = jobs.try_submit(Message::new(2, 12)).unwrap();
        format!(
            "{:?}",
            (&mut receipt)
                .now_or_never()
                .map(|answer| scenario::outcome(&answer))
        )
    }),
    ("try_send_when, after", |jobs| {
        let sent = [1, 2].map(|key| jobs.try_send_when(Message::new(key, 10 + key), SECOND));
        format!("{sent:?}")
    }),
    ("try_submit_when, after", |jobs| {
        let submitted = [1, 2].map(|key| jobs.try_submit_when(Message::new(key, 10 + key), SECOND));
        format!("{submitted:?}")
    }),
    ("try_send_when, too far", |jobs| {
        format!(
            "{:?}",
            jobs.try_send_when(Message::new(2, 12), Duration::MAX)
        )
    }),
    ("send, polled", |jobs| {
        format!("{:?}", jobs.send(Message::new(2, 12)).now_or_never())
    }),
    ("submit, polled", |jobs| {
        let submitted = jobs.submit(Message::new(2, 12)).now_or_never();
        format!("{submitted:?}")
    }),
    ("send_when, polled", |jobs| {
        format!(
            "{:?}",
            jobs.send_when(Message::new(2, 12), SECOND).now_or_never()
        )
    }),
    ("submit_when, polled", |jobs| {
        format!(
            "{:?}",
            jobs.submit_when(Message::new(2, 12), SECOND).now_or_never()
        )
    }),
    ("reserve, polled", |jobs| {
        format!(
            "{:?}",
            jobs.reserve().now_or_never().map(|permit| permit.map(drop))
        )
    }),
    ("a sink", |jobs| {
        let mut sink = pin!(jobs.sink());
        let mut cx = TaskContext::from_waker(Waker::noop());
        let ready = sink.as_mut().poll_ready(&mut cx);
        let sent = sink.as_mut().start_send(Message::new(2, 12));
        format!("{ready:?} {sent:?} {:?}", sink.poll_close(&mut cx))
    }),
    ("stats", |jobs| format!("{:?}", jobs.stats())),
    ("is_closed", |jobs| jobs.is_closed().to_string()),
    ("events", |jobs| {
        let mut events = jobs.events();
        jobs.lane(&1).pause();
        let seen = events
            .try_recv()
            .map(|event| (event.key().copied(), event.at()));
        format!("{} {}", seen.is_some(), events.lost())
    }),
    ("clone, debug, drop", |jobs| format!("{:?}", jobs.clone())),
    ("drain", |jobs| {
        let drain = jobs.drain().within(SECOND).into_future();
        format!("{:?}", drain.now_or_never())
    }),
    ("close", |jobs| {
        let close = jobs.close().within(SECOND).into_future();
        format!("{:?}", close.now_or_never())
    }),
    ("abort", |jobs| {
        format!("{:?}", jobs.abort().into_future().now_or_never())
    }),
];

/// Makes a call in a lane's state, lets the dispatcher come to its end, and writes down everything.
async fn outcome(state: State, call: Call, place: Option<&Elsewhere>) -> String {
    let (recorder, jobs, receipts) = arrange(state).await;
    let answer = match place {
        None => call(&jobs),
        Some(place) => place.call(|| call(&jobs)),
    };
    settle().await;
    // What is armed from now on shares the wheel with what the call has armed.
    if !jobs.is_closed() {
        jobs.send_when(Message::new(5, 50), 100 * MS).await.unwrap();
    }
    at(&recorder, 20_000).await;
    let soon = recorder.calls();
    for _ in 0..2 {
        let _ = jobs.lane(&1).resume();
    }
    let report = within_years(async { jobs.drain().await }).await;
    recorder.judge(&jobs, &report, CAPACITY);
    let mut words = Vec::new();
    for receipt in receipts {
        words.push(scenario::outcome(&receipt.await));
    }
    let mut calls = recorder.calls();
    calls.sort_by(|one, other| (one.at, &one.ids).cmp(&(other.at, &other.ids)));
    format!("{answer}\n{words:?}\n{report:?}\n{}\n{calls:?}", soon.len())
}

async fn compare(states: &[State], calls: &[(&str, Call)]) {
    for state in states {
        for (name, call) in calls {
            let inside = outcome(*state, *call, None).await;
            for place in Elsewhere::all() {
                let outside = outcome(*state, *call, Some(&place)).await;
                assert_eq!(
                    outside, inside,
                    "{name} of a lane that is {state:?}: {place:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_functions_of_a_lane_in_each_state() {
    compare(&State::ALL, &OF_A_LANE).await;
}

#[tokio::test(start_paused = true)]
async fn the_functions_of_a_dispatcher() {
    let states = [
        State::Absent,
        State::Backoff,
        State::Called,
        State::RateLimited,
    ];
    compare(&states, &OF_THE_DISPATCHER).await;
}

/// A permit that was taken inside the runtime is used outside.
#[tokio::test(start_paused = true)]
async fn the_functions_of_a_permit() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .expire_after(10 * SECOND)
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        at(&recorder, 5_000).await;
        let mut permits = Vec::new();
        for _ in 0..6 {
            permits.push(jobs.reserve().await.unwrap());
        }
        let start = Instant::now();
        let receipts = place.call(|| {
            let mut permit = || permits.pop().unwrap();
            permit().send(Message::new(1, 1)).unwrap();
            permit().send_when(Message::new(2, 2), SECOND).unwrap();
            permit()
                .send_when(Message::new(3, 3), start + 2 * SECOND)
                .unwrap();
            drop(permit());
            let submitted = permit().submit(Message::new(4, 4)).unwrap();
            [
                submitted,
                permit()
                    .submit_when(Message::new(5, 5), 3 * SECOND)
                    .unwrap(),
            ]
        });
        let report = drained(&jobs, &case).await;
        assert_eq!(report.done, 5, "{case}");
        let mut times = recorder.times();
        times.sort_unstable();
        let expected = [(5_000, 1), (5_000, 4), (6_000, 2), (7_000, 3), (8_000, 5)];
        assert_eq!(times, expected, "{case}");
        for receipt in receipts {
            assert_eq!(scenario::outcome(&receipt.await), "done", "{case}");
        }
        recorder.judge(&jobs, &report, CAPACITY);
    }
}

/// A message expires by the dispatcher's clock, wherever it was sent.
#[tokio::test(start_paused = true)]
async fn a_lifetime_is_measured_by_the_dispatchers_clock() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .expire_after(SECOND)
            .spawn(recorder.handler(|_, _| Act::ok().sleeps(2 * SECOND)))
            .unwrap();
        at(&recorder, 3_600_000).await;
        let sent = place.call(|| [1, 2].map(|id| jobs.try_send(Message::new(1, id))));
        assert_eq!(sent, [Ok(()), Ok(())], "{case}");
        at(&recorder, 3_600_900).await;
        assert_eq!(jobs.stats().expired, 0, "{case}");
        at(&recorder, 3_601_100).await;
        assert_eq!(jobs.stats().expired, 1, "{case}");
        let report = drained(&jobs, &case).await;
        assert_eq!((report.done, report.expired), (1, 1), "{case}");
    }
}

/// A deadline counts from the first poll, by the dispatcher's clock.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_measured_by_the_dispatchers_clock() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .spawn(recorder.handler(|_, _| Act::never()))
            .unwrap();
        send_all(&jobs, 1, [1]).await;
        at(&recorder, 3_600_000).await;
        let pending = place.call(|| jobs.drain().within(SECOND).into_future().now_or_never());
        assert_eq!(pending, None, "{case}");
        at(&recorder, 3_600_900).await;
        assert_eq!(jobs.stats().handed_back, 0, "{case}");
        let report = drained(&jobs, &case).await;
        assert_eq!(
            (report.interrupted, recorder.now()),
            (1, 3_601_000),
            "{case}"
        );
    }
}

/// The last handle is dropped outside: what was accepted is handled, and the events end.
#[tokio::test(start_paused = true)]
async fn the_last_handle_is_dropped() {
    for place in Elsewhere::all() {
        let case = format!("{place:?}");
        let recorder = Recorder::new();
        let jobs = dispatcher()
            .rate_per_key(Rate::per(1, SECOND))
            .spawn(recorder.handler(|_, _| Act::ok()))
            .unwrap();
        send_all(&jobs, 1, [1, 2, 3]).await;
        let mut events = jobs.events();
        place.call(move || drop(jobs));
        let ended = within(async { while events.recv().await.is_some() {} });
        ended.await;
        assert_eq!(recorder.times(), [(0, 1), (1_000, 2), (2_000, 3)], "{case}");
    }
}

/// A handler's context may go to a thread.
#[tokio::test(start_paused = true)]
async fn the_functions_of_a_context() {
    for place in Elsewhere::all().map(Arc::new) {
        let called = Arc::clone(&place);
        let jobs = dispatcher()
            .attempt_timeout(HOUR)
            .spawn(move |context: Context<u64>, _: Message| {
                let seen = called.call(|| {
                    (
                        context.key().copied(),
                        context.attempt(),
                        context.deadline(),
                        context.time_left().is_some(),
                        context.is_cancelled(),
                    )
                });
                let deadline = Some(Instant::now() + HOUR);
                assert_eq!(seen, (Some(1), 1, deadline, true, false), "{called:?}");
                async { Ok::<u64, ScriptError>(0) }
            })
            .unwrap();
        send_all(&jobs, 1, [1]).await;
        assert_eq!(drained(&jobs, &format!("{place:?}")).await.done, 1);
    }
}

/// `spawn` needs a runtime with timers, and says so; in another runtime the dispatcher belongs there.
#[tokio::test(start_paused = true)]
async fn a_dispatcher_is_started_elsewhere() {
    // The probe of the timers panics inside, and is caught.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let built = Elsewhere::all().map(|place| {
        let recorder = Recorder::new();
        place.call(|| dispatcher().spawn(recorder.handler(|_, _| Act::ok())).err())
    });
    std::panic::set_hook(hook);
    let (runtime, timers) = (Some(BuildError::NoRuntime), Some(BuildError::NoTimers));
    assert_eq!(built, [runtime, None, None, timers, None]);
}

/// The functions of a dispatcher whose number of lanes changes.
#[tokio::test(start_paused = true)]
async fn the_functions_of_hash_lanes() {
    for place in Elsewhere::all() {
        let four = NonZeroUsize::new(4).unwrap();
        let lanes: HashLanes<Message, u64, ScriptError> =
            Dispatcher::hash_lanes(four, |job: &Message| job.key)
                .spawn(|job: Message| async move { Ok(job.id) })
                .unwrap();
        for id in 0..100 {
            lanes.send(Message::new(id, id)).await.unwrap();
        }
        let seen = place.call(|| {
            let changed = lanes.resize(8).now_or_never();
            (
                changed,
                lanes.lanes(),
                lanes.lane_of(&Some(1_u64)).index() < 8,
            )
        });
        assert_eq!(seen, (None, 4, true), "{place:?}");
        let ended = within(async {
            lanes.resize(8).await.unwrap();
            lanes.drain().await
        });
        assert_eq!(ended.await.done, 100, "{place:?}");
        assert_eq!(lanes.lanes(), 8, "{place:?}");
    }
}
