//! Text that came from outside, made fit to be shown.

/// The text with its control characters escaped, as a terminal or a log may show it.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_direction_override(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The escaped text between quotation marks, cut after 200 characters.
pub fn quoted(text: &str) -> String {
    let mut cut: String = text.chars().take(200).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("\"{}\"", escaped(&cut))
}

/// Characters that make a terminal show the following text in another order than it is written.
fn is_direction_override(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
