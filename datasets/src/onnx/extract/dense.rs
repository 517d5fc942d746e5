//! Workloads over dense tensors whose axes have been put together.

use search_space::Workload;
use search_space::workload::{
    Axis, AxisKind, DEFAULT_ALIGN, DEFAULT_WORKSPACE_BYTES, DType, Determinism, EpilogueStep, MathMode, Op, Operand,
    Role, Storage, Subscript, row_major,
};

use super::super::value::element_count;

/// Names of axes of no particular meaning, outermost first.
const NAMES: [&str; 12] = ["i", "j", "k", "l", "a", "b", "c", "d", "e", "f", "g", "h"];

/// Neighbouring dimensions as one, where nothing tells them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) extent: u64,
    /// Whether it is reduced.
    pub(super) reduced: bool,
}

/// Puts neighbours that are both reduced or both kept together, without those of extent 1.
pub(super) fn grouped(shape: &[u64], reduced: &[usize]) -> Result<Vec<Group>, String> {
    let mut groups: Vec<Group> = Vec::new();
    for (axis, &extent) in shape.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let reduced = reduced.contains(&axis);
        match groups.last_mut() {
            Some(group) if group.reduced == reduced => {
                group.extent = element_count(&[group.extent, extent]).ok_or_else(too_large)?;
            }
            _ => groups.push(Group { extent, reduced }),
        }
    }
    Ok(groups)
}

/// Product of dimensions.
pub(super) fn count(shape: &[u64]) -> Result<u64, String> {
    element_count(shape).ok_or_else(too_large)
}

fn too_large() -> String {
    "it has more than 2^64 elements".to_owned()
}

/// An axis for each group.
pub(super) fn axes(groups: &[Group]) -> Result<Vec<Axis>, String> {
    if groups.len() > NAMES.len() {
        return Err(format!("it has {} dimensions that cannot be put together", groups.len()));
    }
    let kind = |group: &Group| if group.reduced { AxisKind::Reduction } else { AxisKind::Parallel };
    Ok(groups.iter().zip(NAMES).map(|(group, name)| Axis::fixed(name, kind(group), group.extent)).collect())
}

/// A dense operand over axes, outermost first.
pub(super) fn tensor(role: Role, name: &str, dtype: DType, axes: &[Axis], dims: &[usize]) -> Operand {
    let shape: Vec<u64> = dims.iter().map(|axis| axes[*axis].extent.max()).collect();
    operand(role, name, dtype, dims.iter().copied().map(Subscript::axis).collect(), &shape)
}

/// A dense operand.
pub(super) fn operand(role: Role, name: &str, dtype: DType, index: Vec<Subscript>, shape: &[u64]) -> Operand {
    let storage = Storage::Strides(row_major(shape));
    Operand { role, name: name.into(), dtype, index, storage, align: DEFAULT_ALIGN, alias: None, prologue: None }
}

/// A valid workload.
pub(super) fn workload(
    op: Op,
    axes: Vec<Axis>,
    operands: Vec<Operand>,
    epilogue: Vec<EpilogueStep>,
) -> Result<Workload, String> {
    let acc = match operands[0].dtype {
        DType::F64 => DType::F64,
        DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
        DType::I8 | DType::U8 | DType::I32 => DType::I32,
    };
    let workload = Workload {
        op,
        axes,
        operands,
        acc,
        epilogue,
        math: MathMode::Ieee,
        det: Determinism::Fixed,
        workspace_bytes: DEFAULT_WORKSPACE_BYTES,
    };
    workload.validate().map_err(|why| why.to_string())?;
    Ok(workload)
}
