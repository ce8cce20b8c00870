//! `zwinger session`: the sessions that are kept for a workspace.

use std::process::ExitCode;

use zwinger_core::escape;
use zwinger_core::gate::{Grant, GrantedCommand};
use zwinger_core::session::{Granted, Listed, Reference, Sessions, State, Stored, StoredError};

use crate::args::{Session, SessionCommand};
use crate::{BROKEN, answer, complain};

pub(crate) fn run(arguments: &Session) -> ExitCode {
    match attempt(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<StoredError>() => {
            complain(&error);
            1.into()
        }
        Err(error) => {
            complain(&error);
            BROKEN.into()
        }
    }
}

fn attempt(arguments: &Session) -> anyhow::Result<()> {
    let confinement = arguments.workspace.confinement()?;
    let sessions = Sessions::existing(&State::default_path()?, confinement.workspace())?;
    match &arguments.command {
        SessionCommand::List => {
            let listed = sessions.map(|sessions| sessions.list()).transpose()?.unwrap_or_default();
            for session in &listed {
                answer(&line(session))?;
            }
        }
        SessionCommand::Show { id: reference } => {
            let sessions = sessions.ok_or_else(|| missing(reference))?;
            let id = sessions.named(reference)?;
            let found = sessions.list()?.into_iter().find(|session| session.id == id);
            let session = found.ok_or(StoredError::Missing(id))?;
            answer(&page(&session.stored?, session.is_in_use))?;
        }
        SessionCommand::Delete { id: reference } => {
            let sessions = sessions.ok_or_else(|| missing(reference))?;
            let id = sessions.named(reference)?;
            sessions.delete(&id)?;
            if *reference == Reference::Last {
                crate::tell(&format!("removed session {id}"));
            }
        }
    }
    Ok(())
}

/// Where there are none at all.
fn missing(reference: &Reference) -> StoredError {
    match reference {
        Reference::Last => StoredError::None,
        Reference::Id(id) => StoredError::Missing(id.clone()),
    }
}

fn line(session: &Listed) -> String {
    let Listed { id, stored, is_in_use, .. } = session;
    match stored {
        Ok(stored) => {
            let Stored { door, mode, granted, last_used, .. } = stored;
            let state = if *is_in_use { "in use" } else { "" };
            let grants: usize = granted.iter().map(|granted| granted.grants.len()).sum();
            let line = format!("{id}  {last_used}  {door}  {mode}  {grants} grants  {state}");
            escape::line(line.trim_end())
        }
        Err(error) => escape::line(&error.to_string()),
    }
}

fn page(stored: &Stored, is_in_use: bool) -> String {
    let Stored { id, workspace, door, mode, granted, pid, started, last_used, .. } = stored;
    let process = if is_in_use { format!("{pid}, in use") } else { format!("{pid}, ended") };
    let mut page = String::new();
    for (name, value) in [
        ("session", id.as_ref()),
        ("workspace", workspace),
        ("door", door),
        ("mode", &mode.to_string()),
        ("started", started),
        ("last used", last_used),
        ("process", &process),
    ] {
        page.push_str(&format!("{name:<10} {}\n", escape::line(value)));
    }
    for Granted { under, grants } in granted {
        page.push_str(&format!("{:<10} {under}\n", "under"));
        for grant in grants {
            page.push_str(&format!("{:<10} {}\n", "grant", said(grant)));
        }
    }
    page.truncate(page.trim_end().len());
    page
}

fn said(grant: &Grant) -> String {
    match grant {
        Grant::File(path) => format!("write {path}"),
        Grant::Command(GrantedCommand { command, directory, read_only, background, seconds }) => {
            let kind = if *read_only { ", which cannot write" } else { "" };
            let background = if *background { ", in the background" } else { "" };
            let end = match *seconds {
                GrantedCommand::ENDLESS => "until the session ends".to_owned(),
                seconds => format!("at most {seconds} s"),
            };
            format!("run {} in {directory}{kind}{background}, {end}", escape::line(command))
        }
    }
}
