//! What the ratios of several lines come to.

use super::Finding;
use crate::check::ratio::{Ratio, median};
use crate::check::table::Row;

/// What is wanted of the best peer's time ÷ ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Of the geometric mean of the lines.
    pub(super) mean: f64,
    /// Of each line.
    pub(super) each: Option<f64>,
}

/// A line: its ratios by round, or why there are none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) name: String,
    pub(super) peer: Option<String>,
    pub(super) ratios: Result<Vec<f64>, String>,
}

/// Whether the lines meet the mark, by the upper ends of their intervals; one without ratios does not.
pub(super) fn judge(lines: &[Judged], mark: Mark) -> Finding {
    let mut measured = vec![mean(lines).map_or("no line was measured".to_owned(), |mean| mean.to_string())];
    let mut good = mean(lines).is_some_and(|mean| mean.high >= mark.mean);
    let ratios = lines.iter().filter_map(|line| Some((line, Ratio::of(line.ratios.as_deref().ok()?)?)));
    let worst = ratios.min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    if let Some((line, ratio)) = worst {
        let peer = line.peer.as_deref().unwrap_or("no peer");
        measured
            .push(format!("worst {} {:.3} [{:.3}, {:.3}] of {peer}", line.name, ratio.median, ratio.low, ratio.high));
    }
    let each = lines.iter().filter_map(|line| Some((line, Ratio::of(line.ratios.as_deref().ok()?)?)));
    let below = each.filter(|(_, ratio)| mark.each.is_some_and(|each| ratio.high < each)).count();
    if below > 0 {
        good = false;
        measured.push(format!("{below} below {}", mark.each.unwrap_or_default()));
    }
    let missing: Vec<String> =
        lines.iter().filter_map(|line| Some(format!("{}: {}", line.name, line.ratios.as_ref().err()?))).collect();
    if !missing.is_empty() {
        good = false;
        measured.push(format!("{} of {} lines without a ratio: {}", missing.len(), lines.len(), missing.join("; ")));
    }
    Finding::of(good, measured.join("; "))
}

/// The geometric mean of the lines that have ratios.
pub(super) fn mean(lines: &[Judged]) -> Option<Ratio> {
    let ratios: Vec<&[f64]> = lines.iter().filter_map(|line| line.ratios.as_deref().ok()).collect();
    Ratio::geometric(&ratios)
}

/// Of two rows of one line that in which we are faster; one with a time before one without.
pub(super) fn faster<'a>(strict: Option<&'a Row>, loose: Option<&'a Row>) -> Option<&'a Row> {
    let time = |row: &Row| row.ours().ok().and_then(median).unwrap_or(f64::INFINITY);
    match (strict, loose) {
        (Some(strict), Some(loose)) => Some(if time(loose) < time(strict) { loose } else { strict }),
        (one, other) => one.or(other),
    }
}

/// Lines of the section "Profiles of the worst lines": its subsections.
pub(super) fn profiled(measurements: &str) -> usize {
    let section = measurements.split("\n## ").find(|section| section.starts_with("Profiles of the worst lines"));
    section.map_or(0, |section| section.matches("\n### ").count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::table::{OURS, row_for_tests};

    fn line(name: &str, ratios: &[f64]) -> Judged {
        let ratios = if ratios.is_empty() { Err("unsupported: no lowering".into()) } else { Ok(ratios.to_vec()) };
        Judged { name: name.into(), peer: Some("x".into()), ratios }
    }

    const MARK: Mark = Mark { mean: 1.05, each: Some(0.92) };

    #[test]
    fn a_bar_is_missed_only_when_the_upper_end_is_below_it() {
        let sure = [line("a", &[1.02; 9]), line("b", &[1.02; 9])];
        assert!(matches!(judge(&sure, MARK), Finding::Missed(_)));
        let unsure = [line("a", &[0.9, 0.95, 1.0, 1.02, 1.02, 1.02, 1.1, 1.2, 1.3]), line("b", &[1.02; 9])];
        assert!(matches!(judge(&unsure, MARK), Finding::Met(_)), "{:?}", judge(&unsure, MARK));
        let good = [line("a", &[1.2; 9]), line("b", &[0.95; 9])];
        let Finding::Met(text) = judge(&good, MARK) else { panic!("met") };
        assert!(text.contains("worst b 0.950 [0.950, 0.950] of x"), "{text}");
    }

    #[test]
    fn one_line_far_below_is_enough_to_miss() {
        let lines = [line("a", &[1.5; 9]), line("b", &[0.9; 9])];
        let Finding::Missed(text) = judge(&lines, MARK) else { panic!("missed") };
        assert!(text.contains("1 below 0.92"), "{text}");
        assert!(matches!(judge(&lines, Mark { each: None, ..MARK }), Finding::Met(_)));
    }

    #[test]
    fn a_line_without_a_kernel_misses_the_bar_with_its_reason() {
        let lines = [line("a", &[1.5; 9]), line("b", &[])];
        let Finding::Missed(text) = judge(&lines, MARK) else { panic!("missed") };
        assert!(text.contains("1 of 2 lines without a ratio: b: unsupported: no lowering"), "{text}");
        let Finding::Missed(text) = judge(&[line("b", &[])], MARK) else { panic!("missed") };
        assert!(text.starts_with("no line was measured"), "{text}");
        assert!(matches!(judge(&[], MARK), Finding::Missed(_)));
    }

    #[test]
    fn the_faster_of_two_rows_is_taken_and_one_without_a_time_never() {
        let of = |ours: &[f64]| row_for_tests("a", &[(OURS, ours), ("x", &[5.0])]);
        let (slow, quick, none) = (of(&[3.0]), of(&[2.0]), of(&[]));
        assert_eq!(faster(Some(&slow), Some(&quick)), Some(&quick));
        assert_eq!(faster(Some(&quick), Some(&slow)), Some(&quick));
        assert_eq!(faster(Some(&slow), Some(&none)), Some(&slow));
        assert_eq!(faster(Some(&none), Some(&slow)), Some(&slow));
        assert_eq!(faster(None, Some(&slow)), Some(&slow));
    }

    #[test]
    fn profiles_are_counted_in_their_section_alone() {
        let text = "# M\n\n## A\n\n### other\n\n## Profiles of the worst lines\n\n### a\n\nwhy\n\n### b\n\nwhy\n\n## C\n\n### d\n";
        assert_eq!((profiled(text), profiled("# M\n")), (2, 0));
    }
}
