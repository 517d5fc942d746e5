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
    /// Element type of the panels.
    pub dtype: DType,
}

/// A coordinate of the operand that is packed.
pub(super) struct At {
    /// Fused batch coordinate.
    pub batch: Index,
    /// Coordinate along the packed dimension.
    pub position: Index,
    /// Innermost step.
    pub step: Index,
    /// Where the operand has an element: not beyond the end of the packed dimension.
    pub guards: Vec<Guard>,
    panel: Index,
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
        self.len() * self.dtype.bytes()
    }

    /// The workspace buffer as a parameter of a kernel.
    pub(super) fn buffer(&self, name: &str, access: Access) -> Buffer {
        let source = Source::Workspace(self.workspace);
        Buffer {
            name: format!("{name}_panels"),
            source,
            dtype: self.dtype,
            len: self.len(),
            align: 64,
            access,
            stream: false,
        }
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

    /// The kernel that fills the panels from `operand`, its buffer 0. For each batch coordinate, panel and coordinate of
    /// the outer loops `over`, `fill` gives the statement that walks a [`Packed::window`] of steps and elements.
    pub(super) fn kernel(
        &self,
        name: &str,
        phase: Phase,
        operand: Buffer,
        over: &[u64],
        fill: &dyn Fn(&At, &[Index]) -> Stmt,
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
        let outer: Vec<Index> = over.iter().map(|&extent| open("tap", extent, LoopKind::Serial)).collect();
        let position = panel.clone() * Index::of(self.width) + Index::Coord(1);
        let mut guards = Vec::new();
        if !self.extent.is_multiple_of(self.width) {
            guards.push(Guard { index: position.clone(), bound: Index::of(self.extent) });
        }
        let at = At { batch, position, step: Index::Coord(0), guards, panel };
        let nest =
            |body, (var, extent, kind): (_, u64, _)| vec![Stmt::For { var, extent: Index::of(extent), kind, body }];
        let body = loops.into_iter().rev().fold(vec![fill(&at, &outer)], nest);
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

    /// The window of [`Packed::kernel`]: innermost steps and the elements of a panel.
    pub(super) fn window(&self) -> Vec<Index> {
        vec![Index::of(self.steps), Index::of(self.width)]
    }

    /// Where [`Packed::kernel`] puts the element of a window.
    pub(super) fn filled(&self, at: &At, taps: &[Index]) -> View {
        self.view(1, at.batch.clone(), at.panel.clone(), taps, at.step.clone(), Index::Coord(1))
    }

    /// The statement that copies a window from the element `index` of the operand, whose padding has these guards.
    pub(super) fn copy(&self, at: &At, taps: &[Index], (index, mut guards): (Index, Vec<Guard>)) -> Stmt {
        guards.extend(at.guards.iter().cloned());
        let src = View { place: Place::Buffer(0), index: vec![index], guards };
        Stmt::Copy { shape: self.window(), dst: self.filled(at, taps), src }
    }
}
