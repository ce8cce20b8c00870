//! `zwinger audit`: what was called, who permitted it, and what came of it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};
use zwinger_core::audit::{AuditLog, Entry, Progress, Record};
use zwinger_core::escape;
use zwinger_core::session::State;

use crate::args::{Audit, AuditCommand};
use crate::{BROKEN, answer, complain};

/// How often `tail -f` looks for more.
const PAUSE: Duration = Duration::from_millis(200);
/// Characters of one part of a line for people.
const SHOWN: usize = 120;

pub(crate) fn run(arguments: &Audit) -> ExitCode {
    let done = match &arguments.command {
        AuditCommand::Tail { lines, follow, json } => tail(*lines, *follow, *json),
        AuditCommand::Show { id, session, json } => show(id.as_deref(), session.as_deref(), *json),
        AuditCommand::Verify => verify(),
    };
    done.unwrap_or_else(|error| {
        // A reader that has gone away has what it wanted.
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        complain(&error);
        BROKEN.into()
    })
}

fn open() -> anyhow::Result<Option<AuditLog>> {
    Ok(AuditLog::open(&State::default_path()?)?)
}

fn tail(count: usize, follow: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut offset = 0;
    if let Some(log) = open()? {
        let mut last = VecDeque::new();
        let (lines, end) = log.lines(0)?;
        for entry in lines {
            last.push_back(entry?);
            if last.len() > count {
                last.pop_front();
            }
        }
        print(last.make_contiguous(), json)?;
        offset = end;
    }
    if follow { go_on(offset, json) } else { Ok(ExitCode::SUCCESS) }
}

/// Prints what comes behind `offset`, until interrupted.
fn go_on(mut offset: u64, json: bool) -> anyhow::Result<ExitCode> {
    loop {
        std::thread::sleep(PAUSE);
        // Opened anew: it may have been made, or moved away.
        let Some(log) = open()? else { continue };
        let (lines, end) = log.lines(offset)?;
        print(&lines.collect::<Result<Vec<_>, _>>()?, json)?;
        offset = if end < offset { 0 } else { end };
    }
}

fn print(entries: &[Entry], json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for entry in entries {
        match json {
            // The same JSON, but what a terminal would obey, or not show, is spelled out.
            true => stdout.write_all(escape::json(&String::from_utf8_lossy(&entry.text)).as_bytes())?,
            false => stdout.write_all(line(entry).as_bytes())?,
        }
        stdout.write_all(b"\n")?;
    }
    stdout.flush()
}

fn show(id: Option<&str>, session: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let is_wanted = |first: &Entry| {
        id.is_none_or(|id| first.text_of("id").starts_with(id))
            && session.is_none_or(|session| first.text_of("session") == session)
    };
    let records = open()?.map(|log| log.records(is_wanted)).transpose()?.unwrap_or_default();
    if let (true, Some(wanted)) = (records.is_empty(), id.or(session)) {
        complain(&format_args!("there is no record of {}", escape::line(wanted)));
        return Ok(1.into());
    }
    if json {
        let mut entries: Vec<_> =
            records.into_iter().flat_map(|record| [Some(record.first), record.end]).flatten().collect();
        entries.sort_by_key(|entry| entry.line);
        print(&entries, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown: Vec<_> = match id {
        Some(_) => records.iter().map(page).collect(),
        None => records.iter().map(summary).collect(),
    };
    if !shown.is_empty() {
        answer(&shown.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify() -> anyhow::Result<ExitCode> {
    let Some(log) = open()? else {
        answer("there is no audit log yet")?;
        return Ok(ExitCode::SUCCESS);
    };
    let verified = log.verify()?;
    for line in &verified.torn {
        answer(&format!(
            "line {line}: cut; its writer was killed or the disk was full, and nothing was permitted by it"
        ))?;
    }
    for line in &verified.zeroed {
        answer(&format!(
            "line {line}: zeros; the machine stopped before what stood there was on the disk, and what that said is lost"
        ))?;
    }
    for record in &verified.open {
        answer(&summary(record))?;
    }
    match &verified.fault {
        Some(fault) => {
            answer(&format!("line {}: {}", fault.line, fault.why))?;
            Ok(1.into())
        }
        None => {
            let count = |wanted| verified.open.iter().filter(|record| record.progress() == wanted).count();
            let (interrupted, running) = (count(Progress::Interrupted), count(Progress::Running));
            answer(&format!("{} lines, complete · {interrupted} interrupted, {running} running", verified.lines))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A record in one line.
fn summary(record: &Record) -> String {
    let end = match (record.progress(), &record.end) {
        (_, Some(end)) => outcome(&end.fields),
        (Progress::Running, _) => format!("running (pid {})", plain(record.first.fields.get("pid"))),
        (Progress::Interrupted, _) => "interrupted".into(),
        (Progress::Over, None) => return line(&record.first),
    };
    format!("{}  {end}", line(&record.first))
}

/// A stored line in one line.
fn line(entry: &Entry) -> String {
    let fields = &entry.fields;
    if fields.is_empty() {
        return format!("line {}: no record: {}", entry.line, part(&String::from_utf8_lossy(&entry.text)));
    }
    let text = |name| part(entry.text_of(name));
    let time: String = entry.text_of("time").chars().take("2026-01-01T00:00:00".len()).collect();
    let head = format!("{}Z  {}  {}", part(&time), text("id"), text("door"));
    match entry.text_of("event") {
        "begin" => format!("{head}  {} {}  {}", text("tool"), what(fields), decision(entry)),
        "denied" => format!("{head}  {} {}  denied: {}", text("tool"), what(fields), decision(entry)),
        "invalid" => format!("{head}  {}  invalid: {}", plain(fields.get("tool")), plain(fields.get("error"))),
        "end" => format!("{head}  {}", outcome(fields)),
        "torn" => format!("{head}  the line before was cut"),
        other => format!("{head}  {}", part(other)),
    }
}

fn what(fields: &Map<String, Value>) -> String {
    let Some(Value::Object(arguments)) = fields.get("arguments") else { return plain(fields.get("arguments")) };
    match (arguments.get("path").or(arguments.get("command")), arguments.get("argv")) {
        (Some(what), _) => plain(Some(what)),
        // Described as a whole, because it was long.
        (None, Some(long)) if !long.is_array() => plain(Some(long)),
        (None, None) if arguments.contains_key("head") => plain(fields.get("arguments")),
        (None, Some(Value::Array(argv))) => {
            part(&argv.iter().map(|word| word.as_str().unwrap_or("…")).collect::<Vec<_>>().join(" "))
        }
        _ => String::new(),
    }
}

fn decision(entry: &Entry) -> String {
    let rule = entry.text_of("rule");
    let rule = rule.rsplit(": ").next().unwrap_or(rule);
    part(&format!("{} by {} ({rule})", entry.text_of("decision"), entry.text_of("by")))
}

fn outcome(fields: &Map<String, Value>) -> String {
    let took = format!("{} ms", plain(fields.get("duration_ms")));
    let reason = [fields.get("error"), fields.get("limit")].into_iter().flatten().next();
    match (fields.get("success"), fields.get("exit_code"), reason) {
        (Some(Value::Bool(true)), _, _) => format!("done · {took}"),
        (_, Some(exit), None) => format!("exit {} · {took}", plain(Some(exit))),
        (_, Some(exit), Some(reason)) => format!("exit {} · {} · {took}", plain(Some(exit)), plain(Some(reason))),
        (_, None, reason) => format!("failed: {} · {took}", plain(reason)),
    }
}

/// All that a record says, a field a line.
fn page(record: &Record) -> String {
    let mut page = summary(record);
    for entry in [Some(&record.first), record.end.as_ref()].into_iter().flatten() {
        for (name, value) in &entry.fields {
            page.push_str(&format!("\n  {:<12} {}", escape::line(name), value_of(value)));
        }
    }
    page
}

fn value_of(value: &Value) -> String {
    match value {
        Value::String(text) => escape::line(text),
        other => escape::line(&other.to_string()),
    }
}

/// A value's text, bounded; nothing for what is not there.
fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => part(text),
        // Described instead of spelled out, because it was long.
        Some(Value::Object(digest)) => match digest.get("head").and_then(Value::as_str) {
            Some(head) => format!("{}… ({} bytes)", part(head).trim_end_matches('…'), plain(digest.get("bytes"))),
            None => part(&value.map(Value::to_string).unwrap_or_default()),
        },
        Some(other) => part(&other.to_string()),
    }
}

/// Escaped, so that nothing in it makes a second line, and not longer than a line bears.
fn part(text: &str) -> String {
    let mut shown = escape::line(&text.chars().take(SHOWN).collect::<String>());
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
