//! The schemas of tools as models are shown them.

use serde_json::{Value, json};

use super::ToolSpec;

/// The required parameters, most important first.
pub(super) fn required(tool: &ToolSpec) -> Vec<&str> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    required.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// The schema of a tool's arguments, but only what is required or stands in the example: a small model fills in whatever it
/// is offered.
pub(super) fn shown_parameters(tool: &ToolSpec) -> Value {
    let required = required(tool);
    let mut properties = tool.parameters.get("properties").cloned().unwrap_or_else(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.retain(|name, _| required.contains(&name.as_str()) || tool.example.arguments.get(name).is_some());
    }
    object(&properties, &required)
}

/// An object that has no other keys than these.
pub(super) fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
