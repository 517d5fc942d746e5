//! Values of foreign parameters. Here a value is an integer or a name, so:
//!
//! - numbers that are integers are integers, also when written `2.0`, `1e3` or in quotes;
//! - `true` and `false` are 1 and 0, as in arithmetic of Python;
//! - other numbers are names such as `0.5`: they can be compared for equality, not calculated with;
//! - other texts are names.

use search_space::Value;

/// Values above this are not exact as a floating-point number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The value of a JSON scalar; `None` for null, lists and objects.
pub(crate) fn of_json(value: &serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::Bool(value) => Some(Value::Int(i64::from(*value))),
        serde_json::Value::Number(number) => {
            Some(number.as_i64().map_or_else(|| of_number(number.as_f64().unwrap_or(f64::NAN)), Value::Int))
        }
        serde_json::Value::String(text) => Some(of_quoted(text)),
        _ => None,
    }
}

/// The value of a TOML scalar; `None` for dates, lists and tables.
pub(crate) fn of_toml(value: &toml::Value) -> Option<Value> {
    match value {
        toml::Value::Boolean(value) => Some(Value::Int(i64::from(*value))),
        toml::Value::Integer(value) => Some(Value::Int(*value)),
        toml::Value::Float(value) => Some(of_number(*value)),
        toml::Value::String(text) => Some(of_quoted(text)),
        _ => None,
    }
}

/// The value of a number.
pub(crate) fn of_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^53")]
        let whole = number as i64;
        return Value::Int(whole);
    }
    Value::Name(number.to_string())
}

/// The value of a text in quotes.
pub(crate) fn of_quoted(text: &str) -> Value {
    text.parse().map_or_else(|_| Value::Name(text.to_owned()), Value::Int)
}

/// The value of a field of a table, where nothing tells texts from numbers.
pub(crate) fn of_field(text: &str) -> Value {
    match text {
        "True" | "true" | "TRUE" => Value::Int(1),
        "False" | "false" | "FALSE" => Value::Int(0),
        _ => match of_quoted(text) {
            Value::Name(name) => name.parse().map_or(Value::Name(name), of_number),
            whole => whole,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_integers_however_they_are_written() {
        for (json, wanted) in [
            ("3", Some(3.into())),
            ("3.0", Some(3.into())),
            ("-1e3", Some((-1000).into())),
            ("\"16\"", Some(16.into())),
            ("true", Some(1.into())),
            ("0.5", Some("0.5".into())),
            ("1e300", Some(Value::Name(1e300.to_string()))),
            ("\"wide\"", Some("wide".into())),
            ("\"true\"", Some("true".into())),
            ("null", None),
            ("[1]", None),
        ] {
            assert_eq!(of_json(&serde_json::from_str(json).unwrap()), wanted, "{json}");
        }
    }

    #[test]
    fn fields_of_a_table_mean_the_same() {
        for (field, wanted) in
            [("3", 3.into()), ("3.0", 3.into()), ("True", 1.into()), ("0.50", "0.5".into()), ("a b", "a b".into())]
        {
            assert_eq!(of_field(field), wanted, "{field}");
        }
    }
}
