//! JSON whose objects keep the order of their keys.
//!
//! Order matters to a model and to grammars made from a schema (`"tool"` has to come before `"arguments"`), while
//! `serde_json::Value` sorts keys.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Value;

/// A JSON value. [`Display`] writes it on one line with a space after `:` and `,`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ordered {
    /// Any value whose inner order does not matter.
    Value(Value),
    /// An array.
    List(Vec<Ordered>),
    /// An object.
    Object(Vec<(String, Ordered)>),
}

impl Ordered {
    /// An object with these keys in this order.
    pub(crate) fn object<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The entries of an object, the keys of `first` in their order, then the others.
    pub(crate) fn sorted_by(object: &Value, first: &[&str]) -> Self {
        let Some(object) = object.as_object() else { return Self::Value(object.clone()) };
        let named = first.iter().filter_map(|key| object.get_key_value(*key));
        let others = object.iter().filter(|(key, _)| !first.contains(&key.as_str()));
        Self::Object(named.chain(others).map(|(key, value)| (key.clone(), Self::Value(value.clone()))).collect())
    }
}

impl<T: Into<Value>> From<T> for Ordered {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl Display for Ordered {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(Value::Array(items)) => list(formatter, items.iter().map(|item| Self::from(item.clone()))),
            Self::Value(Value::Object(entries)) => {
                object(formatter, entries.iter().map(|(key, value)| (key, Self::from(value.clone()))))
            }
            Self::Value(value) => write!(formatter, "{value}"),
            Self::List(items) => list(formatter, items),
            Self::Object(entries) => object(formatter, entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

fn list(formatter: &mut Formatter<'_>, items: impl IntoIterator<Item = impl Display>) -> fmt::Result {
    formatter.write_str("[")?;
    for (index, item) in items.into_iter().enumerate() {
        write!(formatter, "{}{item}", if index == 0 { "" } else { ", " })?;
    }
    formatter.write_str("]")
}

fn object<'a>(
    formatter: &mut Formatter<'_>,
    entries: impl IntoIterator<Item = (&'a String, impl Display)>,
) -> fmt::Result {
    formatter.write_str("{")?;
    for (index, (key, value)) in entries.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(formatter, "{comma}{}: {value}", Value::from(key.as_str()))?;
    }
    formatter.write_str("}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_the_order_of_keys_on_the_wire_and_on_the_line() {
        let value = Ordered::object([
            ("tool", "write_file".into()),
            (
                "arguments",
                Ordered::sorted_by(&json!({"content": "a\n\"b\"", "mode": 1, "path": "x"}), &["path", "content"]),
            ),
            ("list", Ordered::List(vec![1.into(), json!([true, {"k": null}]).into()])),
        ]);
        let line = r#"{"tool": "write_file", "arguments": {"path": "x", "content": "a\n\"b\"", "mode": 1}, "list": [1, [true, {"k": null}]]}"#;
        assert_eq!(value.to_string(), line);
        let wire = serde_json::to_string(&value).unwrap();
        assert!(wire.starts_with(r#"{"tool":"write_file","arguments":{"path":"x","content":"#), "{wire}");
    }

    #[test]
    fn empty_ones_are_closed() {
        for value in [json!({}), json!([]), json!("")] {
            assert_eq!(Ordered::from(value.clone()).to_string(), value.to_string());
        }
        assert_eq!(Ordered::List(Vec::new()).to_string(), "[]");
    }
}
