//! The scripts: each is one step that happens as a whole.

use std::sync::LazyLock;

use crate::script::Script;

/// Acks free memory. A server that is full must take them.
const HEAD: &str = "#!lua flags=allow-oom\n";
const COMMON: &str = include_str!("lua/common.lua");

macro_rules! scripts {
    ($($name:ident: $($part:expr),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[HEAD, $($part),+]));)*
    };
}

scripts! {
    TAKE: COMMON, include_str!("lua/take.lua");
    PAGE: COMMON, include_str!("lua/page.lua");
    TELL: COMMON, include_str!("lua/tell.lua");
    LETTER: COMMON, include_str!("lua/letter.lua");
    TRIM: COMMON, include_str!("lua/trim.lua");
    LEAVE: COMMON, include_str!("lua/leave.lua");
    JOIN: include_str!("lua/join.lua");
}
