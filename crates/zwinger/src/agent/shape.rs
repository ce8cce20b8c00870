//! Schemas and arguments in the order in which a model is shown them.

use serde_json::Value;

use super::ToolSpec;
use crate::model::Ordered;

/// The required parameters, most important first.
pub(super) fn required(tool: &ToolSpec) -> Vec<&str> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    required.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// The schema of a tool's arguments, its properties in order: required ones first.
pub(super) fn parameters(tool: &ToolSpec) -> Ordered {
    let properties = tool.parameters.get("properties").unwrap_or(&Value::Null);
    Ordered::object([
        ("type", "object".into()),
        (
            "properties",
            if properties.is_object() {
                Ordered::sorted_by(properties, &required(tool))
            } else {
                Ordered::Object(Vec::new())
            },
        ),
        ("required", Ordered::List(required(tool).into_iter().map(Ordered::from).collect())),
        ("additionalProperties", false.into()),
    ])
}

/// The arguments of a tool's example.
pub(super) fn arguments(tool: &ToolSpec) -> Ordered {
    Ordered::sorted_by(&tool.example.arguments, &required(tool))
}
