//! Runs level 1 as an array program, in binary64: layouts, pipes and loop kinds mean nothing here.
//!
//! It is slow and strict: tiles begin as NaN, so that what was never written shows, and every access is checked.

use super::{
    BinaryOp, Compare, Cond, Fold, FoldOp, Guard, Kernel, Place, Program, Scalar, Source, Stmt, UnaryOp, View,
};
use crate::index::{Index, Var};

/// Why a program could not be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpretError {
    /// An element outside a buffer or tile.
    #[error("{place}: index {index} is outside 0..{len}")]
    OutOfBounds {
        /// Name of the buffer or tile.
        place: String,
        /// The index.
        index: i64,
        /// Elements, or the extent of the dimension.
        len: u64,
    },
}

/// Runs all kernels in order. `operands[i]` is the physical buffer of the workload's operand `i`; outputs are updated in
/// place.
///
/// # Errors
/// [`InterpretError::OutOfBounds`] at the first access outside.
pub fn interpret(program: &Program, operands: &mut [Vec<f64>]) -> Result<(), InterpretError> {
    let mut workspace: Vec<Vec<f64>> = vec![Vec::new(); program.workspace_bytes.len()];
    for buffer in program.kernels.iter().flat_map(|kernel| &kernel.buffers) {
        if let Source::Workspace(position) = buffer.source {
            let len = usize::try_from(buffer.len).expect("invariant: workspace fits memory");
            let known = &mut workspace[position];
            known.resize(known.len().max(len), f64::NAN);
        }
    }
    for kernel in &program.kernels {
        let tile = |tile: &super::Tile| {
            vec![f64::NAN; usize::try_from(tile.shape.iter().product::<u64>()).expect("invariant: tiles fit memory")]
        };
        let tiles = kernel.tiles.iter().map(tile).collect();
        let vars = vec![0; kernel.vars.len()];
        Machine { kernel, operands, workspace: &mut workspace, tiles, vars }.block(&kernel.body)?;
    }
    Ok(())
}

struct Machine<'a> {
    kernel: &'a Kernel,
    operands: &'a mut [Vec<f64>],
    workspace: &'a mut [Vec<f64>],
    tiles: Vec<Vec<f64>>,
    vars: Vec<i64>,
}

impl Machine<'_> {
    fn eval(&self, index: &Index, coords: &[i64]) -> i64 {
        index.eval(&|var: Var| self.vars[var.0 as usize], coords)
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), InterpretError> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), InterpretError> {
        match stmt {
            Stmt::For { var, extent, body, .. } => {
                for at in 0..self.eval(extent, &[]) {
                    self.vars[var.0 as usize] = at;
                    self.block(body)?;
                }
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                let holds = match cond {
                    Cond::Lt(lhs, rhs) => self.eval(lhs, &[]) < self.eval(rhs, &[]),
                    Cond::Eq(lhs, rhs) => self.eval(lhs, &[]) == self.eval(rhs, &[]),
                };
                self.block(if holds { then } else { otherwise })
            }
            Stmt::Copy { shape, dst, src } => self.window(shape, |machine, coords| {
                let value = machine.read(src, coords)?;
                machine.write(dst, coords, value)
            }),
            Stmt::Fill { tile, value } => {
                self.tiles[*tile].fill(*value);
                Ok(())
            }
            Stmt::Map { shape, dst, args, expr } => self.window(shape, |machine, coords| {
                let values = args.iter().map(|arg| machine.read(arg, coords)).collect::<Result<Vec<_>, _>>()?;
                let value = machine.scalar(expr, &values, &[], coords);
                machine.write(dst, coords, value)
            }),
            Stmt::Sweep { shape, args, lets, stores, folds, .. } => self.window(shape, |machine, coords| {
                let args = args.iter().map(|arg| machine.read(arg, coords)).collect::<Result<Vec<_>, _>>()?;
                let mut values = Vec::with_capacity(lets.len());
                for expr in lets {
                    values.push(machine.scalar(expr, &args, &values, coords));
                }
                stores.iter().try_for_each(|(view, value)| machine.write(view, coords, values[*value]))?;
                folds.iter().try_for_each(|fold| machine.fold(fold, coords, values[fold.value]))
            }),
            Stmt::Contract { shape, acc, a, b, keep, .. } => {
                let columns = self.kernel.tiles[*acc].shape[1];
                self.window(shape, |machine, coords| {
                    let right = machine.read(b, coords)?;
                    if let Some(keep) = keep {
                        machine.write(keep, coords, right)?;
                    }
                    let product = machine.read(a, coords)? * right;
                    let at = coords[0] * i64::try_from(columns).expect("invariant: small tiles") + coords[1];
                    let at = usize::try_from(at).expect("invariant: coordinates are not negative");
                    machine.tiles[*acc][at] += product;
                    Ok(())
                })
            }
            Stmt::Prefetch { .. } | Stmt::Pipe { .. } => Ok(()),
        }
    }

    fn fold(&mut self, fold: &Fold, coords: &[i64], value: f64) -> Result<(), InterpretError> {
        let before = self.read(&fold.into, coords)?;
        self.write(&fold.into, coords, fold.op.apply(before, value))
    }

    fn scalar(&self, expr: &Scalar, args: &[f64], lets: &[f64], coords: &[i64]) -> f64 {
        let of = |expr: &Scalar| self.scalar(expr, args, lets, coords);
        match expr {
            Scalar::Arg(position) => args[*position],
            Scalar::Let(position) => lets[*position],
            Scalar::Const(value) => *value,
            #[expect(clippy::cast_precision_loss, reason = "positions are below 2^31")]
            Scalar::Position(index) => self.eval(index, coords) as f64,
            Scalar::Select(compare, parts) => {
                let [lhs, rhs, then, otherwise] = &**parts;
                let (lhs, rhs) = (of(lhs), of(rhs));
                let holds = match compare {
                    Compare::Lt => lhs < rhs,
                    Compare::Le => lhs <= rhs,
                    #[expect(clippy::float_cmp, reason = "equality is what is asked for")]
                    Compare::Eq => lhs == rhs,
                };
                of(if holds { then } else { otherwise })
            }
            Scalar::Unary(op, value) => op.apply(of(value)),
            Scalar::Binary(op, lhs, rhs) => op.apply(of(lhs), of(rhs)),
        }
    }

    fn window(
        &mut self,
        shape: &[Index],
        mut body: impl FnMut(&mut Self, &[i64]) -> Result<(), InterpretError>,
    ) -> Result<(), InterpretError> {
        let extents: Vec<i64> = shape.iter().map(|extent| self.eval(extent, &[])).collect();
        if extents.iter().any(|&extent| extent <= 0) {
            return Ok(());
        }
        let mut coords = vec![0; extents.len()];
        loop {
            body(self, &coords)?;
            let Some(dim) = (0..coords.len()).rev().find(|&dim| coords[dim] + 1 < extents[dim]) else { return Ok(()) };
            coords[dim] += 1;
            coords[dim + 1..].fill(0);
        }
    }

    fn exists(&self, guards: &[Guard], coords: &[i64]) -> bool {
        guards.iter().all(|guard| (0..self.eval(&guard.bound, coords)).contains(&self.eval(&guard.index, coords)))
    }

    /// The position in the backing store of a place.
    fn locate(&self, view: &View, coords: &[i64]) -> Result<usize, InterpretError> {
        let outside =
            |place: &str, index: i64, len: u64| InterpretError::OutOfBounds { place: place.into(), index, len };
        let inside = |index: i64, len: u64| u64::try_from(index).ok().filter(|&index| index < len);
        let at = match view.place {
            Place::Buffer(position) => {
                let buffer = &self.kernel.buffers[position];
                let index = self.eval(&view.index[0], coords);
                inside(index, buffer.len).ok_or_else(|| outside(&buffer.name, index, buffer.len))?
            }
            Place::Tile(position) => {
                let tile = &self.kernel.tiles[position];
                let mut flat = 0;
                for (index, &extent) in view.index.iter().zip(&tile.shape) {
                    let index = self.eval(index, coords);
                    flat = flat * extent + inside(index, extent).ok_or_else(|| outside(&tile.name, index, extent))?;
                }
                flat
            }
        };
        Ok(usize::try_from(at).expect("invariant: buffers fit memory"))
    }

    fn store_of(&mut self, place: Place) -> &mut Vec<f64> {
        match place {
            Place::Buffer(position) => match self.kernel.buffers[position].source {
                Source::Operand(operand) => &mut self.operands[operand],
                Source::Workspace(workspace) => &mut self.workspace[workspace],
            },
            Place::Tile(position) => &mut self.tiles[position],
        }
    }

    fn read(&mut self, view: &View, coords: &[i64]) -> Result<f64, InterpretError> {
        if !self.exists(&view.guards, coords) {
            return Ok(0.0);
        }
        let at = self.locate(view, coords)?;
        Ok(self.store_of(view.place)[at])
    }

    fn write(&mut self, view: &View, coords: &[i64], value: f64) -> Result<(), InterpretError> {
        if !self.exists(&view.guards, coords) {
            return Ok(());
        }
        let at = self.locate(view, coords)?;
        self.store_of(view.place)[at] = value;
        Ok(())
    }
}

impl UnaryOp {
    /// The value in binary64.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Exp | UnaryOp::ExpBelowZero | UnaryOp::ExpShort => x.exp(),
            UnaryOp::Log => x.ln(),
            UnaryOp::Tanh => x.tanh(),
            UnaryOp::Erf => libm::erf(x),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Recip => x.recip(),
        }
    }
}

impl BinaryOp {
    /// The value in binary64; minima and maxima give their right operand when one is NaN.
    pub fn apply(self, lhs: f64, rhs: f64) -> f64 {
        match self {
            BinaryOp::Add => lhs + rhs,
            BinaryOp::Sub => lhs - rhs,
            BinaryOp::Mul => lhs * rhs,
            BinaryOp::Div => lhs / rhs,
            BinaryOp::Min => {
                if lhs < rhs {
                    lhs
                } else {
                    rhs
                }
            }
            BinaryOp::Max => {
                if lhs > rhs {
                    lhs
                } else {
                    rhs
                }
            }
        }
    }
}

impl FoldOp {
    /// One step in binary64.
    pub fn apply(self, before: f64, value: f64) -> f64 {
        match self {
            FoldOp::Add => before + value,
            FoldOp::Min => before.min(value),
            FoldOp::Max => before.max(value),
            FoldOp::NanMax if before.is_nan() || value.is_nan() => f64::NAN,
            FoldOp::NanMax => before.max(value),
        }
    }

    /// What a fold over nothing gives.
    pub fn identity(self) -> f64 {
        match self {
            FoldOp::Add => 0.0,
            FoldOp::Min => f64::INFINITY,
            FoldOp::Max | FoldOp::NanMax => f64::NEG_INFINITY,
        }
    }
}
