//! The suite of the repository, and what is refused.

use super::*;

const CPU: &[u8] = include_bytes!("../../workloads/cpu.json");

fn cpu() -> Vec<Line> {
    parse("cpu.json".as_ref(), CPU).unwrap()
}

fn line<'a>(lines: &'a [Line], name: &str) -> &'a Line {
    lines.iter().find(|line| line.name == name).unwrap()
}

#[test]
fn every_line_of_the_suite_has_a_text() {
    let lines = cpu();
    assert_eq!(lines.len(), 35);
    let text = |name| line(&lines, name).sugar(MathMode::Fast).unwrap();
    assert_eq!(text("bert128_ffn1_bf16"), "matmul m=128 n=3072 k=768 dtype=bf16");
    assert_eq!(text("mm_1024_s8"), "matmul m=1024 n=1024 k=1024 dtype=i8");
    assert_eq!(text("bmm_qk_12x128x128x64"), "matmul batch=12 m=128 n=128 k=64 dtype=f32");
    assert_eq!(
        text("rn50_3x3_256_14_nhwc"),
        "conv2d n=1 c=256 h=14 w=14 k=256 r=3 s=3 stride=1 pad=1 groups=1 dtype=f32 free_w=1 layout=nhwc math=fast"
    );
    assert_eq!(text("attn_12x128x64"), "attention heads=12 q=128 d=64 dtype=f32 math=fast");
    assert_eq!(text("reduce_sum_16m"), "reduce cols=16777216 dtype=f32 rows=1 op=sum");
    assert_eq!(text("gelu_1m"), "map n=1048576 dtype=f32 f=gelu_tanh");
    let loose = lines.iter().filter(|line| line.sugar(MathMode::Fast).unwrap().contains("math=fast")).count();
    assert_eq!((loose, lines.iter().filter(|line| line.has_math()).count()), (13, 13));
    assert!(lines.iter().all(|line| !line.sugar(MathMode::Ieee).unwrap().contains("math=")));
}

#[test]
fn every_line_of_the_suite_is_a_workload() {
    for line in cpu() {
        for math in [MathMode::Ieee, MathMode::Fast] {
            let workload = line.workload(math).unwrap_or_else(|problem| panic!("{}: {problem}", line.name));
            let loose = workload.math == MathMode::Fast;
            assert_eq!(loose, line.has_math() && math == MathMode::Fast, "{}", line.name);
        }
    }
}

#[test]
fn what_a_matmul_line_counts_is_what_its_workload_counts() {
    for line in cpu().iter().filter(|line| line.op.ends_with("matmul")) {
        let workload = line.workload(MathMode::Ieee).unwrap();
        assert_eq!((Some(workload.flops()), workload.min_bytes()), (line.flops, line.bytes), "{}", line.name);
    }
}

#[test]
fn a_line_goes_to_peers_as_it_came() {
    let document: Value = serde_json::from_slice(CPU).unwrap();
    let written: Vec<Value> = cpu().iter().map(|line| serde_json::to_value(line).unwrap()).collect();
    assert_eq!(&Value::Array(written), &document["workloads"]);
}

#[test]
fn a_line_that_is_no_workload_says_why_and_spares_the_others() {
    let mut lines = cpu();
    lines[0].op = "fft".into();
    lines[1].shape.remove("K");
    lines[2].shape.insert("N".into(), (-3).into());
    lines[3].shape.insert("layout".into(), "CHWN".into());
    lines[4].dtype = "f8".into();
    let why = |at: usize| lines[at].workload(MathMode::Ieee).unwrap_err().to_string();
    assert_eq!(why(0), "no workload text is known for operation \"fft\"");
    assert_eq!(why(1), "shape has no whole number K");
    assert_eq!(why(2), "shape has no whole number N");
    assert!(why(3).contains("layout \"CHWN\" is not known"));
    assert!(why(4).contains("f8"));
    assert!(lines[5].workload(MathMode::Ieee).is_ok());
}

#[test]
fn a_file_that_is_no_suite_is_one_clear_line() {
    let one = r#"{"name": "a", "op": "matmul", "dtype": "f32", "shape": {}, "flops": null, "bytes": 1}"#;
    for (text, wanted) in [
        (String::new(), "is not the JSON that was expected"),
        ("[]".into(), "is not the JSON that was expected"),
        (r#"{"version": 2, "workloads": []}"#.into(), "has version 2; this program reads version 1"),
        (r#"{"version": 1, "workloads": []}"#.into(), "lists no workload"),
        (format!(r#"{{"version": 1, "workloads": [{one}, {one}]}}"#), "names two workloads \"a\""),
        (
            format!(r#"{{"version": 1, "workloads": [{}]}}"#, one.replace("\"a\"", "\"\"")),
            "a workload without a name (number 1)",
        ),
    ] {
        let message = parse("some/cpu.json".as_ref(), text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(wanted) && message.contains("some/cpu.json") && !message.contains('\n'), "{message}");
    }
}
