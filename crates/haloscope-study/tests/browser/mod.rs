//! A headless Chromium that is told what to do through a pipe, in the browser's own protocol.
//!
//! The protocol's messages are JSON that end with a zero byte, on the file descriptors 3 and 4 of the browser; a shell
//! connects them to its standard input and output. See <https://chromedevtools.github.io/devtools-protocol/>.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// No answer takes this long, not even on a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// A browser with one tab. It ends when it is dropped.
pub(crate) struct Browser {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<Value>,
    session: Option<String>,
    next: u64,
    /// What the tab has told of so far.
    events: Vec<Value>,
    _profile: TempDir,
}

/// What the tab complained about and asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Errors and warnings of the console, and exceptions that nobody caught.
    pub(crate) complaints: Vec<String>,
    /// Addresses that were asked for.
    pub(crate) requests: Vec<String>,
}

impl Browser {
    /// Starts Chromium; nothing if there is none. `CHROMIUM` names one that is not on the path.
    pub(crate) fn start() -> Option<Self> {
        let program = find()?;
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            // As root, as in containers, the sandbox refuses to start; the pages are our own.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let orders = process.stdin.take().expect("it is a pipe");
        let mut output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                if let Ok(value) =
                    serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message))
                    && sender.send(value).is_err()
                {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            process,
            orders,
            answers,
            session: None,
            next: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(Into::into);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.set_window(1280, 900);
        Some(browser)
    }

    /// The size of what the page sees, in its pixels.
    pub(crate) fn set_window(&mut self, width: u32, height: u32) {
        let is_phone = width < 600;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone }),
        );
    }

    /// Light or dark, and nothing that moves.
    pub(crate) fn set_dark(&mut self, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [
                { "name": "prefers-color-scheme", "value": scheme },
                { "name": "prefers-reduced-motion", "value": "reduce" },
            ] }),
        );
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.display());
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert_eq!(answer.get("errorText"), None, "{url}");
        self.wait_for_event("Page.loadEventFired");
    }

    /// The value of an expression, after what it promises.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            &json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        let wrong = answer.get("exceptionDetails");
        assert_eq!(wrong, None, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Asks again and again until an expression is true.
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(expression) != json!(true) {
            assert!(begin.elapsed() < PATIENCE, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves the mouse.
    pub(crate) fn move_mouse(&mut self, x: f64, y: f64) {
        let order = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.call("Input.dispatchMouseEvent", &order);
    }

    /// What has happened since the page was opened.
    pub(crate) fn record(&mut self) -> Record {
        // An answer comes after all events that were before the question.
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))");
        let mut record = Record::default();
        for event in &self.events {
            let of = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => record.complaints.push(of.to_string()),
                "Runtime.consoleAPICalled" if of["type"] != "log" && of["type"] != "debug" => {
                    record.complaints.push(of["args"].to_string());
                }
                "Log.entryAdded" => record.complaints.push(of["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = of["request"]["url"].as_str().unwrap_or_default();
                    record.requests.push(url.into());
                }
                _ => (),
            }
        }
        record
    }

    /// A PNG of the whole page.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let options = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.call("Page.captureScreenshot", &options);
        decode_base64(answer["data"].as_str().expect("a picture"))
    }

    /// Sends an order and waits for its answer.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let mut order = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut message = order.to_string().into_bytes();
        message.push(0);
        self.orders.write_all(&message).expect("the browser runs");
        self.orders.flush().expect("the browser runs");
        loop {
            let mut message = self.receive(method);
            if message["id"] == self.next {
                assert_eq!(message.get("error"), None, "{method}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn wait_for_event(&mut self, name: &str) {
        while !self.events.iter().any(|event| event["method"] == name) {
            let event = self.receive(name);
            self.events.push(event);
        }
    }

    fn receive(&self, why: &str) -> Value {
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {why}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.orders.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first Chromium or Chrome on the path.
fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("CHROMIUM") {
        return Some(given.into());
    }
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

fn decode_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes().filter_map(|byte| ALPHABET.iter().position(|known| *known == byte)) {
        bits = (bits << 6 | digit as u32) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
