//! The scripts. Each is one atomic step.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::answer::Failure;
use crate::link::Link;
use crate::script::Script;

/// Acks free memory, so a server without free memory must take them.
const HEAD: &str = "#!lua flags=allow-oom\n";
const STANDING: &str = include_str!("lua/standing.lua");
const COMMON: &str = include_str!("lua/common.lua");

macro_rules! scripts {
    ($($name:ident: $($part:expr),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[$($part),+]));)*
    };
}

scripts! {
    TAKE: HEAD, STANDING, COMMON, include_str!("lua/take.lua");
    PAGE: HEAD, STANDING, COMMON, include_str!("lua/page.lua");
    TELL: HEAD, STANDING, COMMON, include_str!("lua/tell.lua");
    LETTER: HEAD, STANDING, COMMON, include_str!("lua/letter.lua");
    TRIM: HEAD, STANDING, COMMON, include_str!("lua/trim.lua");
    LEAVE: HEAD, STANDING, COMMON, include_str!("lua/leave.lua");
    CHECK: HEAD, STANDING, include_str!("lua/check.lua");
    CHECKED: HEAD, STANDING, include_str!("lua/checked.lua");
    LAG: HEAD, STANDING, COMMON, include_str!("lua/lag.lua");
    JOIN: HEAD, include_str!("lua/join.lua");
    // These add data: the server refuses them without free memory.
    PUSH: include_str!("lua/push.lua");
    REDRIVE: include_str!("lua/redrive.lua");
}

/// Runs a script. Repeating it does no harm: each checks the current state.
pub(super) async fn run(
    script: &Script,
    link: &Link,
    arguments: impl Fn(&mut Cmd),
) -> Result<Value, Failure> {
    let answer: Result<Value, Failure> = script.run(link, arguments).await;
    answer.map_err(|failure| match link.is_cluster() {
        false => failure,
        true => failure.in_cluster(),
    })
}
