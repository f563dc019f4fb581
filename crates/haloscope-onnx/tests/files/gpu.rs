//! A library that passes for ONNX Runtime on a machine with NVIDIA's GPUs. Tests compile it with `rustc`.
//!
//! It hands out the functions of the library that `GPU_LIBRARY` names, but for those that know of GPUs: the CUDA provider is listed
//! and can be registered, and what it is to run runs on the CPU. `GPU_LOGS` is an error that registering it logs, `GPU_LACKS` is what
//! it fails with, and `GPU_IMAGES` is how many images at once fit into its memory.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Places of functions in `OrtApi`, which never change; a test compares them with those of the bindings.
mod place {
    pub const CREATE_STATUS: usize = 0;
    pub const CREATE_ENV_WITH_CUSTOM_LOGGER: usize = 4;
    pub const RUN: usize = 9;
    pub const GET_DIMENSIONS: usize = 62;
    pub const GET_TENSOR_TYPE_AND_SHAPE: usize = 65;
    pub const RELEASE_TENSOR_TYPE_AND_SHAPE_INFO: usize = 99;
    pub const GET_AVAILABLE_PROVIDERS: usize = 125;
    pub const RELEASE_AVAILABLE_PROVIDERS: usize = 126;
    pub const APPEND_CUDA: usize = 204;
    pub const CREATE_CUDA_OPTIONS: usize = 205;
    pub const UPDATE_CUDA_OPTIONS: usize = 206;
    pub const RELEASE_CUDA_OPTIONS: usize = 208;
}

/// As many functions as every version has that is accepted.
const FUNCTIONS: usize = 276;

type Function = *const c_void;
type Status = *mut c_void;
type Logger =
    extern "C" fn(*mut c_void, c_int, *const c_char, *const c_char, *const c_char, *const c_char);

#[repr(C)]
pub struct Base {
    api: extern "C" fn(u32) -> *const Function,
    version: extern "C" fn() -> *const c_char,
}

struct Table([Function; FUNCTIONS]);
// SAFETY: functions are the same on all threads.
unsafe impl Send for Table {}
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
static LOGGER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static LOGGER_DATA: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[unsafe(no_mangle)]
pub extern "C" fn OrtGetApiBase() -> *const Base {
    static BASE: Base = Base { api, version };
    &raw const BASE
}

fn real() -> &'static Base {
    static REAL: OnceLock<usize> = OnceLock::new();
    let base = *REAL.get_or_init(|| {
        let path = CString::new(said("GPU_LIBRARY").expect("the library")).expect("a path");
        // SAFETY: the library has this function.
        unsafe {
            let library = dlopen(path.as_ptr(), 2);
            let base = dlsym(library, c"OrtGetApiBase".as_ptr());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Base>(base)() as usize
        }
    });
    // SAFETY: the library stays.
    unsafe { &*(base as *const Base) }
}

extern "C" fn version() -> *const c_char {
    (real().version)()
}

extern "C" fn api(version: u32) -> *const Function {
    let table = TABLE.get_or_init(|| {
        let real = (real().api)(version);
        // SAFETY: it has at least so many.
        let mut table = Table(unsafe { *real.cast::<[Function; FUNCTIONS]>() });
        let own: [(usize, Function); 8] = [
            (place::CREATE_ENV_WITH_CUSTOM_LOGGER, create_env as Function),
            (place::RUN, run as Function),
            (place::GET_AVAILABLE_PROVIDERS, providers as Function),
            (place::RELEASE_AVAILABLE_PROVIDERS, release_providers as Function),
            (place::APPEND_CUDA, append as Function),
            (place::CREATE_CUDA_OPTIONS, create_options as Function),
            (place::UPDATE_CUDA_OPTIONS, update_options as Function),
            (place::RELEASE_CUDA_OPTIONS, release_options as Function),
        ];
        own.into_iter().for_each(|(place, function)| table.0[place] = function);
        table
    });
    table.0.as_ptr()
}

/// One of the real functions.
fn function(place: usize) -> Function {
    // SAFETY: as in `api`.
    unsafe { *(real().api)(17).add(place) }
}

fn said(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn failure(message: &str) -> Status {
    let message = CString::new(message).expect("text");
    // SAFETY: its type; 1 is FAIL.
    unsafe {
        type Create = extern "C" fn(c_int, *const c_char) -> Status;
        std::mem::transmute::<Function, Create>(function(place::CREATE_STATUS))(1, message.as_ptr())
    }
}

extern "C" fn create_env(
    logger: Function,
    data: *mut c_void,
    level: c_int,
    name: *const c_char,
    env: *mut *mut c_void,
) -> Status {
    LOGGER.store(logger.cast_mut(), Ordering::Relaxed);
    LOGGER_DATA.store(data, Ordering::Relaxed);
    type Create =
        extern "C" fn(Function, *mut c_void, c_int, *const c_char, *mut *mut c_void) -> Status;
    let create = function(place::CREATE_ENV_WITH_CUSTOM_LOGGER);
    // SAFETY: its type.
    unsafe { std::mem::transmute::<Function, Create>(create)(logger, data, level, name, env) }
}

extern "C" fn providers(list: *mut *const *const c_char, count: *mut c_int) -> Status {
    struct Names([*const c_char; 2]);
    // SAFETY: text that does not change.
    unsafe impl Sync for Names {}
    static NAMES: Names =
        Names([c"CUDAExecutionProvider".as_ptr(), c"CPUExecutionProvider".as_ptr()]);
    // SAFETY: the caller gives room for both.
    unsafe {
        *list = NAMES.0.as_ptr();
        *count = 2;
    }
    null_mut()
}

extern "C" fn release_providers(_: *const *const c_char, _: c_int) -> Status {
    null_mut()
}

extern "C" fn create_options(options: *mut *mut c_void) -> Status {
    // SAFETY: the caller gives room; nobody looks at what is there.
    unsafe { *options = std::ptr::dangling_mut::<u64>().cast() };
    null_mut()
}

extern "C" fn update_options(
    _: *mut c_void,
    _: *const *const c_char,
    _: *const *const c_char,
    _: usize,
) -> Status {
    null_mut()
}

extern "C" fn release_options(_: *mut c_void) {}

extern "C" fn append(_: *mut c_void, _: *const c_void) -> Status {
    if let (Some(words), logger) = (said("GPU_LOGS"), LOGGER.load(Ordering::Relaxed)) {
        let words = CString::new(words).expect("text");
        // SAFETY: the type of the function that made the environment; 3 is an error.
        let logger = unsafe { std::mem::transmute::<*mut c_void, Logger>(logger) };
        let data = LOGGER_DATA.load(Ordering::Relaxed);
        logger(data, 3, c"".as_ptr(), c"".as_ptr(), c"".as_ptr(), words.as_ptr());
    }
    said("GPU_LACKS").map_or(null_mut(), |words| failure(&words))
}

extern "C" fn run(
    session: *mut c_void,
    options: *const c_void,
    names: *const *const c_char,
    inputs: *const *const c_void,
    count: usize,
    outputs: *const *const c_char,
    output_count: usize,
    results: *mut *mut c_void,
) -> Status {
    let most = said("GPU_IMAGES").and_then(|most| most.parse().ok()).unwrap_or(i64::MAX);
    // SAFETY: a run has an input.
    if images(unsafe { *inputs }) > most {
        return failure(
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=here ; file=cuda_call.cc",
        );
    }
    type Run = extern "C" fn(
        *mut c_void,
        *const c_void,
        *const *const c_char,
        *const *const c_void,
        usize,
        *const *const c_char,
        usize,
        *mut *mut c_void,
    ) -> Status;
    // SAFETY: its type.
    let run = unsafe { std::mem::transmute::<Function, Run>(function(place::RUN)) };
    run(session, options, names, inputs, count, outputs, output_count, results)
}

/// The first size of a tensor.
fn images(value: *const c_void) -> i64 {
    type Shape = extern "C" fn(*const c_void, *mut *mut c_void) -> Status;
    type Sizes = extern "C" fn(*const c_void, *mut i64, usize) -> Status;
    type Release = extern "C" fn(*mut c_void);
    let (mut info, mut sizes) = (null_mut(), [0]);
    // SAFETY: their types.
    unsafe {
        let shape = function(place::GET_TENSOR_TYPE_AND_SHAPE);
        std::mem::transmute::<Function, Shape>(shape)(value, &raw mut info);
        let dimensions = function(place::GET_DIMENSIONS);
        std::mem::transmute::<Function, Sizes>(dimensions)(info, sizes.as_mut_ptr(), 1);
        let release = function(place::RELEASE_TENSOR_TYPE_AND_SHAPE_INFO);
        std::mem::transmute::<Function, Release>(release)(info);
    }
    sizes[0]
}
