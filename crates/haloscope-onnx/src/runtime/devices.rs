//! The GPUs that this process may use, by the library's providers and what the system shows.
//!
//! ONNX Runtime names no devices before a session is made, so they are counted as the drivers do: by the variables that
//! launchers and queues set, then by the files of the devices.

use std::path::Path;

use haloscope_nn::Result;

use super::device::{Device, Provider, failed};
use super::library::Library;

/// The GPUs that the library of this process can use, in the order of their numbers.
///
/// # Errors
/// If there is no library, or it has no provider for GPUs, or it sees no GPU: one line that says what is missing.
pub fn gpus() -> Result<Vec<Device>> {
    let library = Library::load()?;
    let providers = library.providers();
    let found = Provider::ALL
        .into_iter()
        .find(|provider| *provider != Provider::Cpu && providers.contains(&provider.name()));
    let Some(provider) = found else {
        return Err(failed(format!(
            "version {} at {} has no provider for GPUs, only {}; install onnxruntime-gpu for NVIDIA or onnxruntime-migraphx \
             for AMD in the place of onnxruntime",
            library.version(),
            library.path().display(),
            providers.join(" and ")
        )));
    };
    let count = count(provider);
    if count == 0 {
        return Err(failed(format!(
            "version {} has the {}, and no GPU is visible to this process; {}",
            library.version(),
            provider.name(),
            match provider {
                Provider::Cuda =>
                    "is NVIDIA's driver loaded (nvidia-smi), and does CUDA_VISIBLE_DEVICES name one?",
                _ =>
                    "is the driver amdgpu loaded (rocminfo), and does HIP_VISIBLE_DEVICES name one?",
            }
        )));
    }
    Ok((0..count).map(|index| Device { provider, index, ..Device::default() }).collect())
}

/// How many devices a provider sees.
fn count(provider: Provider) -> usize {
    match provider {
        Provider::Cpu | Provider::CoreMl => 1,
        Provider::Cuda => visible(&["CUDA_VISIBLE_DEVICES"])
            .unwrap_or_else(|| numbered(Path::new("/dev"), "nvidia")),
        Provider::MiGraphX | Provider::Rocm => {
            visible(&["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
                .unwrap_or_else(|| of_amd(Path::new("/sys/class/drm")))
        }
    }
}

/// How many devices the first of these variables that is set leaves.
fn visible(names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| std::env::var(name).ok()).map(|list| listed(&list))
}

/// The devices of a list; those behind one that is none are not seen.
fn listed(list: &str) -> usize {
    list.split(',')
        .map(str::trim)
        .take_while(|item| !item.is_empty() && !item.starts_with('-'))
        .count()
}

/// The GPUs of AMD among those that the system lists in this folder; others may be there, too.
fn of_amd(folder: &Path) -> usize {
    let is_amd = |name: &str| {
        let vendor = std::fs::read_to_string(folder.join(name).join("device/vendor"));
        vendor.is_ok_and(|vendor| vendor.trim() == "0x1002")
    };
    names(folder, "renderD").filter(|name| is_amd(name)).count()
}

/// The files of a folder that are called so, with a number behind it.
fn numbered(folder: &Path, prefix: &str) -> usize {
    names(folder, prefix).count()
}

fn names<'a>(folder: &Path, prefix: &'a str) -> impl Iterator<Item = String> + use<'a> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_device = move |name: &String| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_as_drivers_do() {
        for (list, count) in
            [("0", 1), ("0,1, 3", 3), ("", 0), ("-1", 0), ("0,-1,2", 1), ("GPU-8932f937,GPU-1", 2)]
        {
            assert_eq!(listed(list), count, "{list}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "tty0"] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        assert_eq!(numbered(folder.path(), "nvidia"), 2);
        assert_eq!(numbered(&folder.path().join("none"), "nvidia"), 0);
        for (name, vendor) in
            [("renderD128", "0x8086\n"), ("renderD129", "0x1002\n"), ("card0", "0x1002\n")]
        {
            let device = folder.path().join(name).join("device");
            std::fs::create_dir_all(&device).expect("a folder");
            std::fs::write(device.join("vendor"), vendor).expect("a file");
        }
        assert_eq!(of_amd(folder.path()), 1);
    }
}
