//! Numbers as people read them.

use std::time::Duration;

/// Milliseconds with three significant digits or more: `0.0123`, `1.23`, `1234`.
#[must_use]
pub fn milliseconds(seconds: f64) -> String {
    significant(seconds * 1e3)
}

/// A rate as `GFLOP/s`; `-` when nothing is known.
#[must_use]
pub fn gflops(flops: u64, seconds: f64) -> String {
    if flops > 0 && seconds > 0.0 {
        format!("{} GFLOP/s", significant(flops as f64 / seconds / 1e9))
    } else {
        "-".into()
    }
}

/// Three significant digits, without an exponent.
#[must_use]
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let mut digits = 0;
    let mut magnitude = value.abs();
    while magnitude < 100.0 && digits < 12 {
        magnitude *= 10.0;
        digits += 1;
    }
    format!("{value:.digits$}")
}

/// A count with a decimal prefix: `950`, `12.3 k`, `1.07 GB`.
#[must_use]
pub fn scaled(value: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut at) = (value, 0);
    while value >= 999.5 && at + 1 < prefixes.len() {
        value /= 1e3;
        at += 1;
    }
    let number = if value.fract() == 0.0 { format!("{value}") } else { significant(value) };
    format!("{number} {}{unit}", prefixes[at]).trim_end().to_owned()
}

/// A duration for people: `4.2 s`, `3 min 20 s`, `2 h 5 min`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..100 => format!("{:.1} s", time.as_secs_f64()),
        100..7200 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// `1 run`, `2 runs`.
#[must_use]
pub fn several(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A large count: exact, with thousands separated.
#[must_use]
pub fn count(n: u128) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(milliseconds(0.000_812_34), "0.812");
        assert_eq!(milliseconds(1.234_5), "1234");
        assert_eq!(gflops(33_554_432, 0.000_5), "67.1 GFLOP/s");
        assert_eq!(gflops(0, 1.0), "-");
        assert_eq!(
            (significant(0.000_031_4), significant(0.9994), significant(12.34)),
            ("0.0000314".into(), "0.999".into(), "12.3".into())
        );
        assert_eq!((scaled(950.0, ""), scaled(12_345.0, "")), ("950".into(), "12.3 k".into()));
        assert_eq!((scaled(1.074e9, "B"), scaled(0.0, "B")), ("1.07 GB".into(), "0 B".into()));
        assert_eq!(duration(Duration::from_millis(4_240)), "4.2 s");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration(Duration::from_secs(7_500)), "2 h 5 min");
        assert_eq!((several(1, "run"), several(2, "run")), ("1 run".into(), "2 runs".into()));
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
    }
}
