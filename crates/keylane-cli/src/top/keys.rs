//! What the keys do. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Page, Search, State, Want};

/// Lines of a jump.
const JUMP: isize = 10;

/// Most characters of a key that is typed.
const MOST_TYPED: usize = 10_000;

pub(super) fn press(state: &mut State, key: KeyEvent) -> Want {
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if has_control && matches!(key.code, KeyCode::Char('c')) {
        return Want::Quit;
    }
    if state.typed.is_some() {
        return write(state, key.code);
    }
    if state.shows_help {
        // Any key closes it, and does nothing else; `q` still quits.
        state.shows_help = false;
        return match key.code {
            KeyCode::Char('q') => Want::Quit,
            _ => Want::Nothing,
        };
    }
    match key.code {
        KeyCode::Char('q') => return Want::Quit,
        KeyCode::Char('?') => state.shows_help = true,
        KeyCode::Char('1') => turn(state, Page::Overview),
        KeyCode::Char('2') => turn(state, Page::Lanes),
        KeyCode::Char('3') => turn(state, Page::Sources),
        KeyCode::Tab => {
            let next = state.page.next();
            turn(state, next);
        }
        KeyCode::Char('d') => state.next_dispatcher(),
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Char('/') => {
            turn(state, Page::Lanes);
            state.typed = Some(String::new());
        }
        KeyCode::Esc => state.search = None,
        KeyCode::Up | KeyCode::Char('k') => state.go(-1),
        KeyCode::Down | KeyCode::Char('j') => state.go(1),
        KeyCode::PageUp => state.go(-JUMP),
        KeyCode::PageDown => state.go(JUMP),
        KeyCode::Home => state.go(isize::MIN / 2),
        _ => {}
    }
    Want::Nothing
}

fn turn(state: &mut State, page: Page) {
    state.page = page;
    state.scrolled = 0;
}

/// The search takes all keys until it is sent or given up.
fn write(state: &mut State, key: KeyCode) -> Want {
    let Some(typed) = &mut state.typed else {
        return Want::Nothing;
    };
    match key {
        KeyCode::Char(character) if typed.len() < MOST_TYPED => typed.push(character),
        KeyCode::Backspace => _ = typed.pop(),
        KeyCode::Esc => state.typed = None,
        KeyCode::Enter => {
            let key = state.typed.take().unwrap_or_default();
            state.search = Some(Search {
                key: key.clone(),
                found: None,
            });
            return state.find(key);
        }
        _ => {}
    }
    Want::Nothing
}
