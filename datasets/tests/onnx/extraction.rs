//! Which workloads come out of which nodes, what is absorbed, and what is skipped with which reason.

use tilewright_datasets::onnx::Bindings;
use tilewright_datasets::onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, data_type};

use crate::graph::{Graph, float, int, ints, text, value_info};

fn conv(inputs: &str, attributes: Vec<AttributeProto>) -> Graph {
    Graph::new()
        .input("x", "1 8 20 21")
        .input("w", "16 8 3 3")
        .input("w2", "16 4 3 3")
        .input("b", "16")
        .node("y", "Conv", inputs, attributes)
}

#[test]
fn convolutions_keep_every_parameter() {
    let base = "conv2d n=1 c=8 h=20 w=21 k=16 r=3 s=3 dtype=f32";
    conv("x w", vec![]).output("y").has(&[&format!("1 x {base}")]);
    conv("x w b", vec![]).output("y").has(&[&format!("1 x {base} bias=1")]);
    conv("x w2", vec![int("group", 2)]).output("y").has(&[&format!("1 x {base} groups=2")]);
    let all = vec![ints("strides", &[2, 1]), ints("dilations", &[1, 2]), ints("pads", &[1, 2, 3, 4])];
    let sugar = "stride_h=2 stride_w=1 dilation_h=1 dilation_w=2 pad_t=1 pad_l=2 pad_b=3 pad_r=4";
    conv("x w", all).output("y").has(&[&format!("1 x {base} {sugar}")]);
    let same = vec![text("auto_pad", "SAME_UPPER"), ints("strides", &[2, 2])];
    let sugar = "stride=2 pad_t=0 pad_l=1 pad_b=1 pad_r=1";
    conv("x w", same).output("y").has(&[&format!("1 x {base} {sugar}")]);
}

#[test]
fn convolutions_that_are_not_read_say_why() {
    let line = Graph::new().input("x", "1 8 20").input("w", "16 8 3").node("y", "Conv", "x w", vec![]);
    line.skips("over 1 spatial dimension(s)");
    let room = Graph::new().input("x", "1 8 9 9 9").input("w", "16 8 3 3 3").node("y", "Conv", "x w", vec![]);
    room.skips("over 3 spatial dimension(s)");
    conv("x w2", vec![]).skips("8 channels in 1 groups do not fit weights [16, 4, 3, 3]");
    conv("x w w", vec![]).skips("its bias has the shape");
    let empty = Graph::new().input("x", "1 8 20 20").constant("s", &[0, 8, 3, 3]);
    let empty = empty.node("w", "ConstantOfShape", "s", vec![]).node("y", "Conv", "x w", vec![]);
    empty.skips("k=0 is too small");
}

#[test]
fn what_follows_is_absorbed() {
    let base = "conv2d n=1 c=8 h=20 w=21 k=16 r=3 s=3 dtype=f32";
    conv("x w b", vec![]).node("r", "Relu", "y", vec![]).output("r").has(&[&format!("1 x {base} bias=1 relu=1")]);
    let normalised = conv("x w", vec![]).node("n", "BatchNormalization", "y b b b b", vec![]);
    normalised.clone().output("n").has(&[&format!("1 x {base} bias=1")]);
    normalised.node("r", "Relu", "n", vec![]).output("r").has(&[&format!("1 x {base} bias=1 relu=1")]);
    let column = conv("x w", vec![]).input("c", "16 1 1").node("s", "Add", "c y", vec![]).output("s");
    column.has(&[&format!("1 x {base} bias=1")]);
    assert!(column.read(&Bindings::new()).unwrap().other_operators.is_empty());
}

#[test]
fn what_a_kernel_cannot_do_in_passing_is_not_absorbed() {
    let plain = "1 x conv2d n=1 c=8 h=20 w=21 k=16 r=3 s=3 dtype=f32";
    let relu = || conv("x w", vec![]).node("r", "Relu", "y", vec![]).output("r");
    // The value before is needed elsewhere: as an output, by another node, twice by one node, by a body.
    relu().output("y").has(&[plain]);
    relu().node("t", "Tanh", "y", vec![]).has(&[plain]);
    conv("x w", vec![]).node("s", "Add", "y y", vec![]).has(&[plain]);
    let mut used_inside = relu();
    let inner = NodeProto { op_type: "Tanh".into(), input: vec!["y".into()], ..Default::default() };
    let body = GraphProto { node: vec![inner], ..Default::default() };
    used_inside.proto.node[0].attribute.push(AttributeProto { g: Some(body), ..Default::default() });
    used_inside.has(&[plain]);
    // A vector over another dimension, and one that is computed only after the convolution.
    conv("x w", vec![]).input("c", "19").node("s", "Add", "y c", vec![]).has(&[plain]);
    conv("x w", vec![]).input("c", "1 16 18 19").node("s", "Add", "y c", vec![]).has(&[plain]);
    let late = conv("x w", vec![]).input("c", "16 1 1").node("d", "Tanh", "c", vec![]);
    late.node("s", "Add", "y d", vec![]).has(&[plain]);
    // Normalisation in training, and over statistics that come too late.
    let training = vec![int("training_mode", 1)];
    conv("x w", vec![]).node("n", "BatchNormalization", "y b b b b", training).has(&[plain]);
    conv("x w", vec![]).node("n m v", "BatchNormalization", "y b b b b", vec![]).has(&[plain]);
    let late = conv("x w", vec![]).node("c", "Tanh", "b", vec![]);
    late.node("n", "BatchNormalization", "y b b b c", vec![]).has(&[plain]);
    // Another operator set's ReLU.
    let mut foreign = relu();
    foreign.proto.node[1].domain = "com.example".into();
    foreign.has(&[plain]);
}

fn gemm(c: &str, attributes: Vec<AttributeProto>) -> Graph {
    let graph = Graph::new().input("a", "5 7").input("b", "7 9").input("at", "7 5").input("bt", "9 7");
    let graph = graph.input("c", c).output("y");
    let names = if attributes.iter().any(|a| a.name == "transB") { "at bt c" } else { "a b c" };
    graph.node("y", "Gemm", names, attributes)
}

#[test]
fn gemms() {
    gemm("9", vec![]).has(&["1 x matmul m=5 n=9 k=7 dtype=f32 bias=1"]);
    gemm("1 9", vec![]).has(&["1 x matmul m=5 n=9 k=7 dtype=f32 bias=1"]);
    gemm("9", vec![int("transA", 1), int("transB", 1)]).has(&["1 x matmul m=5 n=9 k=7 ta=1 tb=1 dtype=f32 bias=1"]);
    gemm("5 9", vec![]).skips("its C has the shape [5, 9]");
    gemm("5 1", vec![]).skips("its C has the shape [5, 1]");
    gemm("", vec![]).skips("its C has the shape []");
    gemm("9", vec![float("alpha", 0.5)]).skips("alpha is 0.5");
    gemm("9", vec![float("beta", 2.0)]).skips("beta is 2");
    let bare = Graph::new().input("a", "5 7").input("b", "7 9");
    bare.node("y", "Gemm", "a b", vec![float("beta", 2.0)]).has(&["1 x matmul m=5 n=9 k=7 dtype=f32"]);
}

fn matmul(a: &str, b: &str) -> Graph {
    Graph::new().input("a", a).input("b", b).node("y", "MatMul", "a b", vec![])
}

#[test]
fn matmuls_fold_or_keep_their_batch() {
    matmul("5 7", "7 9").has(&["1 x matmul m=5 n=9 k=7 dtype=f32"]);
    matmul("2 3 5 7", "7 9").has(&["1 x matmul m=30 n=9 k=7 dtype=f32"]);
    matmul("2 3 5 7", "1 1 7 9").has(&["1 x matmul m=30 n=9 k=7 dtype=f32"]);
    matmul("2 3 5 7", "2 3 7 9").has(&["1 x matmul batch=6 m=5 n=9 k=7 dtype=f32"]);
    matmul("3 5 7", "1 3 7 9").has(&["1 x matmul batch=3 m=5 n=9 k=7 dtype=f32"]);
    matmul("7", "7 9").has(&["1 x matmul m=1 n=9 k=7 dtype=f32"]);
    matmul("3 5 7", "7").has(&["1 x matmul m=15 n=1 k=7 dtype=f32"]);
    matmul("7", "7").has(&["1 x matmul m=1 n=1 k=7 dtype=f32"]);
    matmul("5 7", "3 7 9").skips("its batches [1] and [3] differ");
    matmul("2 1 5 7", "2 3 7 9").skips("its batches [2, 1] and [2, 3] differ");
    matmul("5 7", "8 9").skips("inner dimensions 7 and 8 differ");
    matmul("2 5 7", "3 7 9").skips("do not broadcast");
}

#[test]
fn a_matmul_takes_a_bias_over_its_columns_only() {
    let add = |a, b, c| matmul(a, b).input("c", c).node("s", "Add", "y c", vec![]).output("s");
    add("2 5 7", "7 9", "9").has(&["1 x matmul m=10 n=9 k=7 dtype=f32 bias=1"]);
    add("5 7", "7 9", "5 1").has(&["1 x matmul m=5 n=9 k=7 dtype=f32"]);
    add("5 7", "7 9", "1").has(&["1 x matmul m=5 n=9 k=7 dtype=f32"]);
    // The result of a matrix and a vector has no dimension for the columns: the 5 are rows.
    add("5 7", "7", "5").has(&["1 x matmul m=5 n=1 k=7 dtype=f32"]);
    add("5 7", "7 9", "1 1 9").has(&["1 x matmul m=5 n=9 k=7 dtype=f32"]);
}

#[test]
fn element_types() {
    let typed = |a, b| Graph::new().typed_input("a", a, "5 7").typed_input("b", b, "7 9");
    let product = |a, b| typed(a, b).node("y", "MatMul", "a b", vec![]);
    product(data_type::FLOAT16, data_type::FLOAT16).has(&["1 x matmul m=5 n=9 k=7 dtype=f16"]);
    product(data_type::BFLOAT16, data_type::BFLOAT16).has(&["1 x matmul m=5 n=9 k=7 dtype=bf16"]);
    product(data_type::INT32, data_type::INT32).skips("int32 operands are not read");
    product(data_type::FLOAT, data_type::FLOAT16).skips("its operands are float32 and float16");
    let wider = product(data_type::FLOAT16, data_type::FLOAT16).input("c", "9").node("s", "Add", "y c", vec![]);
    wider.has(&["1 x matmul m=5 n=9 k=7 dtype=f16"]);
    product(0, 0).skips("the element type of \"a\" is not known");
}

#[test]
fn equal_nodes_are_one_task_in_order_of_appearance() {
    let mut graph = matmul("5 7", "7 9").node("z", "MatMul", "a2 b", vec![]).node("y2", "MatMul", "a b", vec![]);
    graph = graph.input("a2", "6 7");
    graph.proto.node[2].name = "third".into();
    graph.has(&["2 x matmul m=5 n=9 k=7 dtype=f32", "1 x matmul m=6 n=9 k=7 dtype=f32"]);
    assert_eq!(graph.read(&Bindings::new()).unwrap().tasks[0].names, ["MatMul:y", "third"]);
}

#[test]
fn open_dimensions_are_bound_by_name() {
    let graph = matmul("batch ? 7", "7 9").node("s", "Tanh", "y", vec![]);
    graph.skips("dimension 0 of \"a\" has no fixed size; bind it, for example \"batch=1\"");
    let bindings = Bindings::new().with("batch", 2);
    let model = graph.read(&bindings).unwrap();
    assert!(model.skipped[0].reason.contains("bind it, for example \"a.1=1\""), "{:?}", model.skipped);
    let model = graph.read(&bindings.with("a.1", 3).with("bach", 1).with("b.0", 7)).unwrap();
    assert_eq!(
        model.tasks[0].workload.key(),
        search_space::Workload::parse("matmul m=6 n=9 k=7 dtype=f32").unwrap().key()
    );
    assert_eq!(model.unused_bindings, ["b.0", "bach"]);
    // Old exporters write 0 for an open batch.
    matmul("0 7", "7 9").skips("bind it, for example \"a.0=1\"");
}

#[test]
fn inference_goes_before_declarations_and_the_difference_is_reported() {
    let mut graph = matmul("5 7", "7 9").node("z", "MatMul", "y c", vec![]).input("c", "9 2");
    graph.proto.value_info.push(value_info("y", data_type::FLOAT, &["5", "8"]));
    graph.proto.output.push(value_info("z", data_type::FLOAT, &["rows", "2"]));
    graph.has(&["1 x matmul m=5 n=9 k=7 dtype=f32", "1 x matmul m=5 n=2 k=9 dtype=f32"]);
    let model = graph.read(&Bindings::new().with("rows", 6)).unwrap();
    let told: Vec<_> = model.disagreements.iter().map(|d| (&*d.value, &*d.inferred, &*d.declared)).collect();
    assert_eq!(told, [("y", "[5, 9]", "[5, 8]"), ("z", "[5, 2]", "[rows, 2]")]);
    assert_eq!(graph.read(&Bindings::new()).unwrap().disagreements.len(), 1, "a free name fits any size");
}

#[test]
fn declarations_fill_the_gaps_of_inference() {
    let graph = Graph::new().input("x", "5 7").input("b", "7 9").node("a", "Mystery", "x", vec![]);
    let mut graph = graph.node("y", "MatMul", "a b", vec![]);
    graph.skips("operator Mystery is not followed, and the model declares no shape for its output");
    graph.proto.value_info.push(value_info("a", data_type::FLOAT, &["n", "7"]));
    graph.skips("dimension 0 of \"a\" has no fixed size; bind it, for example \"n=1\"");
    graph.proto.value_info[0] = value_info("a", data_type::FLOAT, &["4", "7"]);
    graph.has(&["1 x matmul m=4 n=9 k=7 dtype=f32"]);
    // A gap that comes from an open input names the input, not the declaration behind it.
    let mut open = Graph::new().input("x", "n 7").input("b", "7 9").node("a", "Relu", "x", vec![]);
    open.proto.value_info.push(value_info("a", data_type::FLOAT, &["m", "7"]));
    open.node("y", "MatMul", "a b", vec![]).skips("dimension 0 of \"x\"");
}

#[test]
fn hidden_work_is_reported() {
    let mut graph = matmul("5 7", "7 9");
    let body = GraphProto { node: vec![NodeProto::default(); 3], ..Default::default() };
    let branch = AttributeProto { name: "then_branch".into(), g: Some(body), ..Default::default() };
    graph = graph.node("i", "If", "a", vec![branch]).node("f", "Twice", "a", vec![]).node("l", "LSTM", "a", vec![]);
    graph.proto.node[2].domain = "local".into();
    graph.functions.push(FunctionProto { name: "Twice".into(), domain: "local".into() });
    let (tasks, skipped) = graph.found();
    assert_eq!(tasks.len(), 1);
    assert!(skipped[0].starts_with("If: the 3 nodes in its body are not read"), "{skipped:?}");
    assert!(skipped[1].starts_with("Twice: it calls a function of the model"), "{skipped:?}");
    assert!(skipped[2].starts_with("LSTM: this operator is not read"), "{skipped:?}");
    let other = graph.node("t", "Tanh", "a", vec![]).read(&Bindings::new()).unwrap().other_operators;
    assert_eq!(other.into_iter().collect::<Vec<_>>(), [("Tanh".to_owned(), 1)]);
}

#[test]
fn a_conv_of_another_domain_is_not_a_conv() {
    let mut graph = conv("x w", vec![]);
    graph.proto.node[0].domain = "com.example".into();
    let message = graph.read(&Bindings::new()).unwrap_err().to_string();
    assert!(message.contains("no operator that can be tuned"), "{message}");
}

#[test]
fn use_before_definition_is_a_reason() {
    Graph::new()
        .input("b", "7 9")
        .node("y", "MatMul", "late b", vec![])
        .skips("\"late\" is used before anything defines it");
}
