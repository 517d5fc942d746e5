//! What is known about a value of the graph: element type, shape, and the elements of small constants.

use std::rc::Rc;

use super::bindings::Bindings;
use super::proto::{Dimension, TensorProto, TensorTypeProto, data_type};

/// Constants above this many elements are not followed: shapes and axes are short lists.
pub(crate) const MAX_FOLDED: usize = 256;

/// Reasons are cut to this many characters: they quote lists from the file.
const MAX_REASON: usize = 400;

/// Tensors above this rank are not followed, which bounds the work per node.
pub(crate) const MAX_RANK: usize = 64;

/// Why something about a value is not known. The first cause is handed on to everything that depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unknown(Rc<str>);

impl Unknown {
    /// Not known for this reason.
    pub(crate) fn because(reason: impl AsRef<str>) -> Unknown {
        let reason = reason.as_ref();
        match reason.char_indices().nth(MAX_REASON) {
            Some((end, _)) => Unknown(Rc::from(format!("{}...", &reason[..end]))),
            None => Unknown(Rc::from(reason)),
        }
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A shape, outermost dimension first.
pub(crate) type Shape = Vec<u64>;

/// The elements of a small constant, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    /// Integers and booleans.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
}

/// What is known about a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// ONNX element type; `None` when not known.
    pub(crate) dtype: Option<i32>,
    /// Shape.
    pub(crate) shape: Result<Shape, Unknown>,
    /// Elements, when it is a small constant. Their number is the product of the shape.
    pub(crate) elements: Option<Elements>,
}

impl Value {
    /// A value of known shape.
    pub(crate) fn new(dtype: Option<i32>, shape: Shape) -> Value {
        let shape = if shape.len() > MAX_RANK { Err(Unknown::because("its rank is above 64")) } else { Ok(shape) };
        Value { dtype, shape, elements: None }
    }

    /// A value about which nothing but a reason is known.
    pub(crate) fn unknown(dtype: Option<i32>, why: Unknown) -> Value {
        Value { dtype, shape: Err(why), elements: None }
    }

    /// A constant list of integers.
    pub(crate) fn ints(shape: Shape, ints: Vec<i64>) -> Value {
        Value { dtype: Some(data_type::INT64), shape: Ok(shape), elements: Some(Elements::Ints(ints)) }
    }

    /// The elements of an integer constant.
    pub(crate) fn as_ints(&self) -> Option<&[i64]> {
        match &self.elements {
            Some(Elements::Ints(ints)) => Some(ints),
            _ => None,
        }
    }

    /// The declared type of a graph input, output or inner value.
    pub(crate) fn declared(name: &str, tensor: &TensorTypeProto, bindings: &Bindings) -> Value {
        let dtype = Some(tensor.elem_type).filter(|code| *code != 0);
        let Some(shape) = &tensor.shape else {
            return Value::unknown(dtype, Unknown::because(format!("the model gives no shape for \"{name}\"")));
        };
        let mut known = Vec::with_capacity(shape.dim.len());
        for (axis, dim) in shape.dim.iter().enumerate() {
            // Old exporters write 0 or -1 for "decided at run time".
            let (label, bound) = match &dim.value {
                Some(Dimension::Value(size)) if *size > 0 => (String::new(), Some(size.unsigned_abs())),
                Some(Dimension::Param(param)) if !param.is_empty() => (param.clone(), bindings.get(param)),
                _ => {
                    let label = format!("{name}.{axis}");
                    let bound = bindings.get(&label);
                    (label, bound)
                }
            };
            match bound {
                Some(size) => known.push(size),
                None => {
                    return Value::unknown(
                        dtype,
                        Unknown::because(format!(
                            "dimension {axis} of \"{name}\" has no fixed size; bind it, for example \"{label}=1\""
                        )),
                    );
                }
            }
        }
        Value::new(dtype, known)
    }

    /// A stored constant.
    pub(crate) fn constant(tensor: &TensorProto) -> Value {
        let dtype = Some(tensor.data_type).filter(|code| *code != 0);
        let shape: Option<Shape> = tensor.dims.iter().map(|dim| u64::try_from(*dim).ok()).collect();
        let Some(shape) = shape else {
            return Value::unknown(dtype, Unknown::because("a constant has a negative dimension"));
        };
        let mut value = Value::new(dtype, shape);
        if let Ok(shape) = &value.shape {
            value.elements = element_count(shape)
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| *count <= MAX_FOLDED)
                .and_then(|count| stored_elements(tensor, count));
        }
        value
    }
}

/// Product of the dimensions; `None` above `u64::MAX`.
pub(crate) fn element_count(shape: &[u64]) -> Option<u64> {
    // A zero makes the product zero even where the other factors overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))
}

/// Decodes `count` elements; `None` when they are missing, elsewhere, or of a type that is not folded.
fn stored_elements(tensor: &TensorProto, count: usize) -> Option<Elements> {
    if tensor.data_location == 1 {
        return None;
    }
    let raw: &[u8] = &tensor.raw_data;
    let is_float = matches!(tensor.data_type, data_type::FLOAT | data_type::DOUBLE);
    if !raw.is_empty() {
        let width = match tensor.data_type {
            data_type::BOOL | data_type::UINT8 | data_type::INT8 => 1,
            data_type::UINT16 | data_type::INT16 => 2,
            data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
            data_type::DOUBLE | data_type::INT64 | data_type::UINT64 => 8,
            _ => return None,
        };
        if raw.len() != count.checked_mul(width)? {
            return None;
        }
        return if is_float {
            Some(Elements::Floats(raw.chunks_exact(width).map(float_from).collect::<Option<_>>()?))
        } else {
            let signed =
                matches!(tensor.data_type, data_type::INT8 | data_type::INT16 | data_type::INT32 | data_type::INT64);
            Some(Elements::Ints(raw.chunks_exact(width).map(|bytes| int_from(bytes, signed)).collect::<Option<_>>()?))
        };
    }
    let elements = match tensor.data_type {
        data_type::FLOAT => Elements::Floats(tensor.float_data.iter().map(|x| f64::from(*x)).collect()),
        data_type::DOUBLE => Elements::Floats(tensor.double_data.clone()),
        data_type::INT64 => Elements::Ints(tensor.int64_data.clone()),
        data_type::INT32
        | data_type::INT16
        | data_type::INT8
        | data_type::UINT16
        | data_type::UINT8
        | data_type::BOOL => Elements::Ints(tensor.int32_data.iter().map(|x| i64::from(*x)).collect()),
        _ => return None,
    };
    let stored = match &elements {
        Elements::Ints(ints) => ints.len(),
        Elements::Floats(floats) => floats.len(),
    };
    (stored == count).then_some(elements)
}

/// A little-endian float of 4 or 8 bytes.
fn float_from(bytes: &[u8]) -> Option<f64> {
    match bytes.len() {
        4 => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        _ => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
    }
}

/// A little-endian integer of up to 8 bytes; `None` for an unsigned one above `i64::MAX`.
fn int_from(bytes: &[u8], signed: bool) -> Option<i64> {
    let mut wide = [if signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 }; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = i64::from_le_bytes(wide);
    (signed || value >= 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_integers_keep_their_sign_and_width() {
        assert_eq!(int_from(&[0xff], true), Some(-1));
        assert_eq!(int_from(&[0xff], false), Some(255));
        assert_eq!(int_from(&[0xfe, 0xff], true), Some(-2));
        assert_eq!(int_from(&[0xff; 8], false), None);
    }

    #[test]
    fn a_constant_whose_bytes_do_not_fit_its_shape_has_no_elements() {
        let mut tensor =
            TensorProto { dims: vec![2], data_type: data_type::INT64, int64_data: vec![3, 4], ..Default::default() };
        assert_eq!(Value::constant(&tensor).as_ints(), Some(&[3, 4][..]));
        tensor.int64_data.push(5);
        assert_eq!(Value::constant(&tensor).elements, None);
        tensor.raw_data = vec![0; 15].into();
        assert_eq!(Value::constant(&tensor).elements, None);
        tensor.raw_data = vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0].into();
        assert_eq!(Value::constant(&tensor).as_ints(), Some(&[1, 2][..]));
    }

    #[test]
    fn reasons_are_bounded() {
        assert_eq!(Unknown::because("é".repeat(10_000)).to_string().chars().count(), MAX_REASON + 3);
    }

    #[test]
    fn ranks_are_bounded() {
        assert!(Value::new(None, vec![1; MAX_RANK]).shape.is_ok());
        assert!(Value::new(None, vec![1; MAX_RANK + 1]).shape.is_err());
    }

    #[test]
    fn products_do_not_wrap() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[u64::MAX, 2]), None);
        assert_eq!(element_count(&[u64::MAX, 2, 0]), Some(0));
    }
}
