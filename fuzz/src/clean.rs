//! What may be shown to a person.

/// A token that the dictionaries know, so that it turns up in the wrong places.
pub const TOKEN: &str = "rh_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp";

/// What must not be shown of it: with less than this, nobody can guess what is missing.
const TELLING: usize = 20;

/// A text that says what is wrong with what was given.
///
/// # Panics
/// Where the text would confuse a terminal, or gives [`TOKEN`] away.
pub fn assert_clean(text: &str, given: &str) {
    let reorders = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(|c: char| c.is_control() || reorders(c)), "control characters are shown: {text:?}");
    // What only resembles a token is shown: somebody must find their mistake.
    let telling = &TOKEN[..TELLING];
    let resembles = given.replace(TOKEN, "…").contains(telling);
    assert!(resembles || !text.contains(telling), "a token is shown: {text:?}");
}
