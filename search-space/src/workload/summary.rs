//! Short text for people: `matmul 512x512x512 f32`, `conv2d 64x56x56 k64 3x3 s1 p1 f32 +bias+relu`.
//!
//! Derived from the index maps alone, so that a workload is recognised whatever its axes and operands are called.

use super::{AxisKind, Extent, Op, Operand, Subscript, Workload};

/// What [`Workload::kind`] can be.
pub const KINDS: [&str; 6] = ["matmul", "conv", "rows", "reduction", "map", "attention"];

impl Workload {
    /// One short line: what is computed, its sizes, element types and epilogue. Not unique: the key is.
    ///
    /// `matmul MxNxK`, `gemv MxK` (when one output dimension is 1), `batched ... BxMxNxK`, with `ta` and `tb` for
    /// operands stored transposed; `convDd [nN] CxHxW kK RxS sSTRIDE pPAD [dDILATION] [gGROUPS]`; anything else is the
    /// operation with its axes.
    pub fn summary(&self) -> String {
        let body = self.matmul_summary().or_else(|| self.conv_summary()).unwrap_or_else(|| {
            let axes: Vec<String> =
                self.axes.iter().map(|axis| format!("{}{}", axis.name, extent(axis.extent))).collect();
            format!("{} {}", self.op, axes.join(" "))
        });
        let first = self.operands.first().map_or("", |operand| operand.dtype.as_str());
        let result = self.outputs().first().map_or(first, |i| self.operands[*i].dtype.as_str());
        let types = if first == result { first.into() } else { format!("{first}->{result}") };
        let steps: String = self.epilogue.iter().map(|step| format!("+{}", step.word())).collect();
        format!("{body} {types} {steps}").trim_end().into()
    }

    /// What kind of work it is, for people who choose among the workloads of a model: one of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        match self.op {
            Op::ContractMadd if self.matmul_summary().is_none() && self.conv_summary().is_some() => "conv",
            Op::ContractMadd => "matmul",
            Op::ContractAdd | Op::ContractMax => "reduction",
            Op::Map => "map",
            Op::Attention { .. } => "attention",
            _ => "rows",
        }
    }

    /// The two multiplied operands and the output of a contraction.
    fn product(&self) -> Option<[&Operand; 3]> {
        let (factors, outputs) = (self.factors(), self.outputs());
        match (self.op, &factors[..], &outputs[..]) {
            (Op::ContractMadd, [a, b], [c]) => Some([*a, *b, *c].map(|i| &self.operands[i])),
            _ => None,
        }
    }

    fn matmul_summary(&self) -> Option<String> {
        let operands = self.product()?;
        let plain = |s: &Subscript| s.offset == 0 && s.bound.is_none() && matches!(s.terms[..], [(_, 1)]);
        if !operands.iter().all(|operand| operand.index.iter().all(plain)) {
            return None;
        }
        let (mut batch, mut rest) = (Vec::new(), [None; 3]);
        for axis in 0..self.axes.len() {
            let place = match operands.map(|operand| operand.uses(axis)) {
                [true, true, true] => {
                    batch.push(axis);
                    continue;
                }
                [true, false, true] => 0,
                [false, true, true] => 1,
                [true, true, false] => 2,
                _ => return None,
            };
            if rest[place].replace(axis).is_some() {
                return None;
            }
        }
        let [m, n, k] = [rest[0]?, rest[1]?, rest[2]?];
        let size = |axis: usize| extent(self.axes[axis].extent);
        let before = |operand: &Operand, outer: usize, inner: usize| {
            let place = |axis| operand.index.iter().position(|subscript| subscript.coefficient(axis) != 0);
            place(outer) < place(inner)
        };
        let (word, dims) = match (self.extent(m), self.extent(n)) {
            (_, Some(1)) => ("gemv", vec![m, k]),
            (Some(1), _) => ("gemv", vec![n, k]),
            _ => ("matmul", vec![m, n, k]),
        };
        let prefix = if batch.is_empty() { "" } else { "batched " };
        let sizes: Vec<String> = batch.into_iter().chain(dims).map(size).collect();
        let ta = if before(operands[0], k, m) { " ta" } else { "" };
        let tb = if before(operands[1], n, k) { " tb" } else { "" };
        Some(format!("{prefix}{word} {}{ta}{tb}", sizes.join("x")))
    }

    fn conv_summary(&self) -> Option<String> {
        let [x, w, y] = self.product()?;
        let reduced = |axis: usize| self.axes[axis].kind == AxisKind::Reduction;
        let size = |axis: usize| self.axes[axis].extent.max();
        // A window: one output axis and one kernel axis in the same subscript of x.
        let window = |subscript: &Subscript| match subscript.terms[..] {
            [a, b] if !reduced(a.0) && reduced(b.0) && !w.uses(a.0) => Some((a, b)),
            [a, b] if reduced(a.0) && !reduced(b.0) && !w.uses(b.0) => Some((b, a)),
            _ => None,
        };
        let position = self.operands.iter().position(|operand| std::ptr::eq(operand, x))?;
        let (shape, strides) = (self.operand_shape(position), self.operand_strides(position));
        let mut image = Vec::new();
        let (mut kernel, mut stride, mut pad, mut dilation) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut spatial = Vec::new();
        for (d, subscript) in x.index.iter().enumerate() {
            let Some(((out, step), (tap, spread))) = window(subscript) else { continue };
            // Rows that a large stride never reads are still in memory: the next outer stride tells.
            let outer = d.checked_sub(1).map(|outer| strides[outer]).filter(|outer| outer % strides[d].max(1) == 0);
            let real = outer.map_or(shape[d], |outer| outer / strides[d].max(1));
            image.push(if subscript.bound.is_some() { shape[d] } else { real.max(shape[d]) });
            kernel.push(size(tap));
            stride.push(step.unsigned_abs());
            pad.push(subscript.offset.unsigned_abs());
            dilation.push(spread.unsigned_abs());
            spatial.extend([out, tap]);
        }
        if spatial.is_empty() {
            return None;
        }
        let (mut images, mut groups, mut inputs, mut outputs) = (1u64, 1u64, 1u64, 1u64);
        for axis in (0..self.axes.len()).filter(|axis| !spatial.contains(axis)) {
            let total = match [x, w, y].map(|operand| operand.uses(axis)) {
                [true, true, true] => &mut groups,
                [true, false, true] => &mut images,
                [true, true, false] => &mut inputs,
                [false, true, true] => &mut outputs,
                _ => return None,
            };
            *total = total.saturating_mul(size(axis));
        }
        let mut text = format!("conv{}d ", kernel.len());
        if images > 1 {
            text += &format!("n{images} ");
        }
        let channels = inputs.saturating_mul(groups);
        text += &format!("{channels}x{} k{} {}", dims(&image), outputs.saturating_mul(groups), dims(&kernel));
        text += &format!(" s{} p{}", short(&stride), short(&pad));
        if dilation.iter().any(|spread| *spread != 1) {
            text += &format!(" d{}", short(&dilation));
        }
        if groups > 1 {
            text += &format!(" g{groups}");
        }
        Some(text)
    }
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Fixed(extent) => extent.to_string(),
        Extent::Range { lo, hi, .. } => format!("{lo}..{hi}"),
    }
}

fn dims(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

/// One number when all directions agree.
fn short(sizes: &[u64]) -> String {
    if sizes.windows(2).all(|pair| pair[0] == pair[1]) { dims(&sizes[..1]) } else { dims(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_recognised() {
        for (sugar, kind) in [
            ("matmul m=2 n=3 k=4 dtype=f32 batch=5", "matmul"),
            ("gemv m=8 k=9 dtype=f16", "matmul"),
            ("conv2d n=1 c=4 h=5 w=6 k=4 r=1 s=1 groups=4 dtype=f32", "conv"),
            ("softmax rows=2 cols=3 dtype=f32", "rows"),
            ("maxpool n=1 c=2 h=9 w=9 r=3 s=3 dtype=f32", "reduction"),
            ("transpose rows=2 cols=3 dtype=f32", "map"),
            ("attention heads=2 q=3 d=4 dtype=f32", "attention"),
        ] {
            assert_eq!(Workload::parse(sugar).unwrap().kind(), kind, "{sugar}");
            assert!(KINDS.contains(&kind));
        }
    }

    #[test]
    fn structure_is_recognised() {
        for (sugar, summary) in [
            ("matmul m=512 n=256 k=128 dtype=f32", "matmul 512x256x128 f32"),
            ("matmul m=2 n=3 k=4 dtype=i8 batch=5 ta=1 tb=1 relu=1", "batched matmul 5x2x3x4 ta tb i8->i32 +relu"),
            ("gemv m=8 k=9 dtype=f16 bias=1", "gemv 8x9 f16 +bias"),
            ("matmul m=1 n=3 k=4 dtype=f32", "gemv 3x4 f32"),
            (
                "conv2d n=1 c=64 h=56 w=56 k=64 r=3 s=3 pad=1 dtype=f32 bias=1 relu=1",
                "conv2d 64x56x56 k64 3x3 s1 p1 f32 +bias+relu",
            ),
            ("conv2d n=8 c=6 h=9 w=8 k=4 r=1 s=1 stride_h=2 dtype=f32", "conv2d n8 6x9x8 k4 1x1 s2x1 p0 f32"),
            (
                "conv2d n=1 c=32 h=9 w=9 k=32 r=3 s=3 dilation=2 groups=32 pad_l=2 dtype=f32",
                "conv2d 32x9x9 k32 3x3 s1 p0x2 d2 g32 f32",
            ),
        ] {
            assert_eq!(Workload::parse(sugar).unwrap().summary(), summary);
        }
    }

    #[test]
    fn names_do_not_matter_and_the_rest_lists_its_axes() {
        let key = "tw1;contract.madd;x:p4,y:p5,z:r6;in.p=f32[x,z]@s(6,1)a4;in.q=f32[z,y]@s(5,1)a4;out.o=f32[x,y]@s(5,1)a4;acc=f32;epi=-;math=ieee;det=any;ws=0";
        assert_eq!(Workload::parse(key).unwrap().summary(), "matmul 4x5x6 f32");
        let rows = "tw1;rows.softmax;m:p1..8/1,k:r6;in.x=f32[m,k]@s(6,1)a4;out.y=f32[m,k]@s(6,1)a4;acc=f32;epi=scale(0.5);math=ieee;det=any;ws=0";
        assert_eq!(Workload::parse(rows).unwrap().summary(), "rows.softmax m1..8 k6 f32 +scale");
    }
}
