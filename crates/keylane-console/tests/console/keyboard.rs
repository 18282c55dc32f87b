//! The page without a mouse.

use keylane_console::Action;
use serde_json::json;
use testkit_browser::Browser;

use crate::served::{Served, Work};
use crate::shelf::Shelf;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// Presses Tab until this has the focus, and returns how often. Everything on the way is visible.
fn tab_to(browser: &Browser, is_it: &str) -> usize {
    for times in 1..=60 {
        browser.press(TAB);
        let seen = browser.run("return document.activeElement.checkVisibility()");
        assert_eq!(seen, true, "the focus is on what cannot be seen");
        if browser.run(&format!("return document.activeElement.matches({is_it:?})")) == true {
            return times;
        }
    }
    panic!("Tab does not come to {is_it}");
}

#[test]
fn all_is_reached_and_done_by_keyboard() {
    let served = Served::<String>::start(|console| console.allow(Action::ALL));
    served.send("ann".into(), Work::Fails);
    served.until_in("ann", "halted");
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    browser.until("document.querySelectorAll('#dispatchers article').length == 1");
    // First the way past the navigation, then the pages in their order.
    assert_eq!(tab_to(&browser, ".skip"), 1);
    for page in ["overview", "lanes"] {
        assert_eq!(tab_to(&browser, &format!("#nav a[href='#{page}']")), 1);
    }
    browser.press(ENTER);
    browser.until("document.querySelectorAll('#rows tr').length == 1");
    // The focus goes to the content, and the row is behind the tools.
    browser.until("document.activeElement.id == 'main'");
    tab_to(&browser, "#key");
    tab_to(&browser, "#rows a");
    browser.press(ENTER);
    browser.until("document.getElementById('facts').textContent.includes('halted')");
    tab_to(&browser, "button[data-action=skip]");
    browser.press(ENTER);
    browser.until("document.getElementById('ask').open");
    // The first button says no.
    assert_eq!(browser.run("return document.activeElement.value"), "no");
    browser.press(ESCAPE);
    browser.until("!document.getElementById('ask').open");
    assert_eq!(served.find("ann")["state"], "halted", "Escape is no");
    // The focus is where it was.
    assert_eq!(
        browser.run("return document.activeElement.dataset.action"),
        "skip"
    );
    browser.press(ENTER);
    browser.until("document.getElementById('ask').open");
    tab_to(&browser, "#ask-yes");
    browser.press(ENTER);
    browser.until("document.getElementById('acted').textContent == 'Skip is done.'");
    assert_eq!(served.find("ann")["state"], "empty");
}

#[test]
fn lanes_are_found_sorted_and_filtered_by_keyboard() {
    let served = Served::<String>::start(|console| console);
    for (key, times) in [("deep", 3), ("ann", 1)] {
        for _ in 0..times {
            served.send(key.into(), Work::Holds);
        }
    }
    served.orders.lane(&"paused one".to_owned()).pause();
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#lanes", served.url()));
    browser.until("document.querySelectorAll('#rows tr').length == 3");
    tab_to(&browser, "th button[data-sort=depth]");
    browser.press(ENTER);
    browser.until("document.querySelector('th[aria-sort=descending]').textContent == 'Depth'");
    browser.until("document.querySelector('#rows a').textContent == 'deep'");
    // Back at the start, and to the filter: its option by the first letters of its name.
    browser.run("document.getElementById('main').focus()");
    tab_to(&browser, "#filter");
    browser.press("pau");
    browser.until("document.querySelectorAll('#rows tr').length == 1");
    browser.until("document.querySelector('#rows a').textContent == 'paused one'");
    tab_to(&browser, "#key");
    browser.press("ann");
    browser.press(ENTER);
    browser.until("document.getElementById('lane-key').textContent == 'ann'");
    browser.until("document.activeElement.id == 'main'");
    // And back by its own link.
    tab_to(&browser, "#back");
    browser.press(ENTER);
    browser.until("document.getElementById('table').checkVisibility()");
}

#[test]
fn a_letter_is_purged_and_all_pages_are_reached_by_keyboard() {
    let shelf = Shelf::with(3);
    let token = "a token of many bytes";
    let served = Served::<String>::start(|console| {
        let console = console.letters("dead", shelf.clone());
        console.allow(Action::ALL).token(token)
    });
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    // The sign-in has the focus.
    browser.until("document.activeElement.id == 'token'");
    browser.press(token);
    browser.press(ENTER);
    browser.until("document.querySelectorAll('#dispatchers article').length == 1");
    for page in ["sources", "leaders", "letters"] {
        browser.run("document.activeElement.blur()");
        tab_to(&browser, &format!("#nav a[href='#{page}']"));
        browser.press(ENTER);
        browser.until(&format!(
            "document.getElementById('{page}').checkVisibility()"
        ));
        browser.until("document.activeElement.id == 'main'");
    }
    browser.until("document.querySelectorAll('#letter-rows > li').length == 3");
    tab_to(&browser, "#letter-filter");
    browser.press("even");
    browser.press(ENTER);
    browser.until("document.querySelectorAll('#letter-rows > li').length == 1");
    tab_to(&browser, "#letter-rows a");
    browser.press(ENTER);
    browser.until("document.getElementById('letter-key').textContent == 'even'");
    tab_to(&browser, "#purge-one");
    browser.press(ENTER);
    browser.until("document.getElementById('ask').open");
    assert_eq!(
        browser.run("return document.activeElement.value"),
        json!("no")
    );
    tab_to(&browser, "#ask-yes");
    browser.press(ENTER);
    browser
        .until("document.getElementById('letter-acted').textContent.startsWith('Purge is done')");
    assert_eq!(shelf.len(), 2);
    browser.run("document.activeElement.blur()");
    tab_to(&browser, "#sign-out");
    browser.press(ENTER);
    browser.until("document.getElementById('sign-in')?.checkVisibility()");
}
