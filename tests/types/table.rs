//! Which public types and futures are `Send`, `Sync` and `Unpin`.
//!
//! The compiler decides each entry; the test compares them with the table below. A type that loses a
//! mark breaks the programs of users, so a change here is a breaking change.

use std::cell::Cell;
use std::fmt;
use std::future::IntoFuture;
use std::marker::{PhantomData, PhantomPinned};
use std::pin::Pin;
use std::task::{self, Poll};

use futures::{Stream, stream};
use keylane::discipline::{Coalesce, Delayed, OnGap, Sequence};
use keylane::error::{
    BuildError, Failure, LaneError, ReceiptError, ReserveError, ResizeError, SendError,
    TrySendError,
};
use keylane::routing::{HashLane, HashLanes};
use keylane::source::VersionStore;
use keylane::watching::{Event, Events, HotBy, HotKey, LaneState, LaneView, Stats};
use keylane::{
    Adaptive, Context, DeadLetter, DeadLetterSink, Dispatcher, DispatcherSink, HandedBack,
    LaneControl, OnExhausted, Overflow, Permit, Rate, Receipt, Report, Retry, RetryBudget,
    Shutdown,
};
use keylane_queue::{
    self as queue, EnqueueError, Lease, LeaseError, Queue, Redelivery, Returned, TryDequeueError,
    TryEnqueueError,
};
use keylane_semaphore::{
    Acquire, AcquireError, Closed, KeyedPermit, KeyedSemaphore, KeyedSemaphoreBuilder, Reservation,
    Reserve, TryAcquireError, TryReserveError,
};
use keylane_stream::{
    ForEachKeyed, MapKeyed, MapKeyedUnordered, OnError, TryForEachKeyed, TryMapKeyed,
    TryMapKeyedUnordered,
};

const EXPECTED: &str = "\
Dispatcher                       Send  Sync  Unpin
Dispatcher, answers not Sync     Send  Sync  Unpin
Builder                          Send  Sync  Unpin
Permit                           Send  Sync  Unpin
Receipt                          Send  Sync  Unpin
Receipt, answers not Sync        Send  Sync  Unpin
LaneControl                      Send  Sync  Unpin
LaneView                         Send  Sync  Unpin
LaneState                        Send  Sync  Unpin
Shutdown                         Send  Sync  Unpin
Report                           Send  Sync  Unpin
HandedBack                       Send  Sync  Unpin
Stats                            Send  Sync  Unpin
Event                            Send  Sync  Unpin
Events                           Send  Sync  Unpin
HotKey                           Send  Sync  Unpin
HotBy                            Send  Sync  Unpin
Context                          Send  Sync  Unpin
Retry                            Send  Sync  Unpin
RetryBudget                      Send  Sync  Unpin
Rate                             Send  Sync  Unpin
Adaptive                         Send  Sync  Unpin
Coalesce                         Send  Sync  Unpin
Sequence                         Send  Sync  Unpin
OnGap                            Send  Sync  Unpin
Delayed                          Send  Sync  Unpin
dyn VersionStore                 Send  Sync  Unpin
HashLane                         Send  Sync  Unpin
ResizeError                      Send  Sync  Unpin
OnExhausted                      Send  Sync  Unpin
Overflow                         Send  Sync  Unpin
dyn DeadLetterSink               Send  Sync  Unpin
DeadLetter                       Send  Sync  Unpin
Failure                          Send  Sync  Unpin
SendError                        Send  Sync  Unpin
TrySendError                     Send  Sync  Unpin
ReserveError                     Send  Sync  Unpin
ReceiptError                     Send  Sync  Unpin
BuildError                       Send  Sync  Unpin
LaneError                        Send  Sync  Unpin
Queue                            Send  Sync  Unpin
QueueBuilder                     Send  Sync  Unpin
Lease                            Send  Sync  Unpin
Redelivery                       Send  Sync  Unpin
Returned                         Send  Sync  Unpin
queue::Report                    Send  Sync  Unpin
EnqueueError                     Send  Sync  Unpin
TryEnqueueError                  Send  Sync  Unpin
TryDequeueError                  Send  Sync  Unpin
LeaseError                       Send  Sync  Unpin
KeyedSemaphore                   Send  Sync  Unpin
KeyedSemaphoreBuilder            Send  Sync  Unpin
Reservation                      Send  Sync  Unpin
Reserve                          Send  Sync  Unpin
Acquire                          Send  Sync  Unpin
KeyedPermit                      Send  Sync  Unpin
AcquireError                     Send  Sync  Unpin
TryAcquireError                  Send  Sync  Unpin
TryReserveError                  Send  Sync  Unpin
Closed                           Send  Sync  Unpin
Acquire, keys not Send           -     -     Unpin
DispatcherSink                   Send  Sync  Unpin
OnError                          Send  Sync  Unpin
MapKeyed                         Send  Sync  Unpin
MapKeyed, futures not Send       -     -     Unpin
MapKeyed, futures not Unpin      Send  Sync  Unpin
MapKeyed, stream not Unpin       Send  Sync  -
MapKeyedUnordered                Send  Sync  Unpin
ForEachKeyed                     Send  Sync  Unpin
TryMapKeyed                      Send  Sync  Unpin
TryMapKeyedUnordered             Send  Sync  Unpin
TryForEachKeyed                  Send  Sync  Unpin
future of send                   Send  Sync  -
future of submit                 Send  Sync  -
future of send_when              Send  Sync  -
future of submit_when            Send  Sync  -
future of resize                 Send  Sync  -
future of reserve                Send  Sync  -
future of recv                   Send  Sync  -
future of hottest                Send  Sync  -
future of an ending              Send  -     Unpin
future of cancelled              Send  Sync  -
future of enqueue                Send  Sync  -
future of dequeue                Send  Sync  -
future of a queue's drain        Send  Sync  -
future of acquire                Send  Sync  -
(Rc, which is neither)           -     -     Unpin
";

type Error = std::num::ParseIntError;
type Orders = Dispatcher<u64, String, u8, Error>;

// What adapters of streams are made of.
type Elements = stream::Iter<std::vec::IntoIter<String>>;
type Results = stream::Iter<std::vec::IntoIter<Result<String, Error>>>;
type KeyOf = fn(&String) -> u64;
type Start<T> = fn(String) -> Work<T>;
type Work<T> = std::future::Ready<T>;

/// A future that must not be moved.
struct Pinned(PhantomPinned);

impl Future for Pinned {
    type Output = u8;

    fn poll(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<u8> {
        Poll::Pending
    }
}

/// A stream that must not be moved.
struct Fixed(PhantomPinned);

impl Stream for Fixed {
    type Item = String;

    fn poll_next(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Option<String>> {
        Poll::Pending
    }
}

/// Asks what a type is. The inherent method exists only where the bound holds, and is then preferred
/// over the trait's.
struct Of<T: ?Sized>(PhantomData<T>);

trait Otherwise {
    fn send(&self) -> bool {
        false
    }
    fn sync(&self) -> bool {
        false
    }
    fn unpin(&self) -> bool {
        false
    }
}

impl<T: ?Sized> Otherwise for &Of<T> {}

impl<T: Send + ?Sized> Of<T> {
    fn send(&self) -> bool {
        true
    }
}

impl<T: Sync + ?Sized> Of<T> {
    fn sync(&self) -> bool {
        true
    }
}

impl<T: Unpin + ?Sized> Of<T> {
    fn unpin(&self) -> bool {
        true
    }
}

fn of_value<T>(_: &T) -> Of<T> {
    Of(PhantomData)
}

struct Row {
    name: &'static str,
    marks: [(bool, &'static str); 3],
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [send, sync, unpin] = self
            .marks
            .map(|(holds, mark)| if holds { mark } else { "-" });
        writeln!(f, "{:<32} {send:<5} {sync:<5} {unpin}", self.name)
    }
}

// A macro, because only a type that is known in this place can be asked.
macro_rules! row {
    ($name:expr, $of:expr) => {{
        let of = &$of;
        Row {
            name: $name,
            marks: [
                (of.send(), "Send"),
                (of.sync(), "Sync"),
                (of.unpin(), "Unpin"),
            ],
        }
    }};
}

macro_rules! rows {
    ($($name:literal: $type:ty,)*) => {
        vec![$(row!($name, Of::<$type>(PhantomData))),*]
    };
}

#[tokio::test]
async fn every_public_type_and_future_is_what_it_was() {
    let builder = Dispatcher::builder(|order: &String| order.len() as u64);
    let builder_row = row!("Builder", of_value(&builder));
    let orders: Orders = builder
        .spawn(|order: String| async move { order.parse::<u8>() })
        .unwrap();
    let lanes: HashLanes<String, u8, Error> =
        Dispatcher::hash_lanes(std::num::NonZeroUsize::MIN, |order: &String| order.len())
            .spawn(|order: String| async move { order.parse::<u8>() })
            .unwrap();
    let mut rows = rows! {
        "Dispatcher": Orders,
        "Dispatcher, answers not Sync": Dispatcher<u64, String, Cell<u8>, Error>,
    };
    rows.push(builder_row);
    rows.extend(rows! {
        "Permit": Permit<'static, u64, String, u8, Error>,
        "Receipt": Receipt<String, u8, Error>,
        "Receipt, answers not Sync": Receipt<String, Cell<u8>, Error>,
        "LaneControl": LaneControl<u64, String, u8, Error>,
        "LaneView": LaneView,
        "LaneState": LaneState,
        "Shutdown": Shutdown<u64, String, u8, Error>,
        "Report": Report<u64, String>,
        "HandedBack": HandedBack<u64, String>,
        "Stats": Stats,
        "Event": Event<u64>,
        "Events": Events<u64>,
        "HotKey": HotKey<u64>,
        "HotBy": HotBy,
        "Context": Context<u64>,
        "Retry": Retry<Error>,
        "RetryBudget": RetryBudget,
        "Rate": Rate,
        "Adaptive": Adaptive,
        "Coalesce": Coalesce<String>,
        "Sequence": Sequence<u64, String>,
        "OnGap": OnGap,
        "Delayed": Delayed,
        "dyn VersionStore": Box<dyn VersionStore<u64>>,
        "HashLane": HashLane,
        "ResizeError": ResizeError,
        "OnExhausted": OnExhausted<u64, String, Error>,
        "Overflow": Overflow,
        "dyn DeadLetterSink": Box<dyn DeadLetterSink<u64, String, Error>>,
        "DeadLetter": DeadLetter<u64, String, Error>,
        "Failure": Failure<Error>,
        "SendError": SendError<String>,
        "TrySendError": TrySendError<String>,
        "ReserveError": ReserveError,
        "ReceiptError": ReceiptError<String, Error>,
        "BuildError": BuildError,
        "LaneError": LaneError<String>,
    });
    let pull = Queue::builder(|order: &String| order.len() as u64);
    rows.extend(rows! { "Queue": Queue<u64, String>, });
    rows.push(row!("QueueBuilder", of_value(&pull)));
    rows.extend(rows! {
        "Lease": Lease<u64, String>,
        "Redelivery": Redelivery,
        "Returned": Returned<u64, String>,
        "queue::Report": queue::Report,
        "EnqueueError": EnqueueError<String>,
        "TryEnqueueError": TryEnqueueError<String>,
        "TryDequeueError": TryDequeueError,
        "LeaseError": LeaseError,
        "KeyedSemaphore": KeyedSemaphore<u64>,
        "KeyedSemaphoreBuilder": KeyedSemaphoreBuilder<u64>,
        "Reservation": Reservation<u64>,
        "Reserve": Reserve<u64>,
        "Acquire": Acquire<u64>,
        "KeyedPermit": KeyedPermit<u64>,
        "AcquireError": AcquireError<u64>,
        "TryAcquireError": TryAcquireError<u64>,
        "TryReserveError": TryReserveError,
        "Closed": Closed,
        "Acquire, keys not Send": Acquire<std::rc::Rc<u8>>,
    });
    rows.extend(rows! {
        "DispatcherSink": DispatcherSink<u64, String, u8, Error>,
        "OnError": OnError,
        "MapKeyed": MapKeyed<Elements, u64, KeyOf, Start<u8>, Work<u8>>,
        "MapKeyed, futures not Send":
            MapKeyed<Elements, u64, KeyOf, Start<std::rc::Rc<u8>>, Work<std::rc::Rc<u8>>>,
        "MapKeyed, futures not Unpin": MapKeyed<Elements, u64, KeyOf, Start<u8>, Pinned>,
        "MapKeyed, stream not Unpin": MapKeyed<Fixed, u64, KeyOf, Start<u8>, Work<u8>>,
        "MapKeyedUnordered": MapKeyedUnordered<Elements, u64, KeyOf, Start<u8>, Work<u8>>,
        "ForEachKeyed": ForEachKeyed<Elements, u64, KeyOf, Start<u8>, Work<()>>,
        "TryMapKeyed": TryMapKeyed<Results, u64, KeyOf, Start<u8>, Work<Result<u8, Error>>>,
        "TryMapKeyedUnordered":
            TryMapKeyedUnordered<Results, u64, KeyOf, Start<u8>, Work<Result<u8, Error>>>,
        "TryForEachKeyed": TryForEachKeyed<Results, u64, KeyOf, Start<u8>, Work<Result<(), Error>>>,
    });
    rows.push(row!(
        "future of send",
        of_value(&orders.send(String::new()))
    ));
    rows.push(row!(
        "future of submit",
        of_value(&orders.submit(String::new()))
    ));
    let soon = std::time::Duration::ZERO;
    rows.push(row!(
        "future of send_when",
        of_value(&orders.send_when(String::new(), soon))
    ));
    rows.push(row!(
        "future of submit_when",
        of_value(&orders.submit_when(String::new(), soon))
    ));
    rows.push(row!("future of resize", of_value(&lanes.resize(1))));
    rows.push(row!("future of reserve", of_value(&orders.reserve())));
    let mut events = orders.events();
    rows.push(row!("future of recv", of_value(&events.recv())));
    rows.push(row!(
        "future of hottest",
        of_value(&orders.hottest(1, HotBy::Age))
    ));
    rows.push(row!(
        "future of an ending",
        of_value(&orders.drain().into_future())
    ));
    // There is no context but in a handler.
    let contexts = Dispatcher::builder(|n: &u64| *n)
        .spawn(|context: Context<u64>, _: u64| async move {
            Ok::<_, Error>(row!("future of cancelled", of_value(&context.cancelled())))
        })
        .unwrap();
    rows.push(contexts.submit(1).await.unwrap().await.unwrap());
    let pull = pull.spawn().unwrap();
    rows.push(row!(
        "future of enqueue",
        of_value(&pull.enqueue(String::new()))
    ));
    rows.push(row!("future of dequeue", of_value(&pull.dequeue())));
    rows.push(row!("future of a queue's drain", of_value(&pull.drain())));
    let semaphore = KeyedSemaphore::<u64>::builder().build().unwrap();
    rows.push(row!("future of acquire", of_value(&semaphore.acquire(1))));
    rows.push(row!(
        "(Rc, which is neither)",
        Of::<std::rc::Rc<u8>>(PhantomData)
    ));
    let table: String = rows.iter().map(ToString::to_string).collect();
    println!("{table}");
    assert_eq!(table, EXPECTED);
}
