//! The page without a mouse.

use keylane_console::Action;
use testkit_browser::Browser;

use crate::served::{Served, Work};

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
