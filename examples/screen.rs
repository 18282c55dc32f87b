//! Lines, and a block of lines that is drawn again and again: over the one before on a terminal,
//! below it elsewhere.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

/// What is at the end of the standard output.
static OUT: Mutex<Screen> = Mutex::new(Screen { drawn: 0 });

/// Writes a line. The next block comes below it.
pub(crate) fn line(text: impl Display) {
    write(|_, screen| {
        screen.drawn = 0;
        format!("{text}\n")
    });
}

/// Draws a block, and an empty line below it.
pub(crate) fn block(text: impl Display) {
    let text = text.to_string();
    write(|is_terminal, screen| match is_terminal {
        true => screen.over(&text),
        false => format!("{text}\n\n"),
    });
}

/// The output may be a pipe that is closed: that is no reason to stop.
fn write(text: impl FnOnce(bool, &mut Screen) -> String) {
    let mut screen = OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = io::stdout().lock();
    let text = text(out.is_terminal(), &mut screen);
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// A terminal.
struct Screen {
    /// The lines of a block that nothing was written below.
    drawn: usize,
}

impl Screen {
    /// What draws a block over the one before. Lines that are too long are cut, because a line that
    /// takes two on the screen would not be counted.
    fn over(&mut self, block: &str) -> String {
        const NO_WRAP: &str = "\x1b[?7l";
        const WRAP: &str = "\x1b[?7h";
        let up = match self.drawn {
            0 => String::new(),
            // To the first line of it, and nothing below.
            lines => format!("\x1b[{lines}A\x1b[J"),
        };
        self.drawn = block.lines().count() + 1;
        format!("{up}{NO_WRAP}{block}\n\n{WRAP}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_drawn_over_the_one_before() {
        let mut screen = Screen { drawn: 0 };
        let first = screen.over("a\nb");
        assert!(
            first.ends_with("a\nb\n\n\x1b[?7h") && !first.contains('A'),
            "{first:?}"
        );
        let second = screen.over("c");
        assert!(second.starts_with("\x1b[3A\x1b[J"), "{second:?}");
        assert!(screen.over("d").starts_with("\x1b[2A"));
    }
}
