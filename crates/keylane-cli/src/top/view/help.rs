//! The keys.

use ratatui::text::Line;

const HELP: &str = "
 1 2 3, tab     overview, lanes, sources
 ↑ ↓, j k       the next lane; other pages scroll
 page up, down  ten lines; home: the first one
 s              sorts the lanes by age, depth, busy time, state, key
 d              the lanes of the next dispatcher
 /              searches a key: its lane is shown, in the list or not
 esc            forgets the search
 q, ctrl-c      quits

 depth    accepted messages of the key that have not settled; * the lane is full
 age      of the oldest of them
 busy     the time of its handlers in the last minutes
 reason   the last error, or what ends the state

 The list has the lanes that are worst by age, by depth and by busy time, and
 those that fail, are halted or are paused; not all lanes.";

pub(super) fn lines() -> Vec<Line<'static>> {
    HELP.lines().map(Line::raw).collect()
}
