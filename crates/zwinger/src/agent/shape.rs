//! Schemas and arguments in the order in which a model is shown them.

use serde_json::{Map, Value};

use super::ToolSpec;
use crate::model::Ordered;

/// The required parameters, most important first.
pub(super) fn required(tool: &ToolSpec) -> Vec<&str> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    required.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// The schema of a tool's arguments, its properties in order: required ones first.
pub(super) fn parameters(tool: &ToolSpec) -> Ordered {
    schema(tool, |_| true)
}

/// As [`parameters`], but only what is required or stands in the example: a small model fills in whatever is offered.
pub(super) fn shown_parameters(tool: &ToolSpec) -> Ordered {
    let required = required(tool);
    schema(tool, |name| required.contains(&name) || tool.example.arguments.get(name).is_some())
}

fn schema(tool: &ToolSpec, offered: impl Fn(&str) -> bool) -> Ordered {
    let mut properties = tool.parameters.get("properties").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(properties) = properties.as_object_mut() {
        properties.retain(|name, _| offered(name));
    }
    Ordered::object([
        ("type", "object".into()),
        ("properties", Ordered::sorted_by(&properties, &required(tool))),
        ("required", Ordered::List(required(tool).into_iter().map(Ordered::from).collect())),
        ("additionalProperties", false.into()),
    ])
}

/// The arguments of a tool's example.
pub(super) fn arguments(tool: &ToolSpec) -> Ordered {
    Ordered::sorted_by(&tool.example.arguments, &required(tool))
}
