//! Ctrl-C and SIGTERM: once asks to stop, twice stops.

use anyhow::Context as _;
use cli::Stop;

use super::say;

/// Raised by the first signal.
pub(super) static STOP: Stop = Stop::new();

/// Lets signals raise [`STOP`].
pub(super) fn stop_on_signals() -> anyhow::Result<()> {
    let handler = || {
        if STOP.ask() {
            // Whatever was counted is on the disk, and workers end with this process.
            std::process::exit(130);
        }
        say("stopping after the measurement under way; once more stops now");
    };
    ctrlc::set_handler(handler).context("handling Ctrl-C")
}
