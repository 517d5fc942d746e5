//! Operands in panels: `[batch, panel, step, element]` in a workspace buffer, where a register tile finds the elements
//! of each step side by side. What reaches over the end is zero.

use search_space::workload::DType;

use crate::families::contraction::Names;
use crate::index::Index;
use crate::tile::{Access, Buffer, Guard, Kernel, LoopKind, Phase, Place, Source, Stmt, View};

/// The panels of one operand.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Position in [`crate::tile::Program::workspace_bytes`].
    pub workspace: usize,
    /// Values of the fused batch coordinate.
    pub batch: u64,
    /// Elements along the packed dimension.
    pub extent: u64,
    /// Elements of a panel.
    pub width: u64,
    /// Outer steps of the reduction, outermost first: the taps of a window.
    pub taps: Vec<u64>,
    /// Innermost steps of the reduction.
    pub steps: u64,
}

/// A coordinate of the operand that is packed.
pub(super) struct At {
    /// Fused batch coordinate.
    pub batch: Index,
    /// Coordinate along the packed dimension.
    pub position: Index,
    /// Coordinate of each outer step.
    pub taps: Vec<Index>,
    /// Innermost step.
    pub step: Index,
}

impl Packed {
    fn panels(&self) -> u64 {
        self.extent.div_ceil(self.width)
    }

    fn len(&self) -> u64 {
        self.batch * self.panels() * self.taps.iter().product::<u64>() * self.steps * self.width
    }

    /// Bytes of the workspace buffer.
    pub(super) fn bytes(&self) -> u64 {
        self.len() * DType::F32.bytes()
    }

    /// The workspace buffer as a parameter of a kernel.
    pub(super) fn buffer(&self, name: &str, access: Access) -> Buffer {
        let source = Source::Workspace(self.workspace);
        Buffer { name: format!("{name}_panels"), source, dtype: DType::F32, len: self.len(), align: 64, access }
    }

    /// Element `element` of a step of a panel.
    pub(super) fn view(
        &self,
        buffer: usize,
        batch: Index,
        panel: Index,
        taps: &[Index],
        step: Index,
        element: Index,
    ) -> View {
        let mut at = batch * Index::of(self.panels()) + panel;
        for (tap, &extent) in taps.iter().zip(&self.taps) {
            at = at * Index::of(extent) + tap.clone();
        }
        let at = (at * Index::of(self.steps) + step) * Index::of(self.width) + element;
        View { place: Place::Buffer(buffer), index: vec![at], guards: Vec::new() }
    }

    /// The kernel that fills the panels from `operand`, whose elements `source` finds.
    pub(super) fn kernel(
        &self,
        name: &str,
        phase: Phase,
        operand: Buffer,
        source: &dyn Fn(&At) -> (Index, Vec<Guard>),
    ) -> Kernel {
        let mut names = Names::default();
        let mut loops = Vec::new();
        let mut open = |name: &str, extent: u64, kind: LoopKind| {
            // The loop over the cores stays even for one panel: it keeps the other cores from packing too.
            if extent == 1 && kind == LoopKind::Serial {
                return Index::ZERO;
            }
            let var = names.var(name);
            loops.push((var, extent, kind));
            Index::Var(var)
        };
        let batch = open("batch", self.batch, LoopKind::Serial);
        let panel = open("panel", self.panels(), LoopKind::Cores);
        let taps: Vec<Index> = self.taps.iter().map(|&extent| open("tap", extent, LoopKind::Serial)).collect();
        let position = panel.clone() * Index::of(self.width) + Index::Coord(1);
        let at = At { batch, position: position.clone(), taps, step: Index::Coord(0) };
        let (index, mut guards) = source(&at);
        if !self.extent.is_multiple_of(self.width) {
            guards.push(Guard { index: position, bound: Index::of(self.extent) });
        }
        let copy = Stmt::Copy {
            shape: vec![Index::of(self.steps), Index::of(self.width)],
            dst: self.view(1, at.batch, panel, &at.taps, Index::Coord(0), Index::Coord(1)),
            src: View { place: Place::Buffer(0), index: vec![index], guards },
        };
        let nest =
            |body, (var, extent, kind): (_, u64, _)| vec![Stmt::For { var, extent: Index::of(extent), kind, body }];
        let body = loops.into_iter().rev().fold(vec![copy], nest);
        let panels = self.buffer(&operand.name, Access::Write);
        Kernel {
            name: name.into(),
            phase,
            buffers: vec![Buffer { access: Access::Read, ..operand }, panels],
            workgroup: [1; 3],
            vars: names.0,
            tiles: Vec::new(),
            pipes: Vec::new(),
            body,
        }
    }
}
