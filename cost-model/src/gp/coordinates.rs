//! What the kernel measures distance along.
//!
//! | values | coordinates |
//! | --- | --- |
//! | positive integers | the logarithm, scaled to `0..=1` |
//! | other integers | the rank, scaled to `0..=1` |
//! | integers whose largest dividing power of two does not rise with them | also the exponent of that power, scaled |
//! | names | equal or not: 0 or 1 apart |
//! | integers and `-` (does not apply) | `-` lies in the middle of the integers, and is 1 apart from them along a coordinate of its own |
//!
//! The power of two is what vector widths, banks and cache lines see of a size. Nothing depends on a parameter's name.

use search_space::Value;
use search_space::space::{Parameter, ParameterSpace};

/// One coordinate: which parameter it is of, and the distance between each two of its values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coordinate {
    pub(super) param: usize,
    /// Place of each value; values of a category are as far apart as any others.
    pub(super) places: Vec<f64>,
    pub(super) category: bool,
}

impl Coordinate {
    /// Distance between two positions of the parameter, at most 1.
    pub(super) fn distance(&self, a: u16, b: u16) -> f64 {
        let (a, b) = (self.places[usize::from(a)], self.places[usize::from(b)]);
        if self.category { f64::from(u8::from(a != b)) } else { (a - b).abs() }
    }
}

/// The coordinates of a space, in order of parameters.
pub(super) fn of(space: &ParameterSpace) -> Vec<Coordinate> {
    space.params().iter().enumerate().flat_map(|(param, parameter)| of_parameter(param, parameter)).collect()
}

fn of_parameter(param: usize, parameter: &Parameter) -> Vec<Coordinate> {
    let values = &parameter.values;
    let mut coordinates = Vec::new();
    if values.len() < 2 {
        return coordinates;
    }
    let integers = values.iter().filter(|value| matches!(value, Value::Int(_))).count();
    let names = values.len() - integers;
    if integers > 1 {
        let places = parameter.coordinates().iter().map(|place| place.unwrap_or(0.5)).collect();
        coordinates.push(Coordinate { param, places, category: false });
        coordinates.extend(powers(values).map(|places| Coordinate { param, places, category: false }));
    }
    if names > 0 {
        // All integers are one category beside the names.
        let mut next = 0.0;
        let places = values.iter().map(|value| {
            if let Value::Name(_) = value {
                next += 1.0;
                next
            } else {
                0.0
            }
        });
        coordinates.push(Coordinate { param, places: places.collect(), category: true });
    }
    coordinates
}

/// The exponents of the largest powers of two that divide the integers, scaled; `None` where they rise with the values.
fn powers(values: &[Value]) -> Option<Vec<f64>> {
    let power = |value: &Value| match value {
        Value::Int(value) if *value != 0 => Some(value.trailing_zeros().min(62)),
        _ => None,
    };
    let mut integers: Vec<(i64, u32)> = values
        .iter()
        .filter_map(|value| if let Value::Int(number) = value { Some((*number, power(value)?)) } else { None })
        .collect();
    integers.sort_unstable();
    let most = integers.iter().map(|(_, power)| *power).max().filter(|most| *most > 0)?;
    let rising = integers.windows(2).all(|pair| pair[0].1 <= pair[1].1);
    (!rising).then(|| values.iter().map(|value| f64::from(power(value).unwrap_or(0)) / f64::from(most)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use search_space::space::SpaceBuilder;

    #[test]
    fn each_kind_of_domain_has_its_coordinates() {
        let space = SpaceBuilder::new()
            .param("tile", [8, 12, 16])
            .param("doubling", [1, 2, 4])
            .param("flag", [0, 1])
            .param("one", [7])
            .names("order", &["x", "y", "z"])
            .values("grain", vec!["-".into(), 1.into(), 4.into(), 16.into()])
            .build()
            .unwrap();
        let coordinates = of(&space);
        let shape: Vec<(usize, bool)> = coordinates.iter().map(|c| (c.param, c.category)).collect();
        assert_eq!(shape, [(0, false), (0, false), (1, false), (2, false), (4, true), (5, false), (5, true)]);
        assert_eq!(coordinates[1].places, [0.75, 0.5, 1.0]);
        assert_eq!(coordinates[2].places, [0.0, 0.5, 1.0]);
        assert_eq!((coordinates[4].distance(0, 2), coordinates[4].distance(1, 1)), (1.0, 0.0));
        assert_eq!(coordinates[5].places, [0.5, 0.0, 0.5, 1.0]);
        assert_eq!((coordinates[6].distance(0, 2), coordinates[6].distance(1, 3)), (1.0, 0.0));
    }
}
