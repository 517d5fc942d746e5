//! What this host's processor can do, and how LLVM is told to use exactly that.

use std::collections::BTreeSet;

use inkwell::targets::TargetMachine;

/// The features that kernels are generated for, sorted: each changes the code of some kernel.
pub const FEATURES: [&str; 12] = [
    "amx-bf16",
    "amx-int8",
    "amx-tile",
    "avx",
    "avx2",
    "avx512bw",
    "avx512dq",
    "avx512f",
    "avx512vl",
    "avx512vnni",
    "f16c",
    "fma",
];

/// Vector features that LLVM would use by itself where the processor's name implies them, sorted.
const IMPLIED: [&str; 18] = [
    "amx-fp16",
    "avx512bf16",
    "avx512bitalg",
    "avx512cd",
    "avx512fp16",
    "avx512ifma",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512vp2intersect",
    "avx512vpopcntdq",
    "avxifma",
    "avxneconvert",
    "avxvnni",
    "avxvnniint16",
    "avxvnniint8",
    "gfni",
    "vaes",
    "vpclmulqdq",
];

/// LLVM's name of this host's CPU and those of [`FEATURES`] that this process may use, sorted. The matrix unit is one of
/// them once the system lets this process have it: that is asked for here, the first time.
pub fn host_cpu() -> (String, Vec<String>) {
    let name = TargetMachine::get_host_cpu_name().to_string();
    let all = TargetMachine::get_host_cpu_features().to_string();
    let has: Vec<&str> = all.split(',').filter_map(|feature| feature.strip_prefix('+')).collect();
    let matrix = has.contains(&"amx-tile") && matrix_allowed();
    let usable = |feature: &&str| has.contains(feature) && (matrix || !feature.starts_with("amx-"));
    (name, FEATURES.into_iter().filter(usable).map(String::from).collect())
}

/// Asks Linux for the registers of the matrix unit; false when it refuses. See "Using XSTATE features in user space
/// applications" in the kernel's documentation.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn matrix_allowed() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes nothing but which instructions this process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn matrix_allowed() -> bool {
    false
}

/// LLVM's feature string for these features and no other vector features, whatever the processor's name implies. What
/// is switched off comes first: it takes along what needs it.
pub(super) fn exactly(features: &BTreeSet<String>) -> String {
    let off = FEATURES.iter().chain(&IMPLIED).filter(|feature| !features.contains(**feature));
    let off: Vec<String> = off.map(|feature| format!("-{feature}")).collect();
    let on: Vec<String> = features.iter().map(|feature| format!("+{feature}")).collect();
    [off, on].concat().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_switched_off() {
        let text = exactly(&["avx2".to_string(), "avx".to_string()].into());
        let words: Vec<&str> = text.split(',').collect();
        assert!(words.contains(&"+avx2") && words.contains(&"-avx512f") && words.contains(&"-amx-bf16"), "{text}");
        assert!(!words.contains(&"-avx2") && !words.contains(&"-avx"), "{text}");
        let first_on = words.iter().position(|word| word.starts_with('+')).unwrap();
        assert!(words[first_on..].iter().all(|word| word.starts_with('+')), "{text}");
    }

    #[test]
    fn features_of_the_host_are_known_ones() {
        let (_, features) = host_cpu();
        assert!(features.iter().all(|feature| FEATURES.contains(&feature.as_str())));
        assert!(FEATURES.is_sorted() && IMPLIED.is_sorted());
    }
}
