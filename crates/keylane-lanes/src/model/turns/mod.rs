//! All orders of the steps of a few threads over stripes and a ready queue.
//!
//! Senders, runners and the router are lists of steps that call the real [`Stripe`](crate::Stripe)
//! and the real [`Ready`](crate::Ready). A step is one operation under one lock, and what the
//! thread does alone after it. What a thread does after which result is written here as the engine
//! does it. Any thread that can take a step may take it next.
//!
//! A state is what all threads are about to do, where all messages are, and what can be seen of the
//! real objects. Each state is visited once. To go on from a state, its operations are done again
//! on new objects.
//!
//! A task that a runner wakes cannot run before this runner yields, as with Tokio, unless the runner
//! wakes another one after it. Not here: the quantum of a lane, Tokio's budget, priorities, a rate,
//! an abort, a panic of a key, and runners that are dropped. A runner asks whether all permits are
//! taken in one step with what it did before, and becomes idle before the next one asks for a job.

mod checks;
mod explore;
mod programs;
mod real;
mod router;
mod runner;
mod steps;
mod world;

use std::time::Instant;

use explore::explore;
use programs::{End, Kind, Message, Program};

use Kind::{Blocks, Ready, Waits};

/// The keys of the messages, and their senders.
type Shape<'a> = (&'a [u8], &'a [u8]);

/// The limits of active runners and of pollers, and how many stripes there are.
type Limits = (usize, usize, u8);

const KINDS: [Kind; 3] = [Ready, Waits, Blocks];

const ENDS: [End; 3] = [End::LastHandle, End::Drain, End::HandBack];

/// All kinds of so many handlers, where no more of them block than leave one poller for the others.
fn all_kinds(count: usize, limits: Limits) -> impl Iterator<Item = Vec<Kind>> {
    let most = limits.0.min(limits.1) - 1;
    (0..KINDS.len().pow(count as u32)).filter_map(move |number| {
        let digit = |at: usize| number / KINDS.len().pow(at as u32) % KINDS.len();
        let kinds: Vec<_> = (0..count).map(|at| KINDS[digit(at)]).collect();
        let blocking = kinds.iter().filter(|kind| **kind == Blocks).count();
        (blocking <= most).then_some(kinds)
    })
}

fn program((keys, senders): Shape<'_>, kinds: &[Kind], limits: Limits, end: End) -> Program {
    let messages = kinds.iter().zip(keys).zip(senders);
    let message = |((kind, key), sender): ((&Kind, &u8), &u8)| Message {
        key: *key,
        kind: *kind,
        sender: *sender,
    };
    let (concurrency, pollers, stripes) = limits;
    Program {
        messages: messages.map(message).collect(),
        stripes,
        concurrency,
        pollers,
        end,
        starts_alone: true,
        holder_steps_aside: true,
        router_waits: false,
    }
}

/// Explores a program, and says how many states it has.
fn count(program: &Program) -> usize {
    let begun = Instant::now();
    let states = explore(program);
    let keys: Vec<_> = program.messages.iter().map(|message| message.key).collect();
    let kinds: Vec<_> = program
        .messages
        .iter()
        .map(|message| message.kind)
        .collect();
    let limits = (program.concurrency, program.pollers, program.stripes);
    let took = begun.elapsed();
    eprintln!(
        "{states:9} states: {keys:?} {kinds:?} {limits:?} {:?}, {took:.1?}",
        program.end
    );
    states
}

fn explore_all(shapes: &[Shape<'_>], limits: &[Limits], ends: &[End]) -> usize {
    let mut states = 0;
    for shape in shapes {
        for limits in limits {
            for kinds in all_kinds(shape.0.len(), *limits) {
                for end in ends {
                    states += count(&program(*shape, &kinds, *limits, *end));
                }
            }
        }
    }
    states
}

/// Two messages, and some programs of three.
#[test]
fn two_messages_and_three() {
    let (one_key, two_keys): (Shape<'_>, Shape<'_>) = ((&[0, 0], &[0, 0]), (&[0, 1], &[0, 1]));
    let (one, two) = ((1, 1, 2), (2, 2, 2));
    let mut states = explore_all(&[one_key], &[one, two], &ENDS);
    states += explore_all(&[two_keys], &[one], &ENDS[..2]);
    states += explore_all(&[two_keys], &[two], &ENDS[..1]);
    states += count(&program(two_keys, &[Waits, Ready], one, End::HandBack));
    states += count(&program(two_keys, &[Waits, Blocks], two, End::Drain));
    states += count(&program(two_keys, &[Waits, Blocks], two, End::HandBack));
    let three: Shape<'_> = (&[0, 1, 0], &[0, 0, 0]);
    states += explore_all(&[three], &[one, (2, 1, 2)], &[End::Never]);
    states += count(&program(
        three,
        &[Waits, Ready, Waits],
        one,
        End::LastHandle,
    ));
    states += count(&program(
        three,
        &[Blocks, Ready, Ready],
        two,
        End::LastHandle,
    ));
    eprintln!("{states} states");
}

/// Why a holder steps aside: if it recruited a runner for the next job of its lane, and then took
/// that job itself, it would keep the recruited runner from all others while the job blocks.
#[test]
#[should_panic(expected = "and no runner comes")]
fn a_holder_that_does_not_step_aside() {
    let shape: Shape<'_> = (&[0, 0, 1], &[0, 0, 1]);
    let program = program(shape, &[Waits, Blocks, Ready], (3, 2, 2), End::Never);
    count(&Program {
        holder_steps_aside: false,
        ..program
    });
}

/// Many more programs, if `KEYLANE_TURNS` is `large`.
#[test]
fn four_messages() {
    if std::env::var("KEYLANE_TURNS").is_ok_and(|size| size == "large") {
        let waits_twice: Shape<'_> = (&[0, 0, 1], &[0, 0, 1]);
        let between: Shape<'_> = (&[0, 1, 0], &[0, 0, 0]);
        let (two, one_polls, three) = ((2, 2, 2), (2, 1, 2), (3, 2, 2));
        let mut states = explore_all(
            &[waits_twice, between],
            &[three, two, one_polls],
            &ENDS[..1],
        );
        let four: Shape<'_> = (&[0, 0, 1, 1], &[0, 0, 1, 1]);
        for kinds in [[Waits, Blocks, Ready, Ready], [Waits, Ready, Blocks, Ready]] {
            states += count(&program(four, &kinds, three, End::LastHandle));
            states += count(&program(four, &kinds, three, End::Never));
        }
        states += explore_all(&[between], &[two], &ENDS[1..2]);
        states += count(&program(
            between,
            &[Waits, Blocks, Ready],
            two,
            End::HandBack,
        ));
        for end in ENDS {
            let program = program(between, &[Waits, Ready, Blocks], two, end);
            let router_waits = true;
            states += count(&Program {
                router_waits,
                ..program
            });
        }
        let one_key: Shape<'_> = (&[0, 0], &[0, 0]);
        states += explore_all(&[one_key], &[two], &[End::Both]);
        eprintln!("{states} states");
    }
}
