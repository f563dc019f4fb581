//! Messages of the libraries, which `--log` decides how to write.

use log::{LevelFilter, Log, Metadata, Record};

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            crate::log::message(record.level(), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Shows warnings, and more the higher `verbosity` is.
pub(crate) fn install(verbosity: u8) {
    log::set_max_level(match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    });
    // Fails only if there is a logger already.
    let _ = log::set_logger(&Logger);
}
