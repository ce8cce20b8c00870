//! What stands in a record, each part of it bounded: docs/audit.md has the table.

use serde_json::{Map, Value, json};

use super::hash;
use crate::action::{Action, Edited};

/// Bytes of one part of a record, as JSON. What is longer is described by its length, hash and first characters.
const MAX_PART: usize = 6 << 10;
/// Characters of a text that is described.
const HEAD: usize = 200;

/// The value, or what describes it.
pub(super) fn bounded(value: Value) -> Value {
    let json = value.to_string();
    if json.len() <= MAX_PART {
        return value;
    }
    if let Value::Object(parts) = value {
        let parts = Value::Object(parts.into_iter().map(|(name, part)| (name, bounded(part))).collect());
        return if parts.to_string().len() <= MAX_PART { parts } else { digest(&json) };
    }
    digest(value.as_str().unwrap_or(&json))
}

/// A long text, or the JSON of what is no text.
fn digest(text: &str) -> Value {
    let head: String = text.chars().take(HEAD).collect();
    json!({"bytes": text.len(), "blake3": hash(text.as_bytes()), "head": head})
}

/// The fields of a record, bounded; what is null is left out.
pub(super) fn fields(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name, bounded(value))).collect()
}

/// Arguments of which nothing is known, so that content may be among them.
pub(super) fn described(arguments: &Value) -> Value {
    let arguments = arguments.to_string();
    json!({"bytes": arguments.len(), "blake3": hash(arguments.as_bytes())})
}

/// What an action is about, without content: that has its hash and length.
pub(super) fn arguments(action: &Action) -> Value {
    match action {
        Action::Read { path, offset, limit, numbers } => {
            json!({"path": path.to_string(), "offset": offset, "limit": limit, "numbers": numbers})
        }
        Action::List { path, depth } => json!({"path": path.to_string(), "depth": depth}),
        Action::Write { path, content, .. } => {
            json!({"path": path.to_string(), "bytes": content.len(), "blake3": hash(content.as_bytes())})
        }
        Action::Edit { path, edited, .. } => {
            let content = edited.content.as_bytes();
            json!({"path": path.to_string(), "bytes": content.len(), "blake3": hash(content), "places": edited.places})
        }
        Action::Run { command, timeout, directory, read_only, background } => json!({
            "command": command,
            "timeout_seconds": timeout.map(|timeout| timeout.as_secs()),
            "cwd": directory.to_string(),
            "read_only": read_only,
            "background": background,
        }),
        Action::JobOutput { job } | Action::JobStop { job } => json!({"job": job}),
        Action::Custom { arguments, .. } => described(arguments),
        Action::Time => json!({}),
    }
}

/// Hashes of the file that an action replaces, as it is and as it is to be.
pub(super) fn hashes(action: &Action) -> (Option<String>, Option<String>) {
    match action {
        Action::Write { content, before, .. } | Action::Edit { edited: Edited { content, before, .. }, .. } => {
            let before = before.as_ref().map(|before| blake3::Hash::from(before.hash).to_hex().to_string());
            (before, Some(hash(content.as_bytes())))
        }
        Action::Read { .. }
        | Action::List { .. }
        | Action::Run { .. }
        | Action::JobOutput { .. }
        | Action::JobStop { .. }
        | Action::Custom { .. }
        | Action::Time => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_longer_than_its_part() {
        let short = json!({"command": "ls\n\u{1b}", "timeout_seconds": 60});
        assert_eq!(bounded(short.clone()), short);
        let text = "\u{1}".repeat(200_000);
        let described = bounded(json!({"command": text, "timeout_seconds": 60}));
        assert_eq!(described["command"]["bytes"], 200_000);
        assert_eq!(
            (&described["command"]["blake3"], &described["timeout_seconds"]),
            (&json!(hash(text.as_bytes())), &json!(60))
        );
        let many: Map<String, Value> = (0..10_000).map(|number| (number.to_string(), json!(1))).collect();
        for value in [json!(text), described, json!([text, 1]), json!({text.clone(): text}), many.into()] {
            assert!(bounded(value).to_string().len() <= MAX_PART);
        }
    }
}
