//! A node together with what is known about its inputs: typed access to attributes, shapes and constants.

use super::proto::{AttributeProto, NodeProto, TensorProto, attribute_type};
use super::value::{Elements, Unknown, Value};

/// A node and the values of its inputs.
pub(crate) struct Call<'a> {
    /// The node.
    pub(crate) node: &'a NodeProto,
    /// What is known about each input; `None` for an optional input left out.
    pub(crate) inputs: Vec<Option<&'a Value>>,
}

impl<'a> Call<'a> {
    /// Input `index`, if given.
    pub(crate) fn optional(&self, index: usize) -> Option<&'a Value> {
        self.inputs.get(index).copied().flatten()
    }

    /// Input `index`.
    pub(crate) fn input(&self, index: usize) -> Result<&'a Value, Unknown> {
        self.optional(index).ok_or_else(|| Unknown::because(format!("{} lacks its input {index}", self.node.op_type)))
    }

    /// Shape of input `index`.
    pub(crate) fn shape(&self, index: usize) -> Result<&'a [u64], Unknown> {
        self.input(index)?.shape.as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    /// Element type of input `index`.
    pub(crate) fn dtype(&self, index: usize) -> Option<i32> {
        self.optional(index).and_then(|value| value.dtype)
    }

    /// The integers of the constant input `index`; an error when it is given but not constant.
    pub(crate) fn constant_ints(&self, index: usize) -> Result<Option<&'a [i64]>, Unknown> {
        let Some(value) = self.optional(index) else { return Ok(None) };
        if let Err(why) = &value.shape {
            return Err(why.clone());
        }
        value.as_ints().map(Some).ok_or_else(|| self.not_constant(index))
    }

    /// The numbers of the constant input `index`; an error when it is given but not constant. Empty counts as left out.
    pub(crate) fn constant_floats(&self, index: usize) -> Result<Option<&'a [f64]>, Unknown> {
        match self.optional(index).map(|value| (&value.shape, &value.elements)) {
            None => Ok(None),
            Some((Ok(shape), _)) if shape.contains(&0) => Ok(None),
            Some((_, Some(Elements::Floats(floats)))) => Ok(Some(floats)),
            Some((Err(why), _)) => Err(why.clone()),
            Some(_) => Err(self.not_constant(index)),
        }
    }

    fn not_constant(&self, index: usize) -> Unknown {
        let name = self.node.input.get(index).map_or("", String::as_str);
        Unknown::because(format!("{} needs \"{name}\", which is computed from data", self.node.op_type))
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.node.attribute.iter().find(|attribute| attribute.name == name)
    }

    /// The attribute when it has the wanted type. Files older than IR version 3 carry no type.
    fn typed(&self, name: &str, wanted: i32, word: &str) -> Result<Option<&'a AttributeProto>, Unknown> {
        match self.attribute(name) {
            Some(attribute) if attribute.r#type != wanted && attribute.r#type != 0 => {
                Err(Unknown::because(format!("attribute \"{name}\" of {} is no {word}", self.node.op_type)))
            }
            found => Ok(found),
        }
    }

    /// An integer attribute.
    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>, Unknown> {
        Ok(self.typed(name, attribute_type::INT, "integer")?.map(|attribute| attribute.i))
    }

    /// An integer attribute that is 0 or 1.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Unknown> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    /// A floating-point attribute.
    pub(crate) fn float(&self, name: &str) -> Result<Option<f32>, Unknown> {
        Ok(self.typed(name, attribute_type::FLOAT, "number")?.map(|attribute| attribute.f))
    }

    /// A list of integers.
    pub(crate) fn ints(&self, name: &str) -> Result<Option<&'a [i64]>, Unknown> {
        Ok(self.typed(name, attribute_type::INTS, "list of integers")?.map(|attribute| attribute.ints.as_slice()))
    }

    /// A list of numbers.
    pub(crate) fn floats(&self, name: &str) -> Result<Option<&'a [f32]>, Unknown> {
        Ok(self.typed(name, attribute_type::FLOATS, "list of numbers")?.map(|attribute| attribute.floats.as_slice()))
    }

    /// A text; bytes that are not UTF-8 count as unknown text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Unknown> {
        Ok(self
            .typed(name, attribute_type::STRING, "text")?
            .map(|attribute| std::str::from_utf8(&attribute.s).unwrap_or("?")))
    }

    /// A tensor.
    pub(crate) fn tensor(&self, name: &str) -> Result<Option<&'a TensorProto>, Unknown> {
        Ok(self.typed(name, attribute_type::TENSOR, "tensor")?.and_then(|attribute| attribute.t.as_ref()))
    }

    /// A list of integers that older operator sets give as an attribute and newer ones as input `index`.
    pub(crate) fn ints_or_input(&self, name: &str, index: usize) -> Result<Option<&'a [i64]>, Unknown> {
        match self.ints(name)? {
            Some(ints) => Ok(Some(ints)),
            None => self.constant_ints(index),
        }
    }
}

/// Turns an axis of `-rank..rank` into one of `0..rank`.
pub(crate) fn axis_in(axis: i64, rank: usize) -> Result<usize, Unknown> {
    let rank_signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let shifted = if axis < 0 { axis.checked_add(rank_signed) } else { Some(axis) };
    shifted
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|axis| *axis < rank)
        .ok_or_else(|| Unknown::because(format!("axis {axis} is outside a tensor of {rank} dimensions")))
}
