//! Texts from outside as messages show them: on one line, and not the whole of a long one.

/// Characters of a text that a message shows.
const SHOWN: usize = 100;

/// `text` for a message: at most a hundred characters of it, blanks in the place of control characters.
pub fn shown(text: &str) -> String {
    shown_around(text, 0)
}

/// The part of `text` around byte `at`, with `...` where something is left out.
pub fn shown_around(text: &str, at: usize) -> String {
    let count = text.chars().count();
    let focus = text.char_indices().take_while(|(start, _)| *start < at).count();
    let first = if count <= SHOWN { 0 } else { focus.saturating_sub(SHOWN / 2).min(count - SHOWN) };
    let part: String = text.chars().skip(first).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (before, after) = (if first > 0 { "..." } else { "" }, if first + SHOWN < count { "..." } else { "" });
    format!("{before}{part}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shown_around_the_trouble_and_on_one_line() {
        assert_eq!(shown("a\n== 1"), "a == 1");
        assert_eq!(shown(&"é".repeat(100)), "é".repeat(100));
        assert_eq!(shown(&"é".repeat(101)), "é".repeat(100) + "...");
        let long = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        let around = shown_around(&long, 500);
        assert!(around.starts_with("...a") && around.ends_with("b...") && around.contains("a!b"), "{around}");
        assert_eq!(around.chars().count(), 106);
        let end = shown_around(&long, 5000);
        assert_eq!(end, format!("...{}", "b".repeat(100)));
    }
}
