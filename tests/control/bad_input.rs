//! Settings and calls that make no sense: typed errors, never a wedge.

use std::time::Duration;

use keylane::{BuildError, LaneError, Overflow, Rate};

use crate::bench::{Act, Bench, CAPACITY, Fault, HOUR, Job, MS, at, job, jobs, send_all, within};

async fn all(batch: Vec<Job>) -> Result<Vec<u64>, Fault> {
    Ok(batch.iter().map(|job| job.id).collect())
}

#[tokio::test(start_paused = true)]
async fn settings_that_let_nothing_start_are_refused() {
    let bench = Bench::new();
    let zero = |name| Some(BuildError::Zero(name));
    let spawn = |rate| {
        jobs()
            .rate_per_key(rate)
            .spawn(bench.handler(|_, _| Act::Ok))
            .err()
    };
    for rate in [
        Rate::per_second(0),
        Rate::per(1, Duration::ZERO),
        Rate::per_second(1).burst(0),
    ] {
        assert_eq!(spawn(rate), zero("rate_per_key"), "{rate:?}");
    }
    for rate in [
        Rate::per_second(u32::MAX),
        Rate::per(1, Duration::MAX),
        Rate::per(2, Duration::from_nanos(1)),
    ] {
        assert_eq!(
            spawn(rate),
            Some(BuildError::TooLarge("rate_per_key")),
            "{rate:?}"
        );
    }
    let batches = |max| jobs().batch(max, Duration::ZERO).spawn_batches(all).err();
    assert_eq!(batches(0), zero("batch"));
    assert_eq!(batches(usize::MAX), None);
    let handler = || bench.handler(|_, _| Act::Ok);
    assert_eq!(
        jobs().batch(0, MS).spawn(handler()).err(),
        Some(BuildError::Batch)
    );
    assert_eq!(
        jobs().batch(2, MS).spawn(handler()).err(),
        Some(BuildError::Batch)
    );
    assert_eq!(
        jobs().expire_after(Duration::ZERO).spawn(handler()).err(),
        zero("expire_after")
    );
    assert_eq!(
        jobs()
            .lane_capacity(0, Overflow::Wait)
            .spawn(handler())
            .err(),
        zero("lane_capacity")
    );
    assert_eq!(
        jobs().concurrency(0).spawn(handler()).err(),
        zero("concurrency")
    );
    assert_eq!(jobs().capacity(0).spawn(handler()).err(), zero("capacity"));
}

/// The last setting counts, as with all others.
#[tokio::test(start_paused = true)]
async fn a_lifetime_that_is_set_again() {
    let bench = Bench::new();
    let builder = jobs().expire_after(Duration::ZERO).expire_after(HOUR);
    let jobs_ = builder.spawn(bench.handler(|_, _| Act::Ok)).unwrap();
    send_all(&jobs_, 1, [1]).await;
    assert_eq!(bench.finish(jobs_).await.done, 1);
    let zero = jobs().expire_by(|_| None).expire_after(Duration::ZERO);
    assert_eq!(
        zero.spawn(bench.handler(|_, _| Act::Ok)).err(),
        Some(BuildError::Zero("expire_after"))
    );
}

/// A batch without `batch` has its defaults, and one of one message is no batch.
#[tokio::test(start_paused = true)]
async fn batches_of_the_smallest_and_the_largest_size() {
    for max in [None, Some(1), Some(usize::MAX)] {
        let bench = Bench::new();
        let mut builder = jobs();
        if let Some(max) = max {
            builder = builder.batch(max, MS);
        }
        let jobs = builder.spawn_batches(all).unwrap();
        for id in 0..500 {
            jobs.send(job(id % 3, id)).await.unwrap();
        }
        assert_eq!(bench.finish(jobs).await.done, 500);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_that_panics_accepts_nothing() {
    let bench = Bench::new();
    let jobs = jobs()
        .expire_by(|job| {
            if job.id == 1 {
                std::panic::resume_unwind(Box::new("told"))
            } else {
                None
            }
        })
        .spawn(bench.handler(|_, _| Act::Ok))
        .unwrap();
    let sender = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.send(job(1, 1)).await }
    });
    assert!(sender.await.unwrap_err().is_panic());
    send_all(&jobs, 1, [2]).await;
    let report = bench.finish(jobs).await;
    assert_eq!((report.accepted, report.done), (1, 1));
}

/// Nobody resumes it: its senders feel its limit, and nobody else does.
#[tokio::test(start_paused = true)]
async fn one_key_paused_for_ever() {
    for thinks in [false, true] {
        let bench = Bench::new();
        let mut builder = jobs().capacity(50).lane_capacity(10, Overflow::Wait);
        if thinks {
            builder = builder.expire_after(1_000 * HOUR);
        }
        let jobs = builder.spawn(bench.handler(|_, _| Act::Ok)).unwrap();
        jobs.lane(&1).pause();
        for id in 1..=10 {
            send_all(&jobs, 1, [id]).await;
            at(&bench, id).await;
        }
        let mut stuck = Vec::new();
        for id in 11..=30 {
            let jobs = jobs.clone();
            stuck.push(tokio::spawn(async move { jobs.send(job(1, id)).await }));
        }
        for id in 100..1_000 {
            within(send_all(&jobs, 2 + id % 5, [id])).await;
        }
        at(&bench, 1_000_000).await;
        assert!(stuck.iter().all(|sender| !sender.is_finished()));
        assert_eq!(jobs.stats().done, 900, "thinks: {thinks}");
        assert_eq!(jobs.inspect(&1).unwrap().depth, 10);
        let report = within(async { jobs.drain().await }).await;
        assert_eq!((report.done, report.handed_back), (900, 10));
        for sender in stuck {
            assert!(sender.await.unwrap().is_err(), "it was not let in");
        }
        bench.judge(&jobs, &report, 50);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_does_not_fit() {
    let bench = Bench::new();
    let jobs = jobs()
        .capacity_bytes(100, |job| job.id as usize)
        .spawn(bench.handler(|_, _| Act::Ok))
        .unwrap();
    let lane = jobs.lane(&1);
    lane.pause();
    send_all(&jobs, 1, [40]).await;
    send_all(&jobs, 2, [41]).await;
    at(&bench, 1).await;
    assert_eq!(lane.replace(job(2, 1)), Err(LaneError::OtherKey(job(2, 1))));
    assert_eq!(
        lane.replace(job(None, 1)),
        Err(LaneError::OtherKey(job(None, 1)))
    );
    assert_eq!(
        lane.replace(job(1, 101)),
        Err(LaneError::TooLarge(job(1, 101)))
    );
    assert_eq!(lane.replace(job(1, 7)), Ok(job(1, 40)));
    lane.resume().unwrap();
    let report = bench.finish(jobs).await;
    assert_eq!((report.done, bench.ids()), (2, vec![41, 7]));
    assert_eq!(CAPACITY, 20_000);
}

/// The bytes of a message that was put in the place of one that has not started count as its own.
#[tokio::test(start_paused = true)]
async fn a_replacement_has_its_own_size() {
    let bench = Bench::new();
    let jobs = jobs()
        .capacity_bytes(100, |job| job.id as usize)
        .stalled_capacity(0)
        .spawn(bench.handler(|_, _| Act::Ok))
        .unwrap();
    let lane = jobs.lane(&1);
    lane.pause();
    send_all(&jobs, 1, [90]).await;
    at(&bench, 1).await;
    assert!(jobs.try_send(job(2, 60)).is_err());
    lane.replace(job(1, 40)).unwrap();
    jobs.try_send(job(2, 60)).unwrap();
    at(&bench, 2).await;
    lane.replace(job(1, 95)).unwrap();
    assert!(jobs.try_send(job(2, 6)).is_err());
    jobs.try_send(job(2, 5)).unwrap();
    lane.resume().unwrap();
    at(&bench, 3).await;
    jobs.try_send(job(3, 100)).unwrap();
    bench.finish(jobs).await;
}
