//! Text of others, made visible: nothing that a model writes can hide from a person or move a terminal's cursor.

use std::fmt::Write;

/// Every character that does not show itself as an escape: controls (tab and newline too, unless in [`block`]), bidirectional
/// and zero-width marks, tags, variation selectors, separators, private use.
pub fn line(text: &str) -> String {
    escape(text, |_| false)
}

/// As [`line()`], but newlines and tabs stay: for diffs and file content.
pub fn block(text: &str) -> String {
    escape(text, |character| matches!(character, '\n' | '\t'))
}

/// As [`line()`], for JSON that stays the same JSON: such a character can only stand in a string there.
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Between the values.
            '\n' => shown.push(character),
            _ if hides(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// As one word for a shell, of bytes; what [`line()`] would escape stands as an octal escape in `$'…'` (POSIX.1-2024, bash, zsh).
pub fn word(bytes: &[u8]) -> String {
    let plain = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(hides));
    if let Some(text) = plain {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = "$'".to_owned();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => word.extend(['\\', character]),
                _ if hides(character) => octal(&mut word, character.encode_utf8(&mut [0; 4]).as_bytes()),
                _ => word.push(character),
            }
        }
        octal(&mut word, chunk.invalid());
    }
    word.push('\'');
    word
}

fn octal(word: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(word, "\\{byte:03o}");
    }
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if stays(character) => shown.push(character),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            '\u{1b}' => shown.push_str("\\e"),
            _ if hides(character) => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// Unicode general categories Cc, Cf, Zl, Zp, Co and the default-ignorable marks, as ranges.
fn hides(character: char) -> bool {
    character.is_control()
        || matches!(u32::from(character),
            0xAD | 0x34F | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890..=0x891 | 0x8E2 | 0x115F..=0x1160 | 0x17B4..=0x17B5
            | 0x180B..=0x180F | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F
            | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB | 0xE000..=0xF8FF | 0x110BD | 0x110CD | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3
            | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF | 0xF0000..=0x10_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        assert_eq!(word(b"/a b/c"), "'/a b/c'");
        assert_eq!(word(b"it's"), r"'it'\''s'");
        assert_eq!(word(b"a\n'\\\xff\xe2\x80\xaeb"), r"$'a\012\'\\\377\342\200\256b'");
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"a\u{9b}b": ["\u{e0041}\u{202e}\u{7f}\u{1b}\n\t", 1.5, "grün 🦀"]});
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = json(&text);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
            assert!(!shown.chars().any(|character| character != '\n' && hides(character)), "{shown:?}");
            assert!(shown.contains("grün 🦀"));
        }
    }

    #[test]
    fn f04_hidden_characters_are_visible() {
        for hidden in
            ['\u{200b}', '\u{202e}', '\u{2028}', '\u{e0041}', '\u{e0100}', '\u{feff}', '\u{ad}', '\u{7}', '\u{9b}']
        {
            let shown = line(&format!("a{hidden}b"));
            assert!(shown.starts_with("a\\u{") && shown.ends_with("}b"), "{shown:?}");
        }
        assert_eq!(line("rm\x1b[2K\r\nls"), "rm\\e[2K\\r\\nls");
        assert_eq!(block("a\n\tb\r"), "a\n\tb\\r");
        assert_eq!(line("grün 🦀 名"), "grün 🦀 名");
    }
}
