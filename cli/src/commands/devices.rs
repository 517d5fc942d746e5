//! `devices`: what can be tuned on here.

use clap::Args;
use measure::{FoundDevice, WorkerOptions, list_devices};
use serde_json::json;

use super::arguments::Processor;
use super::{Context, Ending};

/// List what can be tuned on, and for what is missing, what was looked for
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Devices {
    /// One JSON object per device on stdout (docs/cli.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    processor: Processor,
}

const EXAMPLES: &str = "\
Examples:
  tilewright devices
  tilewright devices --json
  tilewright devices --json | grep '\"present\":true'";

impl Devices {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let found = list_devices(&WorkerOptions::default(), &self.processor.cpu_features.clone().unwrap_or_default());
        let mut any = false;
        for device in &found {
            match device {
                FoundDevice::Present { spec, identity } => {
                    any = true;
                    if self.json {
                        context.output.json(&json!({
                            "schema": "tilewright.devices/1",
                            "device": spec,
                            "present": true,
                            "name": identity.name,
                            "driver": identity.driver,
                            "target": identity.target.key,
                            "limits": identity.target.limits,
                            "resource": identity.resource,
                            "environment": identity.environment,
                        }))?;
                        continue;
                    }
                    context.output.line(format!("{spec}: {} ({})", identity.name, identity.driver))?;
                    context.output.line(format!("  target    {}", identity.target.key))?;
                    context.output.line(format!("  occupies  {}", identity.resource))?;
                    let limits = serde_json::to_value(&identity.target.limits)?;
                    let limits = limits.as_object().into_iter().flatten();
                    let limits: Vec<String> =
                        limits.filter(|(_, n)| **n != 0).map(|(name, n)| format!("{name}={n}")).collect();
                    context.output.line(format!("  limits    {}", limits.join(" ")))?;
                    let environment: Vec<String> =
                        identity.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    context.output.line(format!("  now       {}", environment.join(" ")))?;
                }
                FoundDevice::Missing { spec, reason } if self.json => {
                    context.output.json(&json!({
                        "schema": "tilewright.devices/1",
                        "device": spec,
                        "present": false,
                        "reason": reason,
                    }))?;
                }
                FoundDevice::Missing { spec, reason } => {
                    context.output.line(format!("{spec}: missing: {reason}"))?;
                }
            }
        }
        Ok(if any { Ending::Done } else { Ending::No })
    }
}
