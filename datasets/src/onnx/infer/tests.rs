//! One line per operator and rule: node, inputs, expected shapes.

use super::super::call::Call;
use super::super::proto::{AttributeProto, NodeProto, TensorProto, attribute_type, data_type};
use super::super::value::{Elements, Value};
use super::infer;

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: attribute_type::INT, ..Default::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), ints: ints.to_vec(), r#type: attribute_type::INTS, ..Default::default() }
}

fn text(name: &str, text: &str) -> AttributeProto {
    AttributeProto { name: name.into(), s: text.into(), r#type: attribute_type::STRING, ..Default::default() }
}

fn tensor(dims: &[u64]) -> Value {
    Value::new(Some(data_type::FLOAT), dims.to_vec())
}

fn list(ints: &[i64]) -> Value {
    Value::ints(vec![ints.len() as u64], ints.to_vec())
}

fn floats(floats: &[f64]) -> Value {
    let mut value = tensor(&[floats.len() as u64]);
    value.elements = Some(Elements::Floats(floats.to_vec()));
    value
}

fn run(op: &str, inputs: &[Value], outputs: usize, attribute: Vec<AttributeProto>) -> Result<Vec<Value>, String> {
    let node = NodeProto { op_type: op.into(), output: vec!["y".into(); outputs], attribute, ..Default::default() };
    infer(&Call { node: &node, inputs: inputs.iter().map(Some).collect() }).map_err(|why| why.to_string())
}

/// Shape of the first output.
fn shape(op: &str, inputs: &[Value], attribute: Vec<AttributeProto>) -> Result<Vec<u64>, String> {
    run(op, inputs, 1, attribute)?.remove(0).shape.map_err(|why| why.to_string())
}

/// Elements of the folded first output.
fn folded(op: &str, inputs: &[Value], attribute: Vec<AttributeProto>) -> Vec<i64> {
    run(op, inputs, 1, attribute).unwrap()[0].as_ints().unwrap().to_vec()
}

fn is(op: &str, inputs: &[Value], attribute: Vec<AttributeProto>, wanted: &[u64]) {
    assert_eq!(shape(op, inputs, attribute), Ok(wanted.to_vec()), "{op}");
}

fn fails(op: &str, inputs: &[Value], attribute: Vec<AttributeProto>) {
    let result = shape(op, inputs, attribute);
    assert!(result.is_err(), "{op}: {result:?}");
}

#[test]
fn convolutions_and_pools() {
    let image = tensor(&[2, 6, 20, 21]);
    is("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![], &[2, 8, 18, 19]);
    is("Conv", &[image.clone(), tensor(&[8, 3, 3, 3])], vec![int("group", 2)], &[2, 8, 18, 19]);
    is("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![ints("dilations", &[2, 3])], &[2, 8, 16, 15]);
    is("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![ints("pads", &[1, 0, 2, 0])], &[2, 8, 21, 19]);
    let same = vec![text("auto_pad", "SAME_LOWER"), ints("strides", &[2, 2])];
    is("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], same, &[2, 8, 10, 11]);
    let valid = vec![text("auto_pad", "VALID"), ints("pads", &[1, 1, 1, 1])];
    is("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], valid, &[2, 8, 18, 19]);
    is("Conv", &[tensor(&[1, 3, 9]), tensor(&[4, 3, 3])], vec![], &[1, 4, 7]);
    fails("Conv", &[image.clone(), tensor(&[8, 5, 3, 3])], vec![]);
    fails("Conv", &[image.clone(), tensor(&[7, 3, 3, 3])], vec![int("group", 2)]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![int("group", 0)]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![ints("kernel_shape", &[3, 5])]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![ints("strides", &[0, 1])]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![ints("pads", &[-1, 0, 0, 0])]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 3, 3])], vec![text("auto_pad", "SOMEHOW")]);
    fails("Conv", &[image.clone(), tensor(&[8, 6, 21, 3])], vec![]);
    fails("Conv", &[tensor(&[2, 6]), tensor(&[8, 6])], vec![]);
    let window = || vec![ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2])];
    is("MaxPool", std::slice::from_ref(&image), window(), &[2, 6, 9, 10]);
    let up = [window(), vec![int("ceil_mode", 1)]].concat();
    is("AveragePool", std::slice::from_ref(&image), up, &[2, 6, 10, 10]);
    fails("MaxPool", std::slice::from_ref(&image), vec![]);
    is("GlobalAveragePool", std::slice::from_ref(&image), vec![], &[2, 6, 1, 1]);
    let up = vec![ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1]), ints("output_padding", &[1, 1])];
    is("ConvTranspose", &[image.clone(), tensor(&[6, 4, 3, 3])], up, &[2, 4, 40, 42]);
    let huge = || vec![ints("strides", &[i64::MAX]), ints("dilations", &[i64::MAX])];
    fails("ConvTranspose", &[tensor(&[1, 6, u64::MAX]), tensor(&[6, 4, u64::MAX])], huge());
    is("Resize", &[image.clone(), floats(&[]), floats(&[1.0, 1.0, 2.0, 0.5])], vec![], &[2, 6, 40, 10]);
    let sizes = [image.clone(), floats(&[]), floats(&[]), list(&[2, 6, 7, 9])];
    is("Resize", &sizes, vec![], &[2, 6, 7, 9]);
    is("Upsample", &[image.clone(), floats(&[1.0, 1.0, 2.0, 2.0])], vec![], &[2, 6, 40, 42]);
    fails("Upsample", &[image, floats(&[1.0, 1.0, f64::NAN, 2.0])], vec![]);
    is("DepthToSpace", &[tensor(&[1, 8, 2, 3])], vec![int("blocksize", 2)], &[1, 2, 4, 6]);
    is("SpaceToDepth", &[tensor(&[1, 2, 4, 6])], vec![int("blocksize", 2)], &[1, 8, 2, 3]);
}

#[test]
fn products_and_elementwise() {
    is("Gemm", &[tensor(&[3, 5]), tensor(&[5, 7])], vec![], &[3, 7]);
    is("Gemm", &[tensor(&[5, 3]), tensor(&[7, 5])], vec![int("transA", 1), int("transB", 1)], &[3, 7]);
    fails("Gemm", &[tensor(&[3, 5]), tensor(&[7, 5])], vec![]);
    fails("Gemm", &[tensor(&[1, 3, 5]), tensor(&[5, 7])], vec![]);
    is("MatMul", &[tensor(&[4, 3, 5]), tensor(&[5, 7])], vec![], &[4, 3, 7]);
    is("Where", &[tensor(&[3, 1]), tensor(&[4]), tensor(&[])], vec![], &[3, 4]);
    is("Sum", &[tensor(&[2]), tensor(&[3, 1]), tensor(&[1, 1, 1])], vec![], &[1, 3, 2]);
    is("Add", &[tensor(&[2, 3, 4]), tensor(&[3])], vec![int("broadcast", 1), int("axis", 1)], &[2, 3, 4]);
    fails("Add", &[tensor(&[2, 3, 4]), tensor(&[3])], vec![]);
    is("PRelu", &[tensor(&[2, 3, 4]), tensor(&[3])], vec![], &[2, 3, 4]);
    let compared = run("Less", &[tensor(&[2]), tensor(&[2])], 1, vec![]).unwrap();
    assert_eq!(compared[0].dtype, Some(data_type::BOOL));
    let chosen = run("Where", &[list(&[1, 0]), floats(&[1.0, 2.0]), floats(&[3.0, 4.0])], 1, vec![]).unwrap();
    assert_eq!(chosen[0].dtype, Some(data_type::FLOAT));
}

#[test]
fn layout() {
    let x = || tensor(&[2, 3, 4]);
    is("Reshape", &[x(), list(&[0, -1])], vec![], &[2, 12]);
    is("Reshape", &[tensor(&[0, 3]), list(&[0, 5])], vec![int("allowzero", 1)], &[0, 5]);
    is("Reshape", &[x()], vec![ints("shape", &[6, 4])], &[6, 4]);
    for target in [&[5, -1][..], &[-1, -1], &[2, 3], &[-2, 12], &[1, 1, 1, 0], &[i64::MAX, i64::MAX, 24]] {
        fails("Reshape", &[x(), list(target)], vec![]);
    }
    fails("Reshape", &[x(), tensor(&[2])], vec![]);
    is("Flatten", &[x()], vec![int("axis", 3)], &[24, 1]);
    is("Flatten", &[x()], vec![int("axis", -1)], &[6, 4]);
    is("Transpose", &[x()], vec![], &[4, 3, 2]);
    is("Transpose", &[x()], vec![ints("perm", &[1, 2, 0])], &[3, 4, 2]);
    fails("Transpose", &[x()], vec![ints("perm", &[1, 1, 0])]);
    fails("Transpose", &[x()], vec![ints("perm", &[1, 0])]);
    is("Squeeze", &[tensor(&[1, 3, 1])], vec![], &[3]);
    is("Squeeze", &[tensor(&[1, 3, 1]), list(&[-1])], vec![], &[1, 3]);
    fails("Squeeze", &[x()], vec![ints("axes", &[0])]);
    is("Unsqueeze", &[x(), list(&[0, -1])], vec![], &[1, 2, 3, 4, 1]);
    fails("Unsqueeze", &[x(), list(&[0, 0])], vec![]);
    fails("Unsqueeze", &[x(), list(&[9])], vec![]);
    is("Concat", &[x(), tensor(&[2, 5, 4])], vec![int("axis", -2)], &[2, 8, 4]);
    fails("Concat", &[x(), tensor(&[2, 5, 5])], vec![int("axis", 1)]);
    is("Slice", &[x(), list(&[1, -3]), list(&[i64::MAX, i64::MAX]), list(&[1, 2])], vec![], &[2, 2, 3]);
    is("Slice", &[x()], vec![ints("starts", &[0]), ints("ends", &[1])], &[1, 3, 4]);
    fails("Slice", &[x(), list(&[0]), list(&[1]), list(&[0]), list(&[0])], vec![]);
    fails("Slice", &[x(), list(&[0; 4]), list(&[1; 4])], vec![]);
    fails("Slice", &[x(), list(&[0]), list(&[1, 1])], vec![]);
    is("Gather", &[x(), list(&[0, 1, 0, 1, 0])], vec![int("axis", 1)], &[2, 5, 4]);
    is("Expand", &[tensor(&[3, 1]), list(&[2, 1, 6])], vec![], &[2, 3, 6]);
    is("Tile", &[x(), list(&[1, 2, 3])], vec![], &[2, 6, 12]);
    is("Pad", &[x(), list(&[0, 1, 0, 0, 1, -2])], vec![], &[2, 5, 2]);
    fails("Pad", &[x(), list(&[0, 1, 0, 0, 1, -5])], vec![]);
    is("ReduceMean", &[x()], vec![ints("axes", &[-1])], &[2, 3, 1]);
    is("ReduceSum", &[x(), list(&[1])], vec![int("keepdims", 0)], &[2, 4]);
    is("ReduceMax", &[x()], vec![int("keepdims", 0)], &[]);
    is("ReduceMax", &[x()], vec![int("noop_with_empty_axes", 1)], &[2, 3, 4]);
    is("ArgMax", &[x()], vec![int("axis", 1), int("keepdims", 0)], &[2, 4]);
    is("TopK", &[x(), list(&[2])], vec![], &[2, 3, 2]);
    is("OneHot", &[x(), list(&[9]), floats(&[0.0, 1.0])], vec![], &[2, 3, 4, 9]);
    let parts = |sizes: Option<&[i64]>, outputs| {
        let inputs: Vec<Value> = [x()].into_iter().chain(sizes.map(list)).collect();
        let values = run("Split", &inputs, outputs, vec![int("axis", 2)])?;
        Ok::<_, String>(values.into_iter().map(|value| value.shape.unwrap()[2]).collect::<Vec<_>>())
    };
    assert_eq!(parts(Some(&[1, 3]), 2), Ok(vec![1, 3]));
    assert_eq!(parts(None, 3), Ok(vec![2, 2, 0]));
    assert!(parts(Some(&[1, 2]), 2).is_err());
}

#[test]
fn shape_arithmetic_is_folded() {
    let shape_list = run("Shape", &[tensor(&[2, 3, 4, 5])], 1, vec![]).unwrap().remove(0);
    assert_eq!(shape_list.as_ints(), Some(&[2, 3, 4, 5][..]));
    assert_eq!(folded("Shape", &[tensor(&[2, 3, 4])], vec![int("start", -2), int("end", 9)]), [3, 4]);
    assert_eq!(folded("Size", &[tensor(&[2, 3, 4])], vec![]), [24]);
    assert_eq!(folded("Gather", &[shape_list.clone(), list(&[-1, 0])], vec![]), [5, 2]);
    assert_eq!(
        folded("Slice", &[shape_list.clone(), list(&[-1]), list(&[i64::MIN]), list(&[0]), list(&[-2])], vec![]),
        [5, 3]
    );
    assert_eq!(folded("Concat", &[shape_list.clone(), list(&[-1])], vec![int("axis", 0)]), [2, 3, 4, 5, -1]);
    assert_eq!(folded("Mul", &[shape_list.clone(), list(&[10])], vec![]), [20, 30, 40, 50]);
    assert_eq!(folded("Where", &[list(&[0, 1, 0, 1]), shape_list.clone(), list(&[7])], vec![]), [7, 3, 7, 5]);
    assert_eq!(folded("Range", &[list(&[1]), list(&[8]), list(&[3])], vec![]), [1, 4, 7]);
    assert_eq!(folded("Range", &[list(&[3]), list(&[0]), list(&[-2])], vec![]), [3, 1]);
    is("Range", &[list(&[3]), list(&[0]), list(&[1])], vec![], &[0]);
    fails("Range", &[list(&[3]), list(&[0]), list(&[0])], vec![]);
    let square = Value::ints(vec![2, 2], vec![1, 2, 3, 4]);
    assert_eq!(folded("Transpose", &[square], vec![]), [1, 3, 2, 4]);
    assert_eq!(folded("Cast", &[floats(&[2.9])], vec![int("to", i64::from(data_type::INT64))]), [2]);
    let seven = TensorProto { dims: vec![1], data_type: data_type::INT64, int64_data: vec![7], ..Default::default() };
    let attribute =
        AttributeProto { name: "value".into(), t: Some(seven), r#type: attribute_type::TENSOR, ..Default::default() };
    assert_eq!(folded("ConstantOfShape", &[list(&[3])], vec![attribute.clone()]), [7, 7, 7]);
    assert_eq!(folded("Constant", &[], vec![attribute]), [7]);
    is("ConstantOfShape", &[list(&[1 << 40, 1 << 40])], vec![], &[1 << 40, 1 << 40]);
    fails("ConstantOfShape", &[list(&[-1])], vec![]);
}

#[test]
fn attributes_of_the_wrong_type_are_refused() {
    let message = shape("Flatten", &[tensor(&[2, 3])], vec![ints("axis", &[1])]).unwrap_err();
    assert_eq!(message, "attribute \"axis\" of Flatten is no integer");
    // Very old files carry no type.
    let untyped = AttributeProto { r#type: 0, ..int("axis", 1) };
    is("Flatten", &[tensor(&[2, 3])], vec![untyped], &[2, 3]);
}

#[test]
fn operators_that_are_not_followed_say_so() {
    assert!(shape("NonZero", &[tensor(&[2])], vec![]).unwrap_err().contains("operator NonZero is not followed"));
    assert!(shape("Gemm", &[tensor(&[2, 2])], vec![]).unwrap_err().contains("lacks its input 1"));
}
