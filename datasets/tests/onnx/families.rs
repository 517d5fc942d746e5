//! Row passes, reductions, pooling and transpositions: which workloads come out of which nodes, and why others do not.

use search_space::Workload;
use tilewright_datasets::onnx::Bindings;
use tilewright_datasets::onnx::proto::{AttributeProto, data_type};

use crate::graph::{Graph, float, int, ints, text};

fn one(op: &str, dims: &str, attributes: Vec<AttributeProto>) -> Graph {
    Graph::new().input("x", dims).node("y", op, "x", attributes).output("y")
}

/// The only workload of a graph.
#[track_caller]
fn only(graph: &Graph) -> Workload {
    let mut tasks = graph.read(&Bindings::new()).unwrap().tasks;
    assert_eq!(tasks.len(), 1);
    tasks.remove(0).workload
}

#[test]
fn softmax_runs_along_one_axis_since_operator_set_13() {
    one("Softmax", "2 3 5", vec![]).has(&["1 x softmax rows=6 cols=5 dtype=f32"]);
    one("LogSoftmax", "2 3 5", vec![int("axis", 2)]).has(&["1 x logsoftmax rows=6 cols=5 dtype=f32"]);
    one("Softmax", "2 3 1 1", vec![int("axis", 1)]).has(&["1 x softmax rows=2 cols=3 dtype=f32"]);
    let inner = only(&one("Softmax", "2 3 5", vec![int("axis", -2)]));
    assert!(inner.key().starts_with("tw1;rows.softmax;i:p2,j:r3,k:p5;in.x=f32[i,j,k]"), "{}", inner.key());
    // Before, it took all axes from the given one on.
    let old = |axis: Vec<AttributeProto>| one("Softmax", "2 3 5", axis).of_operator_set(11);
    old(vec![]).has(&["1 x softmax rows=2 cols=15 dtype=f32"]);
    old(vec![int("axis", -1)]).has(&["1 x softmax rows=6 cols=5 dtype=f32"]);
    old(vec![int("axis", 0)]).has(&["1 x softmax rows=1 cols=30 dtype=f32"]);
    one("Softmax", "2 3 5", vec![int("axis", 3)]).skips("axis 3 is outside a tensor of 3 dimensions");
}

#[test]
fn norms() {
    let norm = |op: &str, inputs: &str, attributes| {
        let graph = Graph::new().input("x", "2 3 5").input("g", "5").input("b", "1 5").input("wide", "3 5");
        graph.node("y", op, inputs, attributes).output("y")
    };
    let layer = |inputs, attributes| norm("LayerNormalization", inputs, attributes);
    layer("x g b", vec![]).has(&["1 x layernorm rows=6 cols=5 dtype=f32"]);
    layer("x g b", vec![float("epsilon", 1e-6)]).has(&["1 x layernorm rows=6 cols=5 dtype=f32 eps=1e-6"]);
    layer("x wide wide", vec![int("axis", 1)]).has(&["1 x layernorm rows=2 cols=15 dtype=f32"]);
    let scale = only(&layer("x g", vec![]));
    assert_eq!(scale.operands.iter().map(|operand| operand.name.as_str()).collect::<Vec<_>>(), ["x", "gamma", "y"]);
    assert_eq!((scale.epilogue.len(), scale.validate()), (1, Ok(())));
    norm("RMSNormalization", "x g", vec![]).has(&["1 x rmsnorm rows=6 cols=5 dtype=f32"]);
    layer("x wide", vec![]).skips("its input 1 has the shape [3, 5], not [5]");
    layer("x g wide", vec![]).skips("its input 2 has the shape [3, 5], not [5]");
    layer("x g b", vec![float("epsilon", -1.0)]).skips("its epsilon is -1");
    let graph = Graph::new().input("x", "2 5").input("g", "5").node("y mean", "LayerNormalization", "x g", vec![]);
    graph.skips("its mean and deviation are used");
}

#[test]
fn arg_max_finds_the_first() {
    one("ArgMax", "4 9", vec![int("axis", 1)]).has(&["1 x argmax rows=4 cols=9 dtype=f32"]);
    one("ArgMax", "9 1", vec![]).has(&["1 x argmax rows=1 cols=9 dtype=f32"]);
    let inner = only(&one("ArgMax", "4 9 2", vec![int("axis", 1), int("keepdims", 0)]));
    assert!(inner.key().contains("out.y=i32[i,k]"), "{}", inner.key());
    one("ArgMax", "4 9", vec![int("select_last_index", 1)]).skips("select_last_index is 1");
}

#[test]
fn reductions_put_dimensions_together() {
    let reduce = |op: &str, dims: &str, axes: &[i64]| one(op, dims, vec![ints("axes", axes)]);
    reduce("ReduceSum", "2 3 5", &[-1]).has(&["1 x reduce rows=6 cols=5 dtype=f32"]);
    reduce("ReduceMean", "2 3 5 7", &[2, 3]).has(&["1 x reduce rows=6 cols=35 dtype=f32 op=mean"]);
    reduce("ReduceMax", "2 3 5", &[0]).has(&["1 x reduce rows=2 cols=15 dtype=f32 op=max axis=0"]);
    one("ReduceSum", "2 3", vec![]).has(&["1 x reduce rows=1 cols=6 dtype=f32"]);
    let graph = Graph::new().input("x", "4 6").constant("axes", &[1]).node("y", "ReduceSum", "x axes", vec![]);
    graph.output("y").has(&["1 x reduce rows=4 cols=6 dtype=f32"]);
    let split = only(&reduce("ReduceMean", "2 3 5 7", &[1, 3]));
    assert!(split.key().starts_with("tw1;contract.add;i:p2,j:r3,k:p5,l:r7;"), "{}", split.key());
    assert!(split.key().contains("epi=scale(0.0476"), "{}", split.key());
    // Nothing moves, so there is nothing to tune.
    let model = reduce("ReduceSum", "2 1 5", &[1]).read(&Bindings::new()).unwrap();
    assert_eq!((model.tasks.len(), model.skipped.len(), model.other_operators["ReduceSum"]), (0, 0, 1));
    let integers = Graph::new().typed_input("x", data_type::INT64, "4 6").node("y", "ReduceMax", "x", vec![]);
    integers.skips("int64 elements are not read");
    let narrow = Graph::new().typed_input("x", data_type::INT32, "4 6 2");
    narrow.node("y", "ReduceMean", "x", vec![ints("axes", &[0, 2])]).skips("sums and means of i32 are not read");
    let late = Graph::new().input("x", "4 6").typed_input("axes", data_type::INT64, "1");
    late.node("y", "ReduceSum", "x axes", vec![]).skips("computed from data");
}

#[test]
fn pools() {
    let pool = |op: &str, dims: &str, mut attributes: Vec<AttributeProto>| {
        attributes.push(ints("kernel_shape", &[3, 3]));
        one(op, dims, attributes)
    };
    let (strides, pads) = (|| ints("strides", &[2, 2]), || ints("pads", &[1, 1, 1, 1]));
    let base = "n=1 c=64 h=112 w=112 r=3 s=3 dtype=f32";
    pool("MaxPool", "1 64 112 112", vec![strides(), pads()]).has(&[&format!("1 x maxpool {base} stride=2 pad=1")]);
    pool("AveragePool", "1 64 112 112", vec![]).has(&[&format!("1 x avgpool {base}")]);
    let counted = vec![strides(), pads(), int("count_include_pad", 1)];
    pool("AveragePool", "1 64 112 112", counted).has(&[&format!("1 x avgpool {base} stride=2 pad=1")]);
    pool("AveragePool", "1 64 112 112", vec![pads()]).skips("fewer elements to divide by");
    // One window more, which reaches over the end: maxima do not mind.
    let ceil = only(&pool("MaxPool", "1 2 6 6", vec![strides(), int("ceil_mode", 1)]));
    assert!(ceil.key().contains("[n,c,2*oh+r:6,2*ow+s:6]"), "{}", ceil.key());
    let ceil = vec![strides(), int("ceil_mode", 1), int("count_include_pad", 1)];
    pool("AveragePool", "1 2 6 6", ceil).skips("fewer elements to divide by");
    let uneven = vec![ints("strides", &[2, 1]), ints("dilations", &[1, 2]), ints("pads", &[1, 0, 0, 0])];
    let uneven = only(&pool("MaxPool", "1 2 7 9", uneven));
    assert!(uneven.key().contains("[n,c,2*oh+r-1:7,ow+2*s]"), "{}", uneven.key());
    let same = vec![strides(), text("auto_pad", "SAME_UPPER")];
    assert!(only(&pool("MaxPool", "1 2 6 6", same)).key().contains("[n,c,2*oh+r:6,2*ow+s:6]"));
    let line = one("MaxPool", "1 2 9", vec![ints("kernel_shape", &[2])]);
    assert!(only(&line).key().contains("in.x=f32[n,c,ow+s]"));
    let graph = Graph::new().input("x", "1 2 9").node("y where", "MaxPool", "x", vec![ints("kernel_shape", &[2])]);
    graph.skips("where the maxima were found");
    one("GlobalAveragePool", "1 512 7 7", vec![]).has(&["1 x reduce rows=512 cols=49 dtype=f32 op=mean"]);
    one("GlobalMaxPool", "2 8 7 7", vec![]).has(&["1 x reduce rows=16 cols=49 dtype=f32 op=max"]);
}

#[test]
fn transpositions_put_dimensions_together() {
    let turn = |dims: &str, order: &[i64]| one("Transpose", dims, vec![ints("perm", order)]);
    one("Transpose", "5 7", vec![]).has(&["1 x transpose rows=5 cols=7 dtype=f32"]);
    turn("2 3 5", &[2, 0, 1]).has(&["1 x transpose rows=6 cols=5 dtype=f32"]);
    turn("1 5 1 7", &[0, 3, 2, 1]).has(&["1 x transpose rows=5 cols=7 dtype=f32"]);
    let heads = only(&turn("1 128 12 64", &[0, 2, 1, 3]));
    assert!(heads.key().starts_with("tw1;map;i:p128,j:p12,k:p64;in.x=f32[i,j,k]"), "{}", heads.key());
    assert!(heads.key().contains("out.y=f32[j,i,k]"), "{}", heads.key());
    let turned = only(&turn("3 5 7", &[1, 2, 0]));
    assert_eq!(turned.key(), Workload::parse("transpose rows=3 cols=35 dtype=f32").unwrap().key());
    let four = only(&turn("2 3 5 7", &[3, 1, 2, 0]));
    assert!(four.key().contains("in.x=f32[i,j,k]") && four.key().contains("out.y=f32[k,j,i]"), "{}", four.key());
    assert!(four.key().contains("i:p2,j:p15,k:p7"), "{}", four.key());
    // Every element stays where it lies.
    let model = turn("1 5 1 7", &[1, 0, 2, 3]).read(&Bindings::new()).unwrap();
    assert_eq!((model.tasks.len(), model.other_operators["Transpose"]), (0, 1));
    turn("5 7", &[0, 0]).skips("no permutation");
    let bytes = Graph::new().typed_input("x", data_type::INT8, "5 7").node("y", "Transpose", "x", vec![]);
    bytes.has(&["1 x transpose rows=5 cols=7 dtype=i8"]);
}

#[test]
fn what_is_computed_before_the_model_runs_is_no_task() {
    let graph = Graph::new().constant("c", &[1, 2, 3]).node("y", "ReduceMax", "c", vec![]);
    let model = graph.read(&Bindings::new()).unwrap();
    assert_eq!((model.tasks.len(), model.skipped.len(), model.other_operators["ReduceMax"]), (0, 0, 1));
}
