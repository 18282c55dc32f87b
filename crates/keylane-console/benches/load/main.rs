//! What viewers cost a service with 10,000 busy lanes: without viewers and with 50 of them.
//! `cargo bench -p keylane-console --bench load`.
//!
//! First the messages per second of processor time, with the viewers in another process. Then the
//! instructions, which valgrind counts, with the viewers in this process. Rounds without and with
//! viewers take turns, and medians are compared: what else the machine does hits both. It fails if
//! viewers take more than 2 % by one of the two.

mod instructions;
mod service;
mod time;
mod viewers;

const ROUNDS: usize = 9;

/// Most of the throughput that viewers may take, in percent.
const MOST: f64 = 2.0;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let of = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1)
    };
    if let Some(address) = of(viewers::ARGUMENT) {
        return viewers::view(address.parse().expect("an address"));
    }
    if arguments.iter().any(|it| it == service::ARGUMENT) {
        return service::count();
    }
    // `cargo test --benches` only looks whether it starts.
    if !arguments.iter().any(|it| it == "--bench") {
        return;
    }
    let rounds = time::rounds();
    let [without, with] = rounds.map(median);
    let by_time = 100.0 * (1.0 - with / without);
    println!("messages per second of processor time, medians of {ROUNDS} rounds:");
    println!("  without viewers    {without:9.0}");
    println!("  with {} viewers    {with:9.0}", viewers::COUNT);
    println!("  they take {by_time:.2} %");
    let [rate, busy] = [without, with].map(|each| 1e9 / each);
    println!("a message takes {rate:.0} and {busy:.0} ns of processor time");

    let [message, second] = instructions::rounds().map(median);
    // One processor is busy for all of that second. With more of them it is less.
    let by_instructions = 100.0 * second / (second + without * message);
    println!("instructions, medians of {ROUNDS} rounds:");
    println!("  a message          {message:9.0}");
    println!("  a second of {} viewers {second:9.0}", viewers::COUNT);
    println!("  they take {by_instructions:.2} % of a processor");
    if by_time > MOST || by_instructions > MOST {
        std::process::exit(1);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
