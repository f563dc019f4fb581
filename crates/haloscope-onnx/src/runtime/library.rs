//! The library of ONNX Runtime: where it is found, what is in it, and what to say if it is not there.
//!
//! A process loads one library, once. Looked at are, in this order, `ORT_DYLIB_PATH`, the `onnxruntime` package of the active
//! Python environment and of `python3`, and the system's own library. The first that is there is taken or refused; none is
//! passed over in silence.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use haloscope_nn::{Error, Result};
use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider};
use ort::logging::LogLevel;

use super::ENGINE;

/// The variable that names the library.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// What to do where there is no library.
const INSTALL: &str = "pip install onnxruntime, onnxruntime-gpu (NVIDIA) or onnxruntime-migraphx (AMD) provides one; \
                       ORT_DYLIB_PATH names another";

/// The loaded library.
#[derive(Debug)]
pub struct Library {
    environment: Environment,
    path: PathBuf,
    version: String,
}

impl Library {
    /// The library of this process, loaded at the first call.
    ///
    /// # Errors
    /// If there is none, or it is too old: one line that says what to install.
    pub fn load() -> Result<&'static Self> {
        static LOADED: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Self::open(&find()?));
        loaded.as_ref().map_err(|reason| Error::Engine { engine: ENGINE, reason: reason.clone() })
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version: `1.31.1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The execution providers that it was built with, as ONNX Runtime calls them. One that is listed may still miss a driver.
    #[must_use]
    pub fn providers(&self) -> Vec<&'static str> {
        fn of<P: ExecutionProvider>() -> Option<&'static str> {
            P::is_available().unwrap_or(false).then_some(P::NAME)
        }
        let all = [
            of::<ep::CUDA>(),
            of::<ep::MIGraphX>(),
            of::<ep::ROCm>(),
            of::<ep::CoreML>(),
            of::<ep::CPU>(),
        ];
        all.into_iter().flatten().collect()
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    fn open(path: &Path) -> std::result::Result<Self, String> {
        use ort::LoadDynamicError::{BadVersion, Dlopen, InvalidVersionString, MissingApi};
        let place = path.display();
        let builder = ort::init_from(path).map_err(|error| match error {
            BadVersion { version_str, .. } => format!(
                "{place} is version {version_str}; 1.{} or newer is needed: pip install --upgrade onnxruntime",
                ort::MINOR_VERSION
            ),
            MissingApi { .. } | InvalidVersionString => {
                format!("{place} is no library of ONNX Runtime; {INSTALL}")
            }
            Dlopen { error, .. } => format!("{place} cannot be loaded: {error}; {INSTALL}"),
        })?;
        let logger = Arc::new(|level: LogLevel, _: &str, _: &str, _: &str, message: &str| {
            log::debug!("ONNX Runtime: {message}");
            if matches!(level, LogLevel::Error | LogLevel::Fatal) {
                *logged_error() = Some(message.to_owned());
            }
        });
        let builder = builder.with_name("haloscope").with_telemetry(false).with_logger(logger);
        let environment = builder.build().map_err(|error| format!("{place}: {error}"))?;
        Ok(Self { environment, version: version(path), path: path.to_path_buf() })
    }
}

/// The last error that ONNX Runtime logged. Of a provider that cannot be loaded, this alone says what is missing.
fn logged_error() -> MutexGuard<'static, Option<String>> {
    static LOGGED: Mutex<Option<String>> = Mutex::new(None);
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes it, so that it is not held against what fails later.
pub(super) fn take_logged_error() -> Option<String> {
    logged_error().take()
}

/// The library's version, by its name or by what it says of its build.
fn version(path: &Path) -> String {
    let name = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = name.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let digits = digits.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    if digits.contains('.') {
        digits.to_owned()
    } else {
        format!("1.{} or newer", ort::MINOR_VERSION)
    }
}

/// The file of the library, or why there is none.
fn find() -> std::result::Result<PathBuf, String> {
    if let Some(given) = std::env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        if given.is_file() {
            return Ok(given);
        }
        return Err(format!("{VARIABLE} is {}, which is no file; {INSTALL}", given.display()));
    }
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"];
    let active = environments.into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    active
        .flat_map(|prefix| packages(&prefix))
        .find_map(|package| library_in(&package))
        .or_else(|| library_in(&imported_package()?))
        .or_else(system_library)
        .ok_or_else(|| format!("the library of ONNX Runtime is not installed; {INSTALL}"))
}

/// The folders where an environment may have the package.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let unix = versions.map(|version| version.path().join("site-packages"));
    let all = unix.chain([prefix.join("Lib").join("site-packages")]);
    all.map(|folder| folder.join("onnxruntime")).collect()
}

/// The folder of the package that `python3` would import, which is not imported for it.
fn imported_package() -> Option<PathBuf> {
    let script =
        "import importlib.util as u; s = u.find_spec('onnxruntime'); print(s.origin if s else '')";
    let output = Command::new("python3").args(["-c", script]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let init = Path::new(text.trim());
    init.is_file().then(|| init.parent().map(Path::to_path_buf)).flatten()
}

/// The library in the folder of the package.
fn library_in(package: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(package.join("capi")).ok()?.flatten();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let rest = name.strip_prefix("libonnxruntime.").or(name.strip_prefix("onnxruntime."));
        rest.is_some_and(|rest| rest.starts_with("so") || rest.ends_with("dylib") || rest == "dll")
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_library).collect();
    found.sort();
    found.pop()
}

/// The library in one of the usual folders.
fn system_library() -> Option<PathBuf> {
    let folders = ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/opt/homebrew/lib"];
    let name =
        format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    folders.iter().map(|folder| Path::new(folder).join(&name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_package_and_its_providers_are_not_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let package = folder.path().join("lib/python3.11/site-packages/onnxruntime");
        let capi = package.join("capi");
        std::fs::create_dir_all(&capi).expect("a folder");
        assert_eq!(library_in(&package), None);
        for name in ["libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so", "x.py"] {
            std::fs::write(capi.join(name), "").expect("a file");
        }
        let found = packages(folder.path()).iter().find_map(|package| library_in(package));
        assert_eq!(found.as_deref(), Some(&*capi.join("libonnxruntime.so.1.31.1")));
        assert_eq!(version(&capi.join("libonnxruntime.so.1.31.1")), "1.31.1");
    }
}
