//! A recorded space under other names, to see what a strategy takes from names and values.

use std::collections::BTreeMap;

use search_space::space::SpaceBuilder;
use search_space::{RecordedSpace, Value};

/// What is hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disguise {
    /// Parameters are called p0, p1, ... in order. Constraints are rewritten.
    pub anonymous: bool,
    /// Values become 0, 1, ... in order. Constraints would speak of other values, so they go.
    pub ordinals: bool,
}

/// The same measurements under a disguise: every configuration keeps its positions.
///
/// # Errors
/// When the space cannot be built again, which would be a fault of this module.
pub fn disguised(recorded: RecordedSpace, disguise: Disguise) -> anyhow::Result<RecordedSpace> {
    if disguise == Disguise::default() {
        return Ok(recorded);
    }
    let space = recorded.space();
    let mut builder = SpaceBuilder::new();
    let mut names = BTreeMap::new();
    for (at, param) in space.params().iter().enumerate() {
        let name = if disguise.anonymous { format!("p{at}") } else { param.name.clone() };
        let values = match disguise.ordinals {
            true => (0i64..).take(param.values.len()).map(Value::Int).collect(),
            false => param.values.clone(),
        };
        builder.values(&name, values);
        if param.structural {
            builder.structural(&name);
        }
        names.insert(param.name.as_str(), name);
    }
    for constraint in space.constraints().iter().filter(|_| !disguise.ordinals) {
        if disguise.anonymous {
            let text = rename(&constraint.text, &names);
            builder.require(&text, &text);
        } else {
            builder.require(&constraint.name, &constraint.text);
        }
    }
    let rows: Vec<_> = recorded.rows().map(|(config, row)| (config, *row)).collect();
    builder.table(rows.iter().map(|(config, _)| config.to_vec()).collect());
    let mut disguised = RecordedSpace::new(&recorded.name, &recorded.kernel, &recorded.device, builder.build()?, rows)?;
    disguised.problem = recorded.problem;
    Ok(disguised)
}

/// A constraint with other names for its parameters, which must need no back quotes. Text between quotes is a value.
fn rename(text: &str, names: &BTreeMap<&str, String>) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut renamed = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\'' | '`' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            first if word(first) => rest.find(|c: char| !word(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (part, after) = rest.split_at(len);
        let name = match first {
            '`' => part.trim_matches('`'),
            // Of a parameter with such a name the text has it in back quotes.
            _ if matches!(part, "in" | "min" | "max" | "ceildiv") => "",
            _ => part,
        };
        renamed.push_str(names.get(name).map_or(part, String::as_str));
        rest = after;
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_outside_quotes_are_renamed() {
        let name = |name: &str, new: &str| (name.to_owned(), new.to_owned());
        let all = [name("m", "p0"), name("mr", "p1"), name("min", "p2"), name("a b", "p3")];
        let names = all.iter().map(|(name, new)| (name.as_str(), new.clone())).collect();
        let text = "m * mr % 8 == 0 && order != 'm' => min(mrx, m) <= `min` + `a b`";
        assert_eq!(rename(text, &names), "p0 * p1 % 8 == 0 && order != 'm' => min(mrx, p0) <= p2 + p3");
    }
}
