//! JSON on one line with a space after `:` and `,`: as people and small models are used to see it.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

pub(crate) fn spaced(value: &Value) -> String {
    let mut line = Vec::new();
    // Neither writing to a Vec nor a Value can fail, and JSON is UTF-8.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut line, Spaced));
    String::from_utf8(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_keep_their_order() {
        let value = json!({"tool": "x", "arguments": {"path": "a\n\"b\"", "mode": 1}, "list": [1, [true, {"k": null}], {}, []]});
        let line =
            r#"{"tool": "x", "arguments": {"path": "a\n\"b\"", "mode": 1}, "list": [1, [true, {"k": null}], {}, []]}"#;
        assert_eq!(spaced(&value), line);
    }
}
