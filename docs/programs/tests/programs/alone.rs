//! Programs without a server.

use tempfile::tempdir;

use crate::program::{Program, program};

const NONE: (&str, &str) = ("NONE", "");

async fn assert_says(path: &str, texts: &[&str]) {
    let said = Program::start(path, NONE).ended().await;
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in: {said}");
    }
}

#[tokio::test]
async fn those_that_end_by_themselves() {
    let adds_up = "5 accepted = 4 done + 0 dead-lettered + 1 discarded + 0 handed back";
    let receipt = "bob's receipt: 5 cents";
    assert_says(program!("in_memory"), &[receipt, adds_up]).await;
    let decided = ["ada is halted", "ada: 120 cents", "bob: 7 cents"];
    assert_says(program!("halted"), &decided).await;
    assert_says(program!("mutex"), &["account 7: 250 cents"]).await;
    let billed = ["ada pays 120 cents", "3 accepted = 3 done"];
    assert_says(program!("channels"), &billed).await;
    let tried = ["ada, attempt 2", "nobody, attempt 1", "2 accepted = 1 done"];
    assert_says(program!("retry"), &tried).await;
    let looked = ["1 wait to be tried again", "ada: 2 messages", "Backoff"];
    assert_says(program!("watching"), &looked).await;
}

#[tokio::test]
async fn a_durable_order_survives_a_kill_and_its_repeat_is_absorbed() {
    let folder = tempdir().unwrap();
    let inbox = ("INBOX", folder.path().to_str().unwrap());
    let mut first = Program::start(program!("durable"), inbox);
    first.until("ada pays 99 cents").await;
    first.kill().await;
    // All ids are known by now: at most what was in flight comes again.
    let mut second = Program::start(program!("durable"), inbox);
    second.until("the orders are stored").await;
    let said = second.stop().await;
    assert!(said.matches("pays").count() <= 2, "{said}");
}

#[tokio::test]
async fn letters_are_put_back_and_handled() {
    let folder = tempdir().unwrap();
    let inbox = ("INBOX", folder.path().to_str().unwrap());
    let said = Program::start(program!("letters"), inbox).ended().await;
    assert!(
        said.contains("\"the bank does not answer\" after 3 attempts"),
        "{said}"
    );
    assert!(said.contains("1 went back"), "{said}");
}
