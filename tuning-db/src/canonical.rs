//! Canonical bytes and text: what ids are computed from. Specified in `docs/database.md`, byte for byte.
//!
//! A row is written as `tilewright.<kind>.1\n`, then for each field in the documented order `<name>=<length>:<value>\n`,
//! or `<name>=-\n` when it is absent; the id is blake3 of that. The length counts bytes, so no value can imitate a
//! field. JSON follows RFC 8785 (sorted names, no spaces, shortest numbers as ECMAScript prints them), except that
//! names are sorted by their UTF-8 bytes and integers of schedules are written in full.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use search_space::{Schedule, Value};

use crate::DbError;

/// The id of an immutable row: blake3 of its canonical bytes, printed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 32]);

impl Id {
    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The id that no row has: the digest of an empty set.
    pub(crate) const ZERO: Id = Id([0; 32]);

    /// Adds `other` to, or takes it from, a set digest: exclusive or does not depend on the order.
    pub(crate) fn toggled(self, other: Id) -> Id {
        Id(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = DbError;

    /// Reads 64 lower-case hexadecimal digits.
    fn from_str(text: &str) -> Result<Id, DbError> {
        let wrong = || DbError::invalid("id", "an id is 64 lower-case hexadecimal digits");
        // `from_hex` also takes capitals, but an id has one spelling.
        let one_spelling = text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let hash = blake3::Hash::from_hex(text).ok().filter(|_| one_spelling).ok_or_else(wrong)?;
        Ok(Id(*hash.as_bytes()))
    }
}

/// The id of the workload whose canonical key is `key`.
pub fn workload_id(key: &str) -> Id {
    Canonical::new("workload").field("key", Some(key)).id()
}

/// The id of the target whose canonical key is `key`.
pub fn target_id(key: &str) -> Id {
    Canonical::new("target").field("key", Some(key)).id()
}

/// Builds the canonical bytes of one row.
pub(crate) struct Canonical(Vec<u8>);

impl Canonical {
    pub(crate) fn new(kind: &str) -> Canonical {
        Canonical(format!("tilewright.{kind}.1\n").into_bytes())
    }

    pub(crate) fn field(mut self, name: &str, value: Option<&str>) -> Canonical {
        self.0.extend_from_slice(name.as_bytes());
        match value {
            Some(value) => {
                self.0.push(b'=');
                self.0.extend_from_slice(value.len().to_string().as_bytes());
                self.0.push(b':');
                self.0.extend_from_slice(value.as_bytes());
            }
            None => self.0.extend_from_slice(b"=-"),
        }
        self.0.push(b'\n');
        self
    }

    pub(crate) fn integer(self, name: &str, value: i64) -> Canonical {
        self.field(name, Some(&value.to_string()))
    }

    pub(crate) fn real(self, name: &str, value: Option<f64>) -> Canonical {
        self.field(name, value.map(number).as_deref())
    }

    pub(crate) fn id(self) -> Id {
        Id(*blake3::hash(&self.0).as_bytes())
    }
}

/// A finite number in the shortest form that reads back equal, as ECMAScript prints it (RFC 8785, section 3.2.2.3).
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // Rust's `{:e}` has the shortest digits; only their arrangement differs.
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("invariant: {:e} prints an exponent");
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let exponent: i32 = exponent.parse().expect("invariant: {:e} prints a decimal exponent");
    let sign = if value < 0.0 { "-" } else { "" };
    let text = match exponent {
        0..=20 => {
            let whole = usize::try_from(exponent).expect("invariant: the arm admits no negative exponent") + 1;
            if digits.len() <= whole {
                format!("{digits:0<whole$}")
            } else {
                format!("{}.{}", &digits[..whole], &digits[whole..])
            }
        }
        -6..=-1 => {
            let zeros = usize::try_from(-1 - exponent).expect("invariant: the arm admits -6..=-1");
            format!("0.{}{digits}", "0".repeat(zeros))
        }
        _ => {
            let point = if digits.len() > 1 { "." } else { "" };
            format!(
                "{}{point}{}e{}{}",
                &digits[..1],
                &digits[1..],
                if exponent < 0 { '-' } else { '+' },
                exponent.abs()
            )
        }
    };
    format!("{sign}{text}")
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Samples as a JSON array.
pub(crate) fn samples_json(samples: &[f64]) -> String {
    let numbers: Vec<String> = samples.iter().map(|sample| number(*sample)).collect();
    format!("[{}]", numbers.join(","))
}

/// A schedule as a JSON object of integers and strings.
pub fn schedule_json(schedule: &Schedule) -> String {
    object(schedule.iter().map(|(name, value)| match value {
        Value::Int(value) => (name, value.to_string()),
        Value::Name(value) => (name, string(value)),
    }))
}

/// Names and strings as a JSON object.
pub(crate) fn strings_json(strings: &BTreeMap<String, String>) -> String {
    object(strings.iter().map(|(name, value)| (name.as_str(), string(value))))
}

// The names come in byte order: both callers hold them in a `BTreeMap`.
fn object<'a>(fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_ecmascript_prints_them() {
        // The examples of RFC 8785, appendix B.
        for (bits, text) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        ] {
            assert_eq!(number(f64::from_bits(bits)), text);
        }
    }

    #[test]
    fn ids_round_trip_and_refuse_other_text() {
        let id = workload_id("tw1;x");
        assert_eq!(id.to_string().parse::<Id>().unwrap(), id);
        for bad in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<Id>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_cannot_imitate_a_field() {
        let one = Canonical::new("x").field("a", Some("1\nb=1:2")).id();
        let two = Canonical::new("x").field("a", Some("1")).field("b", Some("2")).id();
        assert_ne!(one, two);
        assert_ne!(Canonical::new("x").field("a", None).id(), Canonical::new("x").field("a", Some("")).id());
    }

    #[test]
    fn json_is_sorted_and_escaped() {
        let schedule: Schedule = [("b", "q\"\n\u{1}".into()), ("a", Value::Int(i64::MIN))].into_iter().collect();
        assert_eq!(schedule_json(&schedule), r#"{"a":-9223372036854775808,"b":"q\"\n\u0001"}"#);
    }
}
