//! What is missing on a machine, and what to do about it, by the words of ONNX Runtime, CUDA and `ROCm`.
//!
//! Their messages are long and name files of their sources and the machine; these are one line each.

/// What a message says that something is wanting of a GPU's software, or nothing if it does not say so.
pub(super) fn diagnose(message: &str) -> Option<String> {
    missing_library(message).or_else(|| {
        let known = KNOWN.iter().find(|(words, _)| words.iter().any(|word| message.contains(word)));
        known.map(|(_, advice)| match failure(message) {
            Some(failure) => format!("{failure}: {advice}"),
            None => (*advice).to_owned(),
        })
    })
}

/// Words of messages, and what they come down to.
const KNOWN: [(&[&str], &str); 6] = [
    (
        &["CUDA failure 35", "driver version is insufficient"],
        "NVIDIA's driver is missing or too old for the CUDA of this library; update the driver (nvidia-smi shows it), or \
         install a version of onnxruntime-gpu for an older CUDA",
    ),
    (
        &[
            "CUDA failure 100",
            "no CUDA-capable device",
            "CUDA failure 101",
            "invalid device ordinal",
        ],
        "the driver does not show this GPU; compare nvidia-smi with CUDA_VISIBLE_DEVICES and --device",
    ),
    (
        &["no kernel image is available"],
        "this version of ONNX Runtime was not built for this GPU; V100 needs a version of onnxruntime-gpu for CUDA 12 with \
         cuDNN 9.10 or older",
    ),
    (
        &OUT_OF_MEMORY,
        "the memory of the GPU does not suffice; make tiles smaller (`patch`), denoise fewer at once (batch = 1), or let fewer \
         ranks share the GPU",
    ),
    (
        &[
            "CUDNN_STATUS_ARCH_MISMATCH",
            "CUDNN_STATUS_NOT_INITIALIZED",
            "VERSION_MISMATCH",
            "CUDNN failure",
        ],
        "cuDNN does not suit the GPU, or the GPU's memory is used up; install the cuDNN that the version of onnxruntime-gpu \
         was built for",
    ),
    (
        &["hipErrorNoDevice", "no ROCm-capable device", "HIP failure 100"],
        "the driver does not show this GPU; compare rocminfo with HIP_VISIBLE_DEVICES and --device",
    ),
];

/// What want of memory is called; the last is how it is said here.
const OUT_OF_MEMORY: [&str; 7] = [
    "out of memory",
    "Failed to allocate memory",
    "OutOfMemory",
    "bad_alloc",
    "ALLOC_FAILED",
    "hipErrorOutOfMemory",
    "the memory of the GPU does not suffice",
];

/// Whether a message says that memory does not suffice.
pub(super) fn is_out_of_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    OUT_OF_MEMORY.iter().any(|words| message.contains(&words.to_lowercase()))
}

/// A library that the loader did not find.
fn missing_library(message: &str) -> Option<String> {
    let (before, _) = message.split_once(": cannot open shared object file")?;
    let name = before.rsplit([' ', '/']).next().filter(|name| name.starts_with("lib"))?;
    let owner = match name {
        _ if name.starts_with("libcudnn") => {
            "cuDNN, is missing; pip install nvidia-cudnn-cu12 or -cu13 provides it, with its folder on LD_LIBRARY_PATH"
        }
        _ if ["libmigraphx", "libamdhip", "libMIOpen", "librocblas", "libhip", "libroc"]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
        {
            "ROCm, is missing; install ROCm with MIGraphX, with its folder on LD_LIBRARY_PATH"
        }
        "libcuda.so.1" => "NVIDIA's driver, is missing; install the driver (nvidia-smi shows it)",
        _ if name.starts_with("libonnxruntime_providers") => {
            "ONNX Runtime, is missing; it belongs beside the library: install onnxruntime-gpu or onnxruntime-migraphx again"
        }
        _ => {
            "CUDA, is missing; install the CUDA of the version that onnxruntime-gpu was built for, with its folder on \
             LD_LIBRARY_PATH"
        }
    };
    Some(format!("{name}, a library of {owner}"))
}

/// The failure in the vendor's own words, without the places in its sources.
fn failure(message: &str) -> Option<&str> {
    let starts = ["CUDA failure", "CUDNN failure", "HIP failure", "Failed to allocate memory"];
    let start = starts.iter().filter_map(|start| message.find(start)).min()?;
    let words = message[start..].lines().next()?;
    Some(words.split(" ;").next()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As users of ONNX Runtime report them.
    #[test]
    fn real_messages_become_one_line_that_says_what_to_do() {
        let call = "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:122 std::conditional_t<THRW, void, \
                    onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, const char*, SUCCTYPE, const char*, \
                    const char*, int) [with ERRTYPE = cudaError; bool THRW = true; SUCCTYPE = cudaError]";
        let get = "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:1539 onnxruntime::Provider& \
                   onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
                   libonnxruntime_providers_cuda.so with error:";
        let place = "; GPU=-1 ; hostname=c4327188c000000 ; \
                     file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_execution_provider.cc ; line=336 ; \
                     expr=cudaSetDevice(info_.device_id); \n";
        let arena = "Non-zero status code returned while running Conv node. Name:'head' Status Message: \
                     /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* \
                     onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, \
                     onnxruntime::WaitNotificationFn) Failed to allocate memory for requested buffer of size 2830172160\n";
        let missing = "cannot open shared object file: No such file or directory";
        for (message, words) in [
            (
                format!("{get} libcudnn.so.9: {missing}"),
                "libcudnn.so.9, a library of cuDNN, is missing; pip install nvidia-cudnn-cu12",
            ),
            (
                format!("{get} libcublasLt.so.13: {missing}"),
                "libcublasLt.so.13, a library of CUDA, is missing; install the CUDA of the version",
            ),
            (
                format!("{get} libcuda.so.1: {missing}"),
                "libcuda.so.1, a library of NVIDIA's driver",
            ),
            (format!("x: libmigraphx_c.so.3: {missing}"), "libmigraphx_c.so.3, a library of ROCm"),
            (
                format!(
                    "{call} CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version {place}"
                ),
                "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version: NVIDIA's driver is missing or too \
                 old",
            ),
            (
                format!("{call} CUDA failure 100: no CUDA-capable device is detected {place}"),
                "CUDA failure 100: no CUDA-capable device is detected: the driver does not show this GPU",
            ),
            (
                format!(
                    "{call} CUDA failure 209: no kernel image is available for execution on the device {place}"
                ),
                "V100 needs a version of onnxruntime-gpu for CUDA 12",
            ),
            (
                format!("{call} CUDA failure 2: out of memory {place}"),
                "CUDA failure 2: out of memory: the memory of the GPU does not suffice; make tiles smaller",
            ),
            (
                arena.to_owned(),
                "Failed to allocate memory for requested buffer of size 2830172160: the memory of the GPU",
            ),
        ] {
            let diagnosis = diagnose(&message).unwrap_or_else(|| panic!("{message}"));
            assert!(diagnosis.contains(words), "{words}: {diagnosis}");
            assert!(!diagnosis.contains('\n') && diagnosis.len() < 300, "{diagnosis}");
            assert!(!diagnosis.contains("hostname") && !diagnosis.contains("_src"), "{diagnosis}");
        }
        for message in ["Failed to load shared library", "The node Conv is not implemented", ""] {
            assert_eq!(diagnose(message), None, "{message}");
        }
    }
}
