//! Tokens.

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::rule::Rule;

#[test]
fn i12_accepted_tokens_never_decrease() {
    let good = Planted::new()
        .write(1, 1, true)
        .write(1, 1, true)
        .write(1, 3, true);
    let good = good.write(1, 2, false).write(2, 1, true);
    good.holds(&Evidence::new(), Rule::Fencing);
    let bad = good.write(1, 2, true);
    bad.breaks(
        &Evidence::new(),
        Rule::Fencing,
        "token 2 was accepted after token 3",
        &[],
    );
    Planted::new().leaves_unjudged(&Evidence::new(), Rule::Fencing);
}
