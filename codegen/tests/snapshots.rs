//! What is generated, as text: both levels and the LLVM IR of small CPU candidates. `./dev bless` updates the files;
//! read the difference as you read source.

#![allow(clippy::unwrap_used, reason = "a test may panic, print its seed and round its inputs")]

use search_space::{Schedule, Target, Value, Workload, samples};
use tilewright_codegen::{Lowered, emit::llvm, lower};

/// A fixed target, so that the text does not depend on the host.
fn target() -> Target {
    samples::cpu_target("haswell", &["avx", "avx2", "fma"], 32, 1)
}

fn lowered(workload: &str, schedule: &str) -> (Lowered, Target) {
    let workload = Workload::parse(workload).unwrap();
    let schedule: Schedule = schedule
        .split(' ')
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name, value.parse().map_or_else(|_| Value::from(value), Value::Int))
        })
        .collect();
    let plan = search_space::families::plan(&workload, &target()).unwrap();
    assert_eq!(plan.space.why_schedule(&schedule).map(|why| why.to_string()), None, "snapshots show members");
    (lower(&workload, &target(), &schedule).unwrap(), target())
}

const MATMUL: &str = "matmul m=5 n=12 k=6 dtype=f32 bias=1 relu=1";
const MATMUL_SCHEDULE: &str =
    "vec=n vw=8 mr=2 nv=1 mt=2 nt=1 kc=3 order=jpi.ji pack_a=none pack_b=fused ku=2 pf=0 tail=separate par=-";
const CONV: &str = "conv2d n=1 c=2 h=5 w=6 k=4 r=3 s=3 pad=1 stride=2 dtype=f32";
const CONV_SCHEDULE: &str = "form=gemm th=1 vec=n vw=8 mr=4 nv=1 mt=1 nt=1 kc=18 order=jpi.ji pack_a=none pack_b=panel ku=1 pf=0 tail=masked par=-";

#[test]
fn matmul_tile() {
    insta::assert_snapshot!(lowered(MATMUL, MATMUL_SCHEDULE).0.tile);
}

#[test]
fn matmul_lane() {
    insta::assert_snapshot!(lowered(MATMUL, MATMUL_SCHEDULE).0.lane);
}

#[test]
fn matmul_llvm() {
    let (lowered, target) = lowered(MATMUL, MATMUL_SCHEDULE);
    let text = llvm::ir(&lowered.lane, &target.key).unwrap();
    // The triple is the host's.
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("target ")).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn conv_tile() {
    insta::assert_snapshot!(lowered(CONV, CONV_SCHEDULE).0.tile);
}

#[test]
fn conv_lane() {
    insta::assert_snapshot!(lowered(CONV, CONV_SCHEDULE).0.lane);
}

#[test]
fn equal_level_one_text_is_equal_kernel() {
    let hash = |schedule: &str| lowered(MATMUL, schedule).0.program_hash();
    // With one block of columns the place of the column loop says nothing.
    let one_block = MATMUL_SCHEDULE.replace("nt=1", "nt=2");
    assert_eq!(hash(&one_block), hash(&one_block.replace("jpi.ji", "pji.ji")));
    assert_ne!(hash(MATMUL_SCHEDULE), hash(&MATMUL_SCHEDULE.replace("ku=2", "ku=1")));
}
