//! The terminal, while the program has it.

use std::{io, thread};

use ratatui::DefaultTerminal;

use super::state::State;
use super::view;

/// The whole screen of the terminal. When it is dropped, or the program panics, the terminal is as
/// it was before.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        // It also sets a hook, so that the text of a panic is not lost with the screen.
        let opened = ratatui::try_init().inspect_err(|_| ratatui::restore());
        Ok(Self(opened?))
    }

    pub(super) fn draw(&mut self, state: &State) -> io::Result<()> {
        self.0.draw(|frame| view::draw(frame, state))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The hook has done it, and has written its text behind it.
        if !thread::panicking() {
            ratatui::restore();
        }
        // If this fails, the terminal is gone.
        let _ = self.0.show_cursor();
    }
}
