//! `--log`: what happens, on standard error, for people or for programs.
//!
//! For programs each line is a JSON object with the name of an `event`, and `time`, the seconds since the command began;
//! messages of the libraries are events, too. For people the events are not printed: a progress bar and a report say the
//! same. Only the first rank speaks.

use std::io::Write;
use std::sync::OnceLock;
use std::time::Instant;

use haloscope_comm::Context;
use serde_json::{Map, Value, json};

/// The options of every command.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct LogArguments {
    /// Format of messages on standard error
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "FORMAT")]
    log: Format,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Readable lines and a progress bar
    Text,
    /// One JSON object per line
    Json,
}

/// The format and the beginning; one of them for the process, as standard error is.
static OUTPUT: OnceLock<(Format, Instant)> = OnceLock::new();

impl LogArguments {
    /// Decides on the format for the whole process.
    pub(crate) fn install(self) {
        // Fails only if it was done already.
        let _ = OUTPUT.set((self.log, Instant::now()));
    }
}

/// Whether programs read standard error, so that nothing else may be written there.
pub(crate) fn is_json() -> bool {
    OUTPUT.get().is_some_and(|(format, _)| *format == Format::Json)
}

/// Reports an event of the job, by its first rank, if programs listen. `details` are computed only then.
pub(crate) fn event(context: &Context, name: &str, details: impl FnOnce() -> Value) {
    if is_json() && context.is_root() {
        write_event(name, details());
    }
}

/// Reports what a library has to say.
pub(crate) fn message(level: ::log::Level, message: &str) {
    if is_json() {
        let level = level.as_str().to_ascii_lowercase();
        write_event("message", json!({ "level": level, "message": message }));
    } else {
        write_line(&format!("haloscope: {message}"));
    }
}

/// Reports why the command ends.
pub(crate) fn error(message: &str, exit_code: u8) {
    if is_json() {
        write_event("error", json!({ "message": message, "exit_code": exit_code }));
    } else {
        write_line(&format!("haloscope: {message}"));
    }
}

fn write_event(name: &str, details: Value) {
    let seconds = OUTPUT.get().map_or(0.0, |(_, begin)| begin.elapsed().as_secs_f64());
    write_line(&line(name, seconds, details).to_string());
}

fn line(name: &str, seconds: f64, details: Value) -> Value {
    let mut line = Map::new();
    line.insert("event".into(), name.into());
    line.insert("time".into(), json!(seconds));
    match details {
        Value::Object(fields) => line.extend(fields),
        Value::Null => (),
        other => drop(line.insert("value".into(), other)),
    }
    Value::Object(line)
}

/// One write, so that the lines of several processes do not mix. If standard error is closed, nobody listens.
fn write_line(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_object_with_its_name_first() {
        let line = line("iteration", 1.5, json!({ "number": 3, "text": "two\nlines" }));
        let text = line.to_string();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(line["event"], "iteration");
        assert_eq!(line["number"], 3);
        assert_eq!(line["time"], 1.5);
    }
}
