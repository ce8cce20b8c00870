//! Four ways in which a call does not succeed, for two readers: the model gets one line that says what to do next, the person
//! cause and remedy.

/// No action came of the call; nobody was asked. The model can mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The arguments are wrong.
    #[error("{0}")]
    Arguments(String),
    /// The path leads outside, or nothing can be done there.
    #[error("{0}")]
    Path(String),
}

/// The policy or a person said no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Denied(pub String);

/// The tool ran and did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Something of ours broke; nothing was permitted because of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);
