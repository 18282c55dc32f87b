//! What the screen is made of, and how it changes. Pure.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::feed::{Frame, Lane, Lanes, Overview, Point};

/// Most looks that are kept for the rates.
const MOST_POINTS: usize = 16;

/// What comes from the console.
#[derive(Debug, Clone)]
pub(super) enum Update {
    Overview(Frame<Overview>),
    Lanes(Frame<Lanes>),
    /// There is no connection.
    Lost(String),
    /// The lane of a key, or why it was not found.
    Found(String, Result<Box<Lane>, String>),
}

/// What is asked for in return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    Nothing,
    Quit,
    /// The lane of a key.
    Find {
        dispatcher: String,
        key: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Overview,
    Lanes,
    Sources,
}

impl Page {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::Overview, "overview"),
        (Self::Lanes, "lanes"),
        (Self::Sources, "sources"),
    ];

    pub(super) fn next(self) -> Self {
        match self {
            Self::Overview => Self::Lanes,
            Self::Lanes => Self::Sources,
            Self::Sources => Self::Overview,
        }
    }
}

/// What stands at the top of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Age,
    Depth,
    Busy,
    State,
    Key,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Age => Self::Depth,
            Self::Depth => Self::Busy,
            Self::Busy => Self::State,
            Self::State => Self::Key,
            Self::Key => Self::Age,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Depth => "depth",
            Self::Busy => "busy time",
            Self::State => "state",
            Self::Key => "key",
        }
    }

    fn apply(self, lanes: &mut [&Lane]) {
        match self {
            Self::Age => lanes.sort_by_key(|lane| Reverse(lane.age_ms)),
            Self::Depth => lanes.sort_by_key(|lane| Reverse(lane.depth)),
            Self::Busy => lanes.sort_by_key(|lane| Reverse(lane.busy_ms)),
            Self::State => lanes.sort_by(|a, b| a.state.cmp(&b.state)),
            Self::Key => lanes.sort_by(|a, b| a.key.cmp(&b.key)),
        }
    }
}

/// The connection to the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing has come yet.
    Opening,
    Live,
    Lost(String),
}

/// A search, and what it has found.
#[derive(Debug, Clone)]
pub(super) struct Search {
    pub(super) key: String,
    pub(super) found: Option<Result<Box<Lane>, String>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) url: String,
    pub(super) link: Link,
    pub(super) page: Page,
    pub(super) shows_help: bool,
    pub(super) sort: Sort,
    /// The number of the dispatcher whose lanes are shown.
    pub(super) dispatcher: usize,
    pub(super) overview: Overview,
    pub(super) lanes: Lanes,
    /// What is typed behind `/`, while it is.
    pub(super) typed: Option<String>,
    pub(super) search: Option<Search>,
    /// The first line of a page of lines.
    pub(super) scrolled: usize,
    /// The lane with the cursor, by its id. Without one, the first.
    pub(super) cursor: Option<String>,
    /// Whether the service has started again since it was first seen.
    pub(super) has_restarted: bool,
    points: VecDeque<Point>,
    life: Option<String>,
}

impl State {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            link: Link::Opening,
            page: Page::Overview,
            shows_help: false,
            sort: Sort::Age,
            dispatcher: 0,
            overview: Overview::default(),
            lanes: Lanes::default(),
            typed: None,
            search: None,
            scrolled: 0,
            cursor: None,
            has_restarted: false,
            points: VecDeque::new(),
            life: None,
        }
    }

    /// Takes in what has come.
    pub(super) fn update(&mut self, update: Update) -> Want {
        match update {
            Update::Lost(why) => self.link = Link::Lost(why),
            Update::Overview(frame) => {
                self.live(&frame.life);
                self.points.extend(frame.points);
                let surplus = self.points.len().saturating_sub(MOST_POINTS);
                self.points.drain(..surplus);
                self.overview = frame.body;
            }
            Update::Lanes(frame) => {
                self.live(&frame.life);
                self.lanes = frame.body;
                // What was found may not be in the list: it is looked at again.
                if let Some(search) = &self.search {
                    return self.find(search.key.clone());
                }
            }
            Update::Found(key, found) => self.found(&key, found),
        }
        Want::Nothing
    }

    fn live(&mut self, life: &str) {
        self.link = Link::Live;
        match &self.life {
            Some(known) if known == life => return,
            Some(_) => self.has_restarted = true,
            None => {}
        }
        self.life = Some(life.to_owned());
        self.points.clear();
    }

    fn found(&mut self, key: &str, found: Result<Box<Lane>, String>) {
        // Another search may have begun.
        let Some(search) = self.search.as_mut().filter(|search| search.key == key) else {
            return;
        };
        if let (None, Ok(lane)) = (&search.found, &found) {
            self.cursor = Some(lane.id.clone());
        }
        search.found = Some(found);
    }

    pub(super) fn find(&self, key: String) -> Want {
        match self.dispatcher_name() {
            Some(dispatcher) => Want::Find { dispatcher, key },
            None => Want::Nothing,
        }
    }

    /// The dispatcher whose lanes are on the screen.
    pub(super) fn looks_at(&self) -> Option<String> {
        self.dispatcher_name().filter(|_| self.page == Page::Lanes)
    }

    pub(super) fn dispatcher_name(&self) -> Option<String> {
        let shown = self.overview.dispatchers.get(self.dispatcher);
        shown.map(|shown| shown.name.clone())
    }

    /// Shows the lanes of the next dispatcher.
    pub(super) fn next_dispatcher(&mut self) {
        let all = self.overview.dispatchers.len().max(1);
        self.dispatcher = (self.dispatcher + 1) % all;
        self.lanes = Lanes::default();
        self.search = None;
        self.cursor = None;
    }

    /// The lanes in the order of the screen: one that was found is there, in the list or not.
    pub(super) fn rows(&self) -> Vec<&Lane> {
        let mut rows: Vec<&Lane> = self.lanes.lanes.iter().collect();
        let found = self.search.as_ref().and_then(|it| it.found.as_ref());
        if let Some(Ok(found)) = found
            && rows.iter().all(|lane| lane.id != found.id)
        {
            rows.push(found);
        }
        self.sort.apply(&mut rows);
        rows
    }

    /// The place of the cursor in the rows.
    pub(super) fn cursor_in(&self, rows: &[&Lane]) -> usize {
        let cursor = self.cursor.as_ref();
        let at = cursor.and_then(|id| rows.iter().position(|lane| lane.id == *id));
        at.unwrap_or(0)
    }

    /// Moves the cursor, or scrolls.
    pub(super) fn go(&mut self, by: isize) {
        if self.page != Page::Lanes {
            // The screen knows how many lines there are, and shows the last ones at least.
            self.scrolled = self.scrolled.saturating_add_signed(by).min(9_999);
            return;
        }
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = self.cursor_in(&rows).saturating_add_signed(by).min(last);
        let cursor = rows.get(at).map(|lane| lane.id.clone());
        self.cursor = cursor;
    }

    /// Accepted, done and failed attempts per second, of a dispatcher, between the last two looks.
    pub(super) fn rates(&self, dispatcher: usize) -> [u64; 3] {
        let mut last = self.points.iter().rev();
        let (Some(to), Some(from)) = (last.next(), last.next()) else {
            return [0; 3];
        };
        let counts = |point: &Point| point.counts.get(dispatcher).copied();
        let (Some(new), Some(old)) = (counts(to), counts(from)) else {
            return [0; 3];
        };
        let ms = to.up_ms.saturating_sub(from.up_ms).max(1);
        std::array::from_fn(|kind| {
            let count = new[kind].saturating_sub(old[kind]);
            (count.saturating_mul(1_000) + ms / 2) / ms
        })
    }
}
