//! Progress on stderr: one bar per workload on a terminal, otherwise one plain line every ten seconds.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Output, Report, TrialReport, json, units};
use crate::planner::Limit;
use crate::session::JobReport;

/// Time between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Bars that are redrawn: stderr is a terminal.
    Bars,
    /// A line now and then.
    Lines,
    /// Nothing.
    Nothing,
}

/// Shows a night's progress on stderr, and its trials as JSON where asked for.
pub struct Console<'a> {
    show: Show,
    stderr: Mutex<Box<dyn Write + Send>>,
    json: Option<&'a Output>,
    bars: MultiProgress,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: Limit,
    bars: BTreeMap<usize, ProgressBar>,
    last_line: Duration,
}

impl<'a> Console<'a> {
    /// Shows progress on `stderr` (lines) or on the terminal behind stderr (bars), and trials on `json`.
    #[must_use]
    pub fn new(show: Show, stderr: impl Write + Send + 'static, json: Option<&'a Output>) -> Console<'a> {
        let bars = MultiProgress::new();
        Console { show, stderr: Mutex::new(Box::new(stderr)), json, bars, state: Mutex::default() }
    }

    fn line(&self, text: &str) {
        let mut stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        // Progress that nobody can read is not worth ending a night for.
        let _ = writeln!(stderr, "{text}");
    }

    fn bar(&self, state: &mut State, job: usize, result: &JobReport) -> ProgressBar {
        let make = || {
            let bar = self.bars.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("{spinner} {prefix}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(format!("{} on {}", result.workload, result.device));
            bar
        };
        state.bars.entry(job).or_insert_with(make).clone()
    }
}

fn standing(result: &JobReport, trial: &TrialReport<'_>, limit: Limit, now: Duration) -> String {
    let best = match trial.best_s {
        Some(best) => format!("best {} ms, {}", units::milliseconds(best), units::gflops(result.flops, best)),
        None => "nothing worked yet".into(),
    };
    let left = match limit {
        Limit { time: Some(time), .. } => format!(", {} left", units::duration(time.saturating_sub(now))),
        Limit { trials: Some(trials), .. } => format!(" of {trials}"),
        _ => String::new(),
    };
    match limit.time {
        None => format!("trial {}{left}, {best}", trial.number),
        Some(_) => format!("trial {}, {best}{left}", trial.number),
    }
}

impl Report for Console<'_> {
    fn begin(&self, _job: usize, result: &JobReport, limit: Limit) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).limit = limit;
        if result.trials > 0 && self.show != Show::Nothing {
            self.line(&format!("{} on {}: going on after {} trials", result.workload, result.device, result.trials));
        }
    }

    fn trial(&self, job: usize, result: &JobReport, trial: &TrialReport<'_>, now: Duration) {
        if let Some(output) = self.json {
            // A failed write of an answer is found when the closing lines are written.
            let _ = output.json(&json::trial(result, trial));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = || standing(result, trial, state.limit, now);
        match self.show {
            Show::Nothing => {}
            Show::Lines => {
                if now >= state.last_line + PLAIN_EVERY {
                    let text = text();
                    state.last_line = now;
                    self.line(&format!("{} on {}: {text}", result.workload, result.device));
                }
            }
            Show::Bars => {
                let text = text();
                let bar = self.bar(&mut state, job, result);
                bar.set_message(text);
                bar.tick();
            }
        }
    }

    fn final_begins(&self, job: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bars.get(&job) {
            bar.set_message("comparing the best with the default");
            bar.tick();
        }
    }

    fn end(&self, job: usize, _result: &JobReport) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bars.remove(&job) {
            bar.finish_and_clear();
        }
    }
}
