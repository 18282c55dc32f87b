//! A terminal of 80 columns and 24 lines, which a program runs in.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use testkit_browser::until;

/// Printed behind the program, with the settings of the terminal.
const BEHIND: &str = "the settings are: ";

/// A terminal with a program.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
    files: TempDir,
}

impl Terminal {
    /// Runs a command of a shell. The program must replace the shell.
    pub(crate) fn start(command: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().display();
        let inner = format!("echo $$ > {path}/pid; tty > {path}/tty; exec {command}");
        let settings = format!("code=$?; echo '{BEHIND}'$(stty -a); exit $code");
        let all = format!("stty rows 24 cols 80; sh -c '{inner}'; {settings}");
        let mut child = Command::new("script")
            .args(["-qefc", &all, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` is there");
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&written);
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self {
            child,
            keys,
            written,
            files,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, rows: usize, columns: usize) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let settings = ["-F", &self.file("tty"), "rows", &rows, "cols", &columns];
        let done = Command::new("stty").args(settings).status().unwrap();
        assert!(done.success());
    }

    /// Has the system end the program.
    pub(crate) fn terminate(&self) {
        let done = Command::new("kill").arg(self.file("pid")).status().unwrap();
        assert!(done.success());
    }

    fn file(&self, name: &str) -> String {
        let text = fs::read_to_string(self.files.path().join(name)).unwrap();
        text.trim().to_owned()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until the screen has all of these texts, and returns it.
    pub(crate) fn until(&self, texts: &[&str]) -> String {
        let has_all = |screen: &str| texts.iter().all(|text| screen.contains(text));
        self.until_so(&format!("{texts:?} are on the screen"), has_all)
    }

    /// Waits until the screen is so, and returns it.
    pub(crate) fn until_so(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        until(what, || {
            screen = picture(&self.text());
            is_so(&screen)
        });
        screen
    }

    /// Waits until the program has ended, and checks that the terminal is as it was before. Returns
    /// the exit code, and what was written behind the screen.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut code = None;
        until("the program has ended", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        until("all is read", || self.text().contains("icanon"));
        let all = self.text();
        let (screen, behind) = all
            .rsplit_once("\x1b[?1049l")
            .expect("it leaves the screen");
        assert!(screen.contains("\x1b[?1049h"), "it has had a screen");
        let shown = all.rfind("\x1b[?25h");
        assert!(shown > all.rfind("\x1b[?25l"), "the cursor is shown");
        let settings = behind.split_once(BEHIND).expect("the settings").1;
        for plain in [" icanon ", " echo ", " isig "] {
            assert!(settings.contains(plain), "{plain}: {settings}");
        }
        (code.unwrap().code(), behind.to_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that fails leaves no program behind. One that has ended is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a terminal shows that was sent this text: the moves and the clearing that a screen needs.
fn picture(text: &str) -> String {
    let mut cells = vec![vec![' '; 200]; 60];
    let (mut row, mut column) = (0, 0);
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\x1b' => {
                if rest.next() != Some('[') {
                    continue;
                }
                let mut numbers = String::new();
                let last = rest.find(|character| {
                    let is_last = character.is_ascii_alphabetic();
                    numbers.extend((!is_last).then_some(*character));
                    is_last
                });
                match last {
                    Some('H') => {
                        let mut place =
                            numbers.split(';').map(|number| number.parse().unwrap_or(1));
                        row = place.next().unwrap_or(1) - 1;
                        column = place.next().unwrap_or(1) - 1;
                    }
                    Some('J') => cells.iter_mut().for_each(|row| row.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            character => {
                let row: Option<&mut Vec<char>> = cells.get_mut(row);
                if let Some(cell) = row.and_then(|row| row.get_mut(column)) {
                    *cell = character;
                }
                column += 1;
            }
        }
    }
    let rows = cells.iter().map(|row| row.iter().collect::<String>());
    let rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    rows.join("\n").trim_end().to_owned()
}
