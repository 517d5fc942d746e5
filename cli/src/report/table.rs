//! The closing table, and the plain aligned columns that other verbs print.

use search_space::Outcome;

use super::units;
use crate::session::{Ended, JobReport, NightReport, VerdictReport};

/// Columns aligned with two spaces between them; `right` lists the columns that hold numbers.
#[must_use]
pub fn columns(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..most).map(|at| width(at).unwrap_or(0)).collect();
    let cell = |(at, text): (usize, &String)| {
        let width = widths[at];
        if right.contains(&at) { format!("{text:>width$}") } else { format!("{text:width$}") }
    };
    let line = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
    rows.iter().map(|row| line(row).trim_end().to_owned()).collect()
}

/// The closing table of a night with everything that belongs under it.
#[must_use]
pub fn night(report: &NightReport) -> Vec<String> {
    let titles =
        ["workload", "count", "device", "trials", "default ms", "best ms", "95 % interval", "speed-up", "of peak"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    rows.extend(report.jobs.iter().map(row));
    let mut lines = columns(&rows, &[1, 3, 4, 5]);
    for job in &report.jobs {
        lines.extend(notes(job));
    }
    if report.jobs.iter().any(|job| matches!(job.verdict, VerdictReport::Keep { .. })) {
        lines.push(String::new());
        lines.push("speed-up: median of ratios paired within blocks of the final, with its 95 % interval".into());
    }
    let outcomes: Vec<String> = report.outcomes().iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
    lines.push(String::new());
    lines.push(format!("outcomes: {}", if outcomes.is_empty() { "no trials".into() } else { outcomes.join(", ") }));
    for outcome in Outcome::ALL {
        let first = report.jobs.iter().find_map(|job| Some((job, job.failures.get(&outcome)?)));
        if let Some((job, failure)) = first {
            lines.push(format!("first {outcome}: {} on {}, {}", job.workload, job.device, failure.schedule));
            lines.extend(failure.message.lines().map(|line| format!("  {line}")));
        }
    }
    let spent = report.spent();
    let rest = report.wall.saturating_sub(spent.total());
    let share = |time: std::time::Duration| {
        let percent = 100.0 * time.as_secs_f64() / report.wall.as_secs_f64().max(1e-9);
        format!("{} ({percent:.0} %)", units::duration(time))
    };
    lines.push(format!(
        "time: {}; compile {}, verify {}, time {}, finals {}, rest {}",
        units::duration(report.wall),
        share(spent.compile),
        share(spent.verify),
        share(spent.time),
        share(spent.finals),
        share(rest)
    ));
    lines
}

fn row(job: &JobReport) -> Vec<String> {
    let ms = |seconds: Option<f64>| seconds.map_or("-".into(), units::milliseconds);
    let interval = job.answer.as_ref().map_or("-".into(), |answer| {
        let (lo, hi) = (answer.time.lo_ns / 1e9, answer.time.hi_ns / 1e9);
        format!("{} .. {}", units::milliseconds(lo), units::milliseconds(hi))
    });
    let speedup = match &job.verdict {
        VerdictReport::Keep { ratio, lo, hi } => format!("{ratio:.2}x ({lo:.2} .. {hi:.2})"),
        VerdictReport::NoGain { best: Some((ratio, lo, hi)) } => {
            format!("no gain (next best {ratio:.2}x, {lo:.2} .. {hi:.2})")
        }
        VerdictReport::NoGain { best: None } => "no gain".into(),
        VerdictReport::None(_) => match job.answer.as_ref().and_then(|answer| answer.speedup) {
            Some(stored) => format!("{:.2}x ({:.2} .. {:.2})", stored.ratio, stored.lo, stored.hi),
            None => "not compared".into(),
        },
    };
    let share = job.best_s().and_then(|best| job.share_of_peak(best));
    vec![
        job.workload.clone(),
        job.count.to_string(),
        job.device.clone(),
        job.trials.to_string(),
        ms(job.default_s),
        ms(job.best_s()),
        interval,
        speedup,
        share.map_or("-".into(), |(share, roof)| format!("{:.0} % {roof}", share * 100.0)),
    ]
}

/// What does not fit a column.
fn notes(job: &JobReport) -> Vec<String> {
    let mut notes = Vec::new();
    let about = format!("{} on {}", job.workload, job.device);
    notes.extend(job.remarks().iter().map(|remark| format!("{about}: {remark}")));
    if let (VerdictReport::None(why), false) = (&job.verdict, job.ended == Ended::Stopped) {
        notes.push(format!("{about}: {why}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), "100".into()]];
        assert_eq!(columns(&rows, &[1]), ["a       1", "long  100"]);
    }
}
