//! Tools that an embedder brings: judged, asked about and recorded as the others, and done by the embedder's own code on the host.

use std::path::Path;

use serde_json::Value;
use zwinger_sandbox::Capture;

use crate::action::{Action, Effect};
use crate::error::{Failed, Invalid};
use crate::executor::During;
use crate::{escape, tools};

/// Bytes of a result, as of a command's output.
pub const MOST: usize = 1 << 20;

/// A tool of the program that embeds the library. What it does is behind no wall: what it says of its effects is what the
/// policy judges.
pub trait CustomTool: Send + Sync {
    /// Its name, which no built-in tool has by name or alias.
    fn name(&self) -> &'static str;

    /// What a call would do. `roots` are the names of the workspace, for [`WorkspacePath::parse`](crate::action::WorkspacePath::parse).
    /// A call without effects is denied.
    ///
    /// # Errors
    /// For the model: what is wrong with the arguments.
    fn effects(&self, arguments: &Value, roots: &[&Path]) -> Result<Vec<Effect>, Invalid>;

    /// Does it, with the very arguments that were judged and shown. Of the text that comes back, [`MOST`] bytes are kept.
    ///
    /// # Errors
    /// For the model, on one line: why it did not succeed.
    fn run(&self, arguments: &Value, during: During<'_>) -> Result<String, Failed>;
}

/// Those of one session.
#[derive(Default)]
pub(crate) struct CustomTools(Vec<Box<dyn CustomTool>>);

impl CustomTools {
    /// Whether its name was free.
    pub(crate) fn add(&mut self, tool: Box<dyn CustomTool>) -> bool {
        let is_free = tools::find(tool.name()).is_none() && self.find(tool.name()).is_none();
        if is_free {
            self.0.push(tool);
        }
        is_free
    }

    /// To an action, if it is one of these.
    pub(crate) fn decode(&self, name: &str, arguments: &Value, roots: &[&Path]) -> Option<Result<Action, Invalid>> {
        let tool = self.find(name)?;
        let action = |effects| Action::Custom { name: tool.name(), effects, arguments: arguments.clone() };
        Some(tool.effects(arguments, roots).map(action))
    }

    pub(crate) fn run(&self, name: &str, arguments: &Value, during: During<'_>) -> Result<String, Failed> {
        let tool = self.find(name).ok_or_else(|| Failed(format!("there is no tool {name}.")))?;
        if during.cancel.is_some_and(crate::Cancel::is_cancelled) {
            return Err(Failed("cancelled before it began.".into()));
        }
        let text = tool.run(arguments, during).map_err(|Failed(text)| Failed(escape::line(&text)))?;
        let mut kept = Capture::new(MOST);
        kept.push(text.as_bytes());
        Ok(String::from_utf8_lossy(&kept.finish().joined()).into_owned())
    }

    fn find(&self, name: &str) -> Option<&dyn CustomTool> {
        self.0.iter().map(|tool| &**tool).find(|tool| tool.name() == name)
    }
}
