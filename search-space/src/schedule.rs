//! A schedule: named parameter values. Files and databases store these names and values, never indices into a space.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One parameter value: an integer, or a name such as a loop order. A parameter that does not apply holds `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, such as a tile size.
    Int(i64),
    /// A name, such as `masked`.
    Name(String),
}

impl Value {
    /// The value of a parameter that does not apply.
    pub fn none() -> Value {
        Value::Name("-".into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Name(value.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(value) => write!(f, "{value}"),
            Value::Name(name) => f.write_str(name),
        }
    }
}

/// Named parameter values in name order, so that equal schedules have equal text.
///
/// ```
/// use tilewright_search_space::Schedule;
/// let schedule: Schedule = [("mr", 6.into()), ("order", "jc.pc.ic".into())].into_iter().collect();
/// assert_eq!(schedule.to_string(), "mr=6 order=jc.pc.ic");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule(BTreeMap<String, Value>);

impl Schedule {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The integer value of `name`; `None` when absent or a name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(Value::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The name held by `name`; `None` when absent or an integer.
    pub fn name(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Name(value)) => Some(value),
            _ => None,
        }
    }

    /// Sets `name` to `value`.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// All values in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many parameters are set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no parameter is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Schedule {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(values: I) -> Schedule {
        Schedule(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{name}={value}")?;
        }
        Ok(())
    }
}
