//! A headless Chromium, driven through chromedriver's HTTP.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Request;
use crate::until::until;

/// A browser with one page, gone when it is dropped. Every method panics if the driver refuses.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts chromedriver, and a browser with an empty profile.
    ///
    /// # Panics
    ///
    /// If they are not installed, or do not start.
    pub fn start() -> Self {
        // It takes a free port of IPv4 and then the same of IPv6, which may be another's by then.
        let (driver, port) = (0..5)
            .find_map(|_| Self::driver())
            .expect("chromedriver starts");
        let profile = tempfile::tempdir().expect("a temporary directory");
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
        };
        let profile = browser._profile.path().display();
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            // A view of 400 pixels is one of 400 pixels.
            "--hide-scrollbars",
            // A request that would leave the machine fails, and is seen.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            &format!("--user-data-dir={profile}"),
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "unhandledPromptBehavior": "ignore",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let session = browser.ask("POST", "/session", &capabilities);
        let session = session["sessionId"].as_str().expect("an id");
        browser.session = format!("/session/{session}");
        browser
    }

    /// A chromedriver and its port, or none if it ended at once.
    fn driver() -> Option<(Child, u16)> {
        let missing = "chromedriver is not there: `cargo xtask setup` installs it";
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(missing);
        let mut output = BufReader::new(driver.stdout.take().expect("it is piped"));
        let mut said = String::new();
        let port = loop {
            let before = said.len();
            if matches!(output.read_line(&mut said), Ok(0) | Err(_)) {
                break None;
            }
            let words = said[before..]
                .trim_end()
                .split("successfully on port ")
                .nth(1);
            if let Some(port) = words.and_then(|port| port.trim_end_matches('.').parse().ok()) {
                break Some(port);
            }
        };
        let Some(port) = port else {
            println!("chromedriver has ended, {:?}:\n{said}", driver.wait());
            return None;
        };
        // It goes on to talk, and must not stop because its pipe is full.
        std::thread::spawn(move || output.read_to_end(&mut Vec::new()));
        Some((driver, port))
    }

    /// Opens an address, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.command("/url", &json!({ "url": url }));
    }

    /// Makes the view so many pixels wide and high.
    pub fn resize(&self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Sets the preferred color scheme: `light` or `dark`.
    pub fn prefer(&self, scheme: &str) {
        let features = [json!({ "name": "prefers-color-scheme", "value": scheme })];
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({ "features": features }),
        );
    }

    /// Runs the body of a function on the page, and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until the expression is true on the page.
    ///
    /// # Panics
    ///
    /// If it is not true within a minute.
    pub fn until(&self, expression: &str) {
        until(expression, || {
            self.run(&format!("return {expression}")) == true
        });
    }

    /// Clicks at the element as a person would: it must be in view, and in front.
    pub fn click(&self, selector: &str) {
        let found = self.command(
            "/element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let element = found
            .as_object()
            .and_then(|found| found.values().next()?.as_str());
        let element = element.expect("an element has an id");
        self.command(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types these characters into what has the focus. Named keys are those of WebDriver, such as
    /// `\u{e004}` for Tab, `\u{e007}` for Enter and `\u{e00c}` for Escape.
    pub fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
        });
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.command("/actions", &json!({ "actions": [keyboard] }));
    }

    /// The whole page, as a PNG.
    pub fn picture(&self) -> Vec<u8> {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let shot = self.devtools("Page.captureScreenshot", &whole);
        decoded(shot["data"].as_str().expect("base64"))
    }

    /// The text of a dialog, if one is open.
    pub fn dialog(&self) -> Option<String> {
        let request = Request::new("GET", &format!("{}/alert/text", self.session));
        let answer = request.send(self.address);
        match answer.status {
            404 => None,
            _ => Some(answer.body),
        }
    }

    /// What the console has said since the last call, from warnings on.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.log("browser");
        let bad = log.iter().filter(|entry| {
            let level = entry["level"].as_str();
            matches!(level, Some("SEVERE" | "WARNING"))
        });
        bad.map(|entry| entry["message"].to_string()).collect()
    }

    /// What was asked of the network since the last call, but by the browser's own first page.
    pub fn requests(&self) -> Vec<String> {
        let log = self.log("performance");
        let messages = log.iter().map(|entry| {
            let text = entry["message"].as_str().expect("text");
            serde_json::from_str::<Value>(text).expect("JSON")
        });
        let sent = messages.filter(|it| it["message"]["method"] == "Network.requestWillBeSent");
        let text = |value: &Value| value.as_str().expect("an address").to_owned();
        sent.map(|it| it["message"]["params"].clone())
            .filter(|it| !text(&it["documentURL"]).starts_with("chrome://"))
            .map(|it| text(&it["request"]["url"]))
            .collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.command("/se/log", &json!({ "type": kind }));
        log.as_array().expect("entries").clone()
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command(
            "/goog/cdp/execute",
            &json!({ "cmd": command, "params": parameters }),
        )
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = Request::new(method, path).json(body).send(self.address);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser when it is asked to, and would leave it behind if it were
        // killed.
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", &self.session.clone(), &json!({}));
        } else if !self.session.is_empty() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                Request::new("DELETE", &self.session).send(self.address)
            }));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Base64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits = text.trim_end_matches('=').as_bytes();
    let quads = digits.chunks(4).flat_map(|quad| {
        let bits = quad
            .iter()
            .fold(0_u32, |bits, digit| bits << 6 | u32::from(value(*digit)));
        let bits = bits << (6 * (4 - quad.len()));
        let [_, bytes @ ..] = bits.to_be_bytes();
        bytes.into_iter().take(quad.len() - 1)
    });
    quads.collect()
}
