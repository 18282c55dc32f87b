//! The styles.

use ratatui::style::{Color, Style};

/// What needs an operator.
pub(super) const ALARM: Style = Style::new().fg(Color::Red);

/// What is good to know.
pub(super) const NOTE: Style = Style::new().fg(Color::DarkGray);
