//! Extract, transform, load, on streams: in order for each device, many devices at once.
//!
//! ```text
//! cargo run --example stream_etl
//! ```
//!
//! ```text
//! readings ──► map_keyed: calibrate, with the ──► try_map_keyed: load, some ──► table
//!              state of each device                rows are refused (Continue)
//! ```
//!
//! Every third reading of a device comes late from its calibration service, and still no reading of a device
//! overtakes another one: each change is against the reading before it. A row that the warehouse refuses
//! comes out as an error in its place, and all others are loaded: no change is refused, so the first row of
//! each device is, and all of device 0, which always reads 0 mV. Nothing is spawned: the state of the
//! devices is a `RefCell` that the futures borrow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use keylane_stream::{KeyedStreamExt, OnError};
use thiserror::Error;
use tokio::time::{Instant, sleep};

const DEVICES: u32 = 12;
const READINGS: u32 = 20;
const CONCURRENCY: usize = 8;

/// As it comes from a device.
struct Reading {
    device: u32,
    number: u32,
    millivolts: i64,
}

/// As it goes into the warehouse.
#[derive(Debug)]
struct Row {
    device: u32,
    number: u32,
    /// Against the reading before it: wrong, should one overtake another.
    change: i64,
}

#[derive(Debug, Error)]
#[error("device {device}, reading {number}: a change of {change} mV is no change")]
struct Refused {
    device: u32,
    number: u32,
    change: i64,
}

/// What is known of a device.
#[derive(Default)]
struct Device {
    last: Option<Reading>,
    disorder: u32,
}

/// One line of the table.
#[derive(Default)]
struct Line {
    loaded: u32,
    refused: u32,
    sum: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    examples::log_to_stderr("warn");
    let started = Instant::now();
    let devices = RefCell::new(BTreeMap::<u32, Device>::new());
    let (in_flight, most) = (Cell::new(0), Cell::new(0));

    // Extract: reading by reading, device by device.
    let readings = stream::iter(0..READINGS * DEVICES).map(|n| Reading {
        device: n % DEVICES,
        number: n / DEVICES,
        millivolts: i64::from((n / DEVICES) * (n % DEVICES)),
    });

    // Transform: the state of a device needs no lock, for a device has one future at a time.
    let rows = readings.map_keyed(
        CONCURRENCY,
        |reading| reading.device,
        |reading| {
            let (devices, in_flight, most) = (&devices, &in_flight, &most);
            async move {
                in_flight.set(in_flight.get() + 1);
                most.set(most.get().max(in_flight.get()));
                calibration(&reading).await;
                in_flight.set(in_flight.get() - 1);
                devices
                    .borrow_mut()
                    .entry(reading.device)
                    .or_default()
                    .row(reading)
            }
        },
    );

    // Load: a refused row does not stop the others.
    let mut loaded = rows
        .map(Ok)
        .try_map_keyed(CONCURRENCY, |row: &Row| row.device, load)
        .on_error(OnError::Continue);

    let mut table = BTreeMap::<u32, Line>::new();
    while let Some(answer) = loaded.next().await {
        match answer {
            Ok(Row { device, change, .. }) => {
                let line = table.entry(device).or_default();
                line.loaded += 1;
                line.sum += change;
            }
            Err(Refused { device, .. }) => table.entry(device).or_default().refused += 1,
        }
    }
    drop(loaded);
    let took = started.elapsed();

    println!("device  loaded  refused  sum of changes  overtaken");
    for (device, line) in &table {
        let Line {
            loaded,
            refused,
            sum,
        } = line;
        let disorder = devices.borrow()[device].disorder;
        println!("{device:>6}  {loaded:>6}  {refused:>7}  {sum:>11} mV  {disorder:>9}");
    }
    let readings = READINGS * DEVICES;
    println!(
        "\n{readings} readings in {} ms, at most {} devices at once",
        took.as_millis(),
        most.get()
    );
}

/// Asks a service, which takes its time for some.
async fn calibration(reading: &Reading) {
    let slow = (reading.number + reading.device).is_multiple_of(3);
    sleep(Duration::from_millis(if slow { 12 } else { 2 })).await;
}

impl Device {
    fn row(&mut self, reading: Reading) -> Row {
        let (device, number) = (reading.device, reading.number);
        let last = self.last.as_ref();
        if last.map_or(0, |last| last.number + 1) != number {
            self.disorder += 1;
        }
        let change = reading.millivolts - last.map_or(0, |last| last.millivolts);
        self.last = Some(reading);
        Row {
            device,
            number,
            change,
        }
    }
}

/// The warehouse takes no rows in which nothing has changed.
async fn load(row: Row) -> Result<Row, Refused> {
    sleep(Duration::from_millis(1)).await;
    let Row {
        device,
        number,
        change,
    } = row;
    if change == 0 {
        return Err(Refused {
            device,
            number,
            change,
        });
    }
    Ok(row)
}
