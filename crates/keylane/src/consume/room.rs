//! Room in the capacity that the inlet has taken.

use std::ops::Deref;

use keylane_rt::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::engine::Room;

/// Room for messages, and for bytes of them. It goes back when it is dropped, unless a message
/// [keeps](Self::keep) it: then the message's settlement gives it back.
pub(super) struct InletRoom<R: Deref<Target = Room>> {
    of: R,
    messages: usize,
    bytes: usize,
}

/// What became of the wish for room.
pub(super) enum Take<'a> {
    Taken(InletRoom<&'a Room>),
    /// There is none.
    None,
    /// The dispatcher takes no more messages.
    Closed,
}

impl<R: Deref<Target = Room>> InletRoom<R> {
    pub(super) fn none(of: R) -> Self {
        Self {
            of,
            messages: 0,
            bytes: 0,
        }
    }

    /// Room for one message of so many bytes, which was taken before.
    pub(super) fn of_one(of: R, weight: u32) -> Self {
        Self {
            of,
            messages: 1,
            bytes: weight as usize,
        }
    }

    /// Takes room for one message out of it, if it has so many bytes.
    pub(super) fn split<'a>(&mut self, of: &'a Room, weight: u32) -> Option<InletRoom<&'a Room>> {
        let messages = self.messages.checked_sub(1);
        let left = messages.zip(self.bytes.checked_sub(weight as usize));
        (self.messages, self.bytes) = left?;
        Some(InletRoom::of_one(of, weight))
    }

    /// A message is in, and has this room.
    #[inline]
    pub(super) fn keep(mut self) {
        (self.messages, self.bytes) = (0, 0);
    }
}

impl<'a> InletRoom<&'a Room> {
    pub(super) fn of(&self) -> &'a Room {
        self.of
    }

    /// Takes room for one message of so many bytes. If no place is left here, takes as many as
    /// there are, up to `most`.
    #[inline]
    pub(super) fn take_for(&mut self, weight: u32, most: usize) -> Take<'a> {
        if self.messages == 0 {
            match take(&self.of.messages, most) {
                Ok(0) => return Take::None,
                Ok(taken) => self.messages = taken,
                Err(Closed) => return Take::Closed,
            }
        }
        if let Some(bytes) = &self.of.bytes {
            let taken = bytes.try_acquire_many(weight);
            match taken.map(SemaphorePermit::forget) {
                Ok(()) => {}
                Err(TryAcquireError::NoPermits) => return Take::None,
                Err(TryAcquireError::Closed) => return Take::Closed,
            }
        }
        self.messages -= 1;
        Take::Taken(InletRoom::of_one(self.of, weight))
    }
}

impl<R: Deref<Target = Room>> Drop for InletRoom<R> {
    #[inline]
    fn drop(&mut self) {
        self.of.give(self.messages, self.bytes);
    }
}

struct Closed;

/// Takes as many places as there are, up to `most`.
#[inline]
fn take(places: &Semaphore, mut most: usize) -> Result<usize, Closed> {
    loop {
        match places.try_acquire_many(u32::try_from(most).unwrap_or(u32::MAX)) {
            Ok(taken) => {
                taken.forget();
                return Ok(most);
            }
            Err(TryAcquireError::Closed) => return Err(Closed),
            // Others take and give at the same time.
            Err(TryAcquireError::NoPermits) => {
                most = places.available_permits().min(most / 2);
                if most == 0 {
                    return Ok(0);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use keylane_rt::Arc;

    use super::*;
    use crate::Dispatcher;

    #[tokio::test]
    async fn what_no_message_keeps_goes_back() {
        let dispatcher = Dispatcher::builder(|number: &u64| *number)
            .capacity(8)
            .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })
            .unwrap();
        let room = &*dispatcher.engine.room;
        let free = || room.messages.available_permits();
        let mut places = InletRoom::none(room);
        let mut one = || match places.take_for(1, 5) {
            Take::Taken(one) => one,
            Take::None | Take::Closed => panic!("there is room"),
        };
        let (first, second) = (one(), one());
        assert_eq!(free(), 3);
        drop(first);
        assert_eq!(free(), 4);
        second.keep();
        assert_eq!(free(), 4);
        drop(places);
        assert_eq!(free(), 7, "one message has its room");

        // The room that it had, as if it had been waited for.
        let mut waited = InletRoom::of_one(Arc::clone(&dispatcher.engine.room), 3);
        assert!(
            waited.split(room, 4).is_none(),
            "it is for a smaller message"
        );
        drop(waited.split(room, 2));
        drop(waited);
        assert_eq!(free(), 8);
    }
}
