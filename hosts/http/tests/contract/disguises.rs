//! What secrets look like in the wrong places.

/// A part of a secret this long is a leak too.
const PART: usize = 12;

/// What a secret could be disguised as, by parts: a text that was cut short is one too.
pub(crate) fn forms(secret: &str) -> Vec<(&'static str, String)> {
    // The prefix is no secret.
    let secret = secret.strip_prefix("rh_").unwrap_or(secret).as_bytes();
    let mut forms = Vec::new();
    for part in secret.windows(PART) {
        let each =
            |write: &dyn Fn(&u8) -> String, between: &str| part.iter().map(write).collect::<Vec<_>>().join(between);
        forms.push(("itself", each(&|byte| char::from(*byte).to_string(), "")));
        forms.push(("in hexadecimal", each(&|byte| format!("{byte:02x}"), "")));
        forms.push(("in a URL's encoding", each(&|byte| format!("%{byte:02x}"), "")));
        forms.push(("as escapes", each(&|byte| format!("\\u00{byte:02x}"), "")));
        forms.push(("as numbers", each(&u8::to_string, ", ")));
        forms.push(("as numbers", each(&u8::to_string, ",")));
        forms.push(("backwards", part.iter().rev().map(|byte| char::from(*byte)).collect()));
        forms.push(("base64", base64_inside(part)));
    }
    forms
}

/// The base64 text of the bytes wherever they stand in threes of a longer one; windows of a secret begin at every byte,
/// so that one of three of them is aligned. Letters and digits encode without the characters that alphabets differ in.
fn base64_inside(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks_exact(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        text.extend([18, 12, 6, 0].map(|shift| char::from(ALPHABET[(bits >> shift & 63) as usize])));
    }
    text
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let secret = "rh_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let finds = |text: &str| forms(secret).iter().any(|(_, needle)| text.contains(needle.as_str()));
    for shown in [
        "token=rh_0123456789ABCDEFGHI…",
        "Y29uc3RydWN0OnJoXzAxMjM0NTY3ODlBQkNERUZHSElK",
        "eHJoXzAxMjM0NTY3ODlBQkNERUZHSElK",
        "cmhfMDEyMzQ1Njc4OUFCQ0RFRkdISUo",
        "[114, 104, 95, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 65, 66]",
        "3031323334353637383941424344",
        "NMLKJIHGFEDCBA987",
    ] {
        assert!(finds(shown), "{shown}");
    }
    assert!(!finds("rh_… 0123 4567 89AB"));
}
