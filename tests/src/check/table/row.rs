//! One line of the joint table: what each system took in each round, and what follows from the rounds as pairs.

use std::time::Duration;

use datasets::suite::Line;
use search_space::workload::MathMode;
use serde_json::{Map, Value, json};

use crate::check::ratio::{Ratio, median};

/// Our name in the table.
pub(crate) const OURS: &str = "tilewright";

/// What a system took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System {
    /// Its name.
    pub(crate) name: String,
    /// Median nanoseconds of one call in each round, or why there are none.
    pub(crate) result: Result<Vec<f64>, String>,
}

/// One workload, all systems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) line: Line,
    /// Mathematics that our kernel was generated for.
    pub(crate) math: MathMode,
    /// Whether the output was read inside of the time.
    pub(crate) reader: bool,
    /// We come first.
    pub(crate) systems: Vec<System>,
    /// Load averages before and after.
    pub(crate) load: [Option<f64>; 2],
    /// From the first preparation to the last round.
    pub(crate) took: Duration,
}

impl Row {
    /// A row without a time of ours, on which the peers need not be measured.
    pub(crate) fn without_ours(line: Line, math: MathMode, reader: bool, why: String) -> Row {
        let ours = System { name: OURS.into(), result: Err(why) };
        Row { line, math, reader, systems: vec![ours], load: [None; 2], took: Duration::ZERO }
    }

    fn times(&self, name: &str) -> Option<&[f64]> {
        let system = self.systems.iter().find(|system| system.name == name)?;
        system.result.as_deref().ok().filter(|times| !times.is_empty())
    }

    /// Our times in nanoseconds.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn ours(&self) -> Result<&[f64], String> {
        match self.systems.iter().find(|system| system.name == OURS) {
            Some(System { result: Err(why), .. }) => Err(why.clone()),
            _ => self.times(OURS).ok_or_else(|| "not measured".into()),
        }
    }

    /// The other systems that have times.
    fn peers(&self) -> impl Iterator<Item = (&str, &[f64])> {
        let others = self.systems.iter().filter(|system| system.name != OURS);
        others.filter_map(|system| Some((system.name.as_str(), self.times(&system.name)?)))
    }

    /// The peer of the least median time.
    pub(crate) fn best_peer(&self) -> Option<&str> {
        let timed = self.peers().filter_map(|(name, times)| Some((name, median(times)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
    }

    /// The peer's time ÷ ours, round by round: above 1 we are faster.
    ///
    /// # Errors
    /// Why one of both has no times.
    pub(crate) fn ratios(&self, peer: &str) -> Result<Vec<f64>, String> {
        let ours = self.ours()?;
        let theirs = self.times(peer).ok_or_else(|| format!("{peer} was not measured"))?;
        Ok(theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect())
    }

    /// As [`Row::ratios`], of the best peer.
    ///
    /// # Errors
    /// Why there is no such pair.
    pub(crate) fn ratios_to_best(&self) -> Result<Vec<f64>, String> {
        self.ours()?;
        self.ratios(self.best_peer().ok_or("no peer was measured")?)
    }

    /// Billions of operations a second, or of bytes where the line counts those.
    fn rate(&self, ns: f64) -> f64 {
        self.line.flops.unwrap_or(self.line.bytes) as f64 / ns
    }

    fn unit(&self) -> &'static str {
        if self.line.flops.is_some() { "GFLOP/s" } else { "GB/s" }
    }

    /// For people: our time and rate, the best peer, the ratio to each peer with its interval.
    pub(crate) fn text(&self) -> String {
        let ms = |times: &[f64]| median(times).unwrap_or(f64::NAN) / 1e6;
        let ours = match self.ours() {
            Ok(times) => format!("{:9.4} ms {:7.1} {}", ms(times), self.rate(ms(times) * 1e6), self.unit()),
            Err(why) => format!("no time: {why}"),
        };
        let best = match self.best_peer() {
            Some(peer) => format!("{peer} {:.4} ms", self.times(peer).map_or(f64::NAN, ms)),
            None => "none".into(),
        };
        let each = self.systems.iter().filter(|system| system.name != OURS).map(|system| {
            let ratio = self.ratios(&system.name).ok().and_then(|ratios| Ratio::of(&ratios));
            match (ratio, &system.result) {
                (Some(ratio), _) => {
                    format!("{} {:.3} [{:.3}, {:.3}]", system.name, ratio.median, ratio.low, ratio.high)
                }
                (None, Ok(times)) => format!("{} {:.4} ms", system.name, ms(times)),
                (None, Err(_)) => format!("{} -", system.name),
            }
        });
        let name = match (self.line.has_math(), self.reader) {
            (true, _) => format!("{} ({})", self.line.name, self.math.as_str()),
            (false, true) => format!("{} (read)", self.line.name),
            (false, false) => self.line.name.clone(),
        };
        let each = each.collect::<Vec<_>>().join(", ");
        let load = self.load[1].map_or(String::new(), |load| format!(" | load {load}"));
        format!("{name:28} | {ours} | best peer {best} | {each}{load}")
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let interval = |ratios: Result<Vec<f64>, String>| {
            let ratio = ratios.ok().and_then(|ratios| Ratio::of(&ratios));
            ratio.map(|ratio| json!({ "median": ratio.median, "low": ratio.low, "high": ratio.high }))
        };
        let systems: Vec<Value> = self.systems.iter().map(|system| system_json(system, self)).collect();
        let ratios: Map<String, Value> =
            self.peers().map(|(name, _)| (name.to_owned(), json!(interval(self.ratios(name))))).collect();
        json!({
            "name": self.line.name,
            "flops": self.line.flops,
            "bytes": self.line.bytes,
            "unit": self.unit(),
            "math": self.math.as_str(),
            "reader": self.reader,
            "systems": systems,
            "best_peer": self.best_peer(),
            "ratio": interval(self.ratios_to_best()),
            "ratios": ratios,
            "load": self.load,
            "took_s": self.took.as_secs_f64(),
        })
    }
}

fn system_json(system: &System, row: &Row) -> Value {
    let times = system.result.as_deref().unwrap_or_default();
    let middle = median(times);
    json!({
        "name": system.name,
        "ok": system.result.is_ok(),
        "why": system.result.as_ref().err(),
        "rounds_ms": times.iter().map(|ns| ns / 1e6).collect::<Vec<_>>(),
        "ms": middle.map(|ns| ns / 1e6),
        "rate": middle.map(|ns| row.rate(ns)),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of these systems: name and nanoseconds of each round, none for one without a time.
    pub(crate) fn row(name: &str, systems: &[(&str, &[f64])]) -> Row {
        let line = json!({ "name": name, "op": "matmul", "dtype": "f32", "shape": {}, "flops": 2000, "bytes": 10 });
        let system = |(name, times): &(&str, &[f64])| System {
            name: (*name).into(),
            result: if times.is_empty() { Err("unsupported: no such thing".into()) } else { Ok(times.to_vec()) },
        };
        Row {
            line: serde_json::from_value(line).unwrap(),
            math: MathMode::Ieee,
            reader: false,
            systems: systems.iter().map(system).collect(),
            load: [None; 2],
            took: Duration::ZERO,
        }
    }

    #[test]
    fn ratios_are_paired_by_round_so_that_a_slow_round_cancels() {
        let row =
            row("a", &[(OURS, &[100.0, 300.0, 100.0]), ("x", &[150.0, 450.0, 150.0]), ("y", &[120.0, 900.0, 130.0])]);
        assert_eq!(row.ratios("x").unwrap(), [1.5; 3]);
        assert_eq!(row.best_peer(), Some("y"), "by its median");
        assert_eq!(row.ratios_to_best().unwrap(), [1.2, 3.0, 1.3]);
        let text = row.text();
        assert!(text.contains("20.0 GFLOP/s | best peer y 0.0001 ms | x 1.500 [1.500, 1.500], y 1.300"), "{text}");
        let json = row.json();
        assert_eq!((&json["best_peer"], &json["ratio"]["median"]), (&"y".into(), &1.3.into()));
        assert_eq!(json["ratios"]["x"]["low"], 1.5);
        assert_eq!(json["systems"][0]["rounds_ms"][1], 0.0003);
    }

    #[test]
    fn what_was_not_measured_says_why_and_is_no_peer() {
        let without_us = row("a", &[(OURS, &[]), ("x", &[150.0])]);
        assert_eq!(without_us.ratios_to_best().unwrap_err(), "unsupported: no such thing");
        assert!(
            without_us.text().contains("no time: unsupported: no such thing | best peer x 0.0001 ms | x 0.0001 ms")
        );
        assert_eq!(without_us.json()["ratio"], Value::Null);
        let alone = row("a", &[(OURS, &[1.0]), ("x", &[])]);
        assert_eq!(alone.ratios_to_best().unwrap_err(), "no peer was measured");
        assert!(alone.text().contains("best peer none | x -"));
    }
}
