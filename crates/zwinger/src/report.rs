//! The file that `--report` names. One that the command could write is written when nothing of it runs any more, in place of
//! whatever is there by then.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use zwinger_core::sandbox::{Confinement, Root};

use crate::create_file;

pub(crate) enum Report {
    /// Out of the command's reach, and open.
    Open(File),
    /// A name in a directory that the command can write. The handle stays that of this directory, wherever it is moved.
    Within(Root, OsString),
}

impl Report {
    /// Fails now where it would fail when the command has run.
    pub(crate) fn prepare(path: &Path, confinement: &Confinement) -> anyhow::Result<Self> {
        let named = |error: std::io::Error| anyhow::anyhow!("--report {}: {error}", path.display());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let root = Root::open_ambient(parent).map_err(named)?;
        let real = root.path().map_err(named)?;
        match path.file_name().filter(|_| confinement.writable().any(|writable| real.starts_with(writable))) {
            None => Ok(Self::Open(create_file(path).map_err(|error| anyhow::anyhow!("--report {error}"))?)),
            Some(name) => {
                root.check_writable().map_err(named)?;
                if path.is_dir() && !path.is_symlink() {
                    return Err(named(std::io::ErrorKind::IsADirectory.into()));
                }
                Ok(Self::Within(root, name.to_owned()))
            }
        }
    }

    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Open(mut file) => Ok(file.write_all(text.as_bytes())?),
            Self::Within(root, name) => {
                let replaced = root.replace(Path::new(&name), text.as_bytes());
                replaced.map_err(|error| anyhow::anyhow!("--report {}: {error}", name.to_string_lossy()))
            }
        }
    }
}
