//! Which lines of the suite belong together. By operation, type and sizes: a line that is added finds its family.

use datasets::suite::Line;
use serde_json::Value;

/// Lines that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Products of square f32 matrices.
    Square,
    /// Products of few rows with a large f32 matrix: reading it is the work.
    Gemv,
    /// All other products of f32 matrices: those of BERT, ViT, odd and batched ones.
    Model,
    /// Products of bf16 and of 8-bit integers.
    Narrow,
    /// Convolutions.
    Conv,
    /// Row passes, attention, reductions, transposes, elementwise chains: little arithmetic for each byte.
    Memory,
}

/// A matrix of this many rows is hardly reused.
const FEW_ROWS: u64 = 16;

impl Family {
    #[cfg(test)]
    const ALL: [Family; 6] =
        [Family::Square, Family::Gemv, Family::Model, Family::Narrow, Family::Conv, Family::Memory];

    /// The family of a line.
    pub(super) fn of(line: &Line) -> Family {
        let size = |name: &str| line.shape.get(name).and_then(Value::as_u64);
        match line.op.as_str() {
            "matmul" | "batch_matmul" if line.dtype != "f32" => Family::Narrow,
            "matmul" if size("M") == size("N") && size("N") == size("K") => Family::Square,
            "matmul" if size("M").is_some_and(|rows| rows <= FEW_ROWS) => Family::Gemv,
            "matmul" | "batch_matmul" => Family::Model,
            "conv2d" | "depthwise_conv2d" => Family::Conv,
            _ => Family::Memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_family_that_its_bar_names() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/workloads/cpu.json");
        let lines = datasets::suite::read(&path).unwrap();
        let names = |family| {
            let of = lines.iter().filter(|line| Family::of(line) == family);
            of.map(|line| line.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(Family::Square), ["mm_512", "mm_1024", "mm_2048", "mm_1000"]);
        assert_eq!(names(Family::Gemv), ["decode_m1_4096", "decode_m16_11008"]);
        assert_eq!(
            names(Family::Model),
            [
                "bert128_qkv",
                "bert128_ffn1",
                "bert384_ffn2",
                "odd_17x1000x2048",
                "vit197_ffn1",
                "bmm_qk_12x128x128x64",
                "bmm_pv_12x384x64x384"
            ]
        );
        let counts = Family::ALL.map(|family| names(family).len());
        assert_eq!(counts, [4, 2, 7, 4, 9, 9]);
        assert_eq!(counts.iter().sum::<usize>(), lines.len());
    }
}
