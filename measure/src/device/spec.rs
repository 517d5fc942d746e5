//! Device names as users write them (`--device cpu`), and the list of what this machine has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::fixtures::Rule;
use super::{Features, Identity};
use crate::Error;

/// A device as the user names it.
///
/// | text | device |
/// | --- | --- |
/// | `cpu` | one thread of the processor |
/// | `cpu:threads=2` | two threads of the processor |
/// | `cpu:features=avx2,fma` | one thread, only these of the processor's [`Features`]; `cpu:threads=2:features=-avx512f` |
/// | `vulkan`, `vulkan:1` | the first, the second Vulkan device |
/// | `fixture:hang/7` | the processor, but every seventh candidate hangs; see [`Fault`](super::fixtures::Fault) |
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceSpec {
    /// The processor through LLVM.
    Cpu {
        /// Threads that one kernel may use; at least 1.
        threads: u64,
        /// Features of the processor that kernels may use.
        features: Features,
    },
    /// A Vulkan device through WGSL.
    Vulkan {
        /// Position in the list of Vulkan devices.
        index: usize,
    },
    /// The processor, misbehaving by rule: what hangs and crashes cost is shown with this.
    Fixture(Rule),
}

impl DeviceSpec {
    /// Threads of the processor with all its features.
    pub fn cpu(threads: u64) -> DeviceSpec {
        DeviceSpec::Cpu { threads, features: Features::default() }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Cpu { threads, features } => {
                f.write_str("cpu")?;
                if *threads != 1 {
                    write!(f, ":threads={threads}")?;
                }
                if !features.is_all() {
                    write!(f, ":features={features}")?;
                }
                Ok(())
            }
            DeviceSpec::Vulkan { index: 0 } => f.write_str("vulkan"),
            DeviceSpec::Vulkan { index } => write!(f, "vulkan:{index}"),
            DeviceSpec::Fixture(rule) => write!(f, "fixture:{rule}"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceSpec, Error> {
        let unknown = |reason: &str| Error::UnknownDevice { spec: text.into(), reason: reason.into() };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("cpu", None) => Ok(DeviceSpec::cpu(1)),
            ("cpu", Some(rest)) => {
                let (mut threads, mut features) = (1, Features::default());
                for part in rest.split(':') {
                    if let Some(list) = part.strip_prefix("features=") {
                        features = list.parse().map_err(|reason: String| unknown(&reason))?;
                        continue;
                    }
                    let count = part.strip_prefix("threads=").and_then(|n| n.parse().ok());
                    let count = count.filter(|n| (1..=1024).contains(n));
                    threads = count.ok_or_else(|| unknown("expected cpu:threads=1..1024 or cpu:features=LIST"))?;
                }
                Ok(DeviceSpec::Cpu { threads, features })
            }
            ("vulkan", None) => Ok(DeviceSpec::Vulkan { index: 0 }),
            ("vulkan", Some(rest)) => rest
                .parse()
                .map(|index| DeviceSpec::Vulkan { index })
                .map_err(|_| unknown("expected vulkan:N with N the position in the list")),
            ("fixture", Some(rest)) => rest.parse().map(DeviceSpec::Fixture).map_err(|reason: String| unknown(&reason)),
            ("fixture", None) => Err(unknown("expected fixture:FAULT/N")),
            _ => Err(unknown("known kinds are cpu and vulkan")),
        }
    }
}

impl From<DeviceSpec> for String {
    fn from(spec: DeviceSpec) -> String {
        spec.to_string()
    }
}

impl TryFrom<String> for DeviceSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<DeviceSpec, Error> {
        text.parse()
    }
}

/// One line of `tilewright devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoundDevice {
    /// Can be tuned on.
    Present {
        /// How to name it.
        spec: DeviceSpec,
        /// Which device it is.
        identity: Box<Identity>,
    },
    /// Cannot be tuned on.
    Missing {
        /// Kind or name.
        spec: String,
        /// What was looked for, and what happened.
        reason: String,
    },
}

/// Everything that can be tuned on, the processor with only these of its features; for what is missing, what was looked for. Each device is opened in a worker
/// process of its own, so a driver that crashes is one `Missing` line.
pub fn list_devices(options: &crate::WorkerOptions, features: &Features) -> Vec<FoundDevice> {
    let mut found = Vec::new();
    let mut probe = |spec: DeviceSpec| {
        let name = spec.to_string();
        match crate::DeviceHandle::open(&spec, options.clone()) {
            Ok(device) => {
                found.push(FoundDevice::Present { spec, identity: Box::new(device.identity().clone()) });
                true
            }
            Err(error) => {
                let reason = match std::error::Error::source(&error) {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                found.push(FoundDevice::Missing { spec: name, reason });
                false
            }
        }
    };
    probe(DeviceSpec::Cpu { threads: 1, features: features.clone() });
    // The first Vulkan device that is missing ends the list; only `vulkan` itself is worth a line.
    let mut index = 0;
    while probe(DeviceSpec::Vulkan { index }) {
        index += 1;
    }
    if index > 0 {
        found.pop();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "cpu",
            "cpu:threads=2",
            "cpu:features=avx2,fma",
            "cpu:threads=3:features=-avx512f",
            "vulkan",
            "vulkan:3",
            "fixture:hang/7",
        ] {
            assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_one_clear_line() {
        for text in [
            "",
            "gpu",
            "cpu:threads=0",
            "cpu:x",
            "cpu:features=sse9",
            "vulkan:-1",
            "fixture",
            "fixture:dance/2",
            "fixture:hang/0",
        ] {
            let message = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("no device \"{text}\": ")) && !message.contains('\n'), "{message}");
        }
    }
}
