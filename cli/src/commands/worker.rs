//! `worker`: a device in a process of its own; started by the tuner, never by people.

use clap::Args;

use super::Ending;

/// Serves one device on stdin and stdout
#[derive(Args)]
pub(super) struct Worker {
    /// Device
    #[arg(long)]
    device: String,
}

impl Worker {
    pub(super) fn run(&self) -> anyhow::Result<Ending> {
        measure::serve(&self.device.parse()?)?;
        Ok(Ending::Done)
    }
}
