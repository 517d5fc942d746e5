//! The text of level 1: `tilewright show --as tile`, snapshots, and what the program hash is taken of.

use std::fmt::{self, Display, Write};

use super::{
    Access, BinaryOp, Compare, Cond, FoldOp, Kernel, LoopKind, Phase, PipeStep, Place, Program, Scalar, Source, Space,
    Stmt, UnaryOp, View,
};
use crate::index::{Index, Var};

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, bytes) in self.workspace_bytes.iter().enumerate() {
            writeln!(f, "workspace {position}: {bytes} bytes")?;
        }
        self.kernels.iter().try_for_each(|kernel| kernel.fmt(f))
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = if self.phase == Phase::Prepack { "prepack" } else { "run" };
        let [x, y, z] = self.workgroup;
        writeln!(f, "kernel {} phase={phase} workgroup={x}x{y}x{z}", self.name)?;
        for buffer in &self.buffers {
            let access = match buffer.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "readwrite",
            };
            let source = match buffer.source {
                Source::Operand(position) => format!("operand {position}"),
                Source::Workspace(position) => format!("workspace {position}"),
            };
            let dtype = buffer.dtype.as_str();
            let stream = if buffer.stream { " stream" } else { "" };
            writeln!(
                f,
                "  buffer {}: {dtype}[{}] align {} {access}{stream} = {source}",
                buffer.name, buffer.len, buffer.align
            )?;
        }
        for tile in &self.tiles {
            let shape = tile.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
            write!(f, "  tile {}: {}[{shape}] ", tile.name, tile.dtype.as_str())?;
            match &tile.space {
                Space::Scratch(layout) => writeln!(f, "scratch {layout}")?,
                Space::Shared(layout) => writeln!(f, "shared {layout}")?,
                Space::Register(held) => writeln!(f, "register lanes {} values {}", held.lanes, held.values)?,
            }
        }
        for pipe in &self.pipes {
            let tiles = pipe.tiles.iter().map(|&tile| self.tiles[tile].name.as_str()).collect::<Vec<_>>().join(", ");
            writeln!(f, "  pipe {}: {} stages of {tiles}", pipe.name, pipe.stages)?;
        }
        let mut text = String::new();
        Text { kernel: self, out: &mut text }.block(&self.body, 1)?;
        f.write_str(&text)
    }
}

struct Text<'a> {
    kernel: &'a Kernel,
    out: &'a mut String,
}

impl Text<'_> {
    fn block(&mut self, stmts: &[Stmt], depth: usize) -> fmt::Result {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt, depth))
    }

    fn line(&mut self, depth: usize, text: &str) -> fmt::Result {
        writeln!(self.out, "{:indent$}{text}", "", indent = depth * 2)
    }

    fn stmt(&mut self, stmt: &Stmt, depth: usize) -> fmt::Result {
        match stmt {
            Stmt::For { var, extent, kind, body } => {
                let kind = match kind {
                    LoopKind::Serial => String::new(),
                    LoopKind::Unroll(factor) => format!(" unroll {factor}"),
                    LoopKind::Cores => " cores".into(),
                    LoopKind::Shares(shares) => format!(" cores shares {shares}"),
                    LoopKind::Invocations(turns) => format!(" invocations turns {turns}"),
                    LoopKind::Grid(dim) => format!(" grid {dim}"),
                };
                let head = format!("for {} in 0..{}{kind}", self.index(&Index::Var(*var)), self.index(extent));
                self.line(depth, &head)?;
                self.block(body, depth + 1)
            }
            Stmt::If { cond, then, otherwise } => {
                let head = match cond {
                    Cond::Lt(lhs, rhs) => format!("if {} < {}", self.index(lhs), self.index(rhs)),
                    Cond::Eq(lhs, rhs) => format!("if {} == {}", self.index(lhs), self.index(rhs)),
                };
                self.line(depth, &head)?;
                self.block(then, depth + 1)?;
                if !otherwise.is_empty() {
                    self.line(depth, "else")?;
                    self.block(otherwise, depth + 1)?;
                }
                Ok(())
            }
            Stmt::Copy { shape, dst, src } => {
                let text = format!("copy {} {} <- {}", self.shape(shape), self.view(dst), self.view(src));
                self.line(depth, &text)
            }
            Stmt::Fill { tile, value } => {
                let text = format!("fill {} = {value:?}", self.kernel.tiles[*tile].name);
                self.line(depth, &text)
            }
            Stmt::Map { shape, dst, args, expr } => {
                let args: Vec<String> = args.iter().map(|arg| self.view(arg)).collect();
                let text = format!("map {} {} = {}", self.shape(shape), self.view(dst), self.scalar(expr, &args));
                self.line(depth, &text)
            }
            Stmt::Sweep { shape, args, lets, stores, folds, accumulators, ahead } => {
                let args: Vec<String> = args.iter().map(|arg| self.view(arg)).collect();
                self.line(depth, &format!("sweep {} accumulators {accumulators} ahead {ahead}", self.shape(shape)))?;
                for (position, value) in lets.iter().enumerate() {
                    self.line(depth + 1, &format!("let x{position} = {}", self.scalar(value, &args)))?;
                }
                for (view, value) in stores {
                    self.line(depth + 1, &format!("{} = x{value}", self.view(view)))?;
                }
                for fold in folds {
                    let op = match fold.op {
                        FoldOp::Add => "+",
                        FoldOp::Min => "min",
                        FoldOp::Max => "max",
                        FoldOp::NanMax => "nanmax",
                    };
                    self.line(depth + 1, &format!("{} {op}= x{}", self.view(&fold.into), fold.value))?;
                }
                Ok(())
            }
            Stmt::Contract { shape, acc, a, b, atom, unroll, prefetch, keep, wake } => {
                let acc = &self.kernel.tiles[*acc].name;
                let (shape, a, b) = (self.shape(shape), self.view(a), self.view(b));
                let ahead = if *prefetch > 0 { format!(" prefetch {prefetch}") } else { String::new() };
                let keep = keep.as_ref().map_or(String::new(), |keep| format!(" keep {b} in {}", self.view(keep)));
                let wake = if *wake > 0 { format!(" wake {wake}") } else { String::new() };
                let with = format!("with {} unroll {unroll}{ahead}{keep}{wake}", atom.name);
                self.line(depth, &format!("contract {shape} {acc} += {a} * {b} {with}"))
            }
            Stmt::Prefetch { shape, src } => {
                self.line(depth, &format!("prefetch {} {}", self.shape(shape), self.view(src)))
            }
            Stmt::Pipe { pipe, step } => {
                let step = match step {
                    PipeStep::Acquire => "acquire",
                    PipeStep::Commit => "commit",
                    PipeStep::Wait => "wait",
                    PipeStep::Release => "release",
                };
                let text = format!("{step} {}", self.kernel.pipes[*pipe].name);
                self.line(depth, &text)
            }
        }
    }

    fn index(&self, index: &Index) -> String {
        let name = |var: Var| {
            let plain = self.kernel.vars.get(var.0 as usize).cloned().unwrap_or_default();
            format!("{plain}{}", var.0)
        };
        index.display(&name).to_string()
    }

    fn shape(&self, shape: &[Index]) -> String {
        format!("[{}]", shape.iter().map(|extent| self.index(extent)).collect::<Vec<_>>().join(", "))
    }

    fn view(&self, view: &View) -> String {
        let name = match view.place {
            Place::Buffer(position) => &self.kernel.buffers[position].name,
            Place::Tile(position) => &self.kernel.tiles[position].name,
        };
        let mut text = format!("{name}{}", self.shape(&view.index));
        for guard in &view.guards {
            text.push_str(&format!(" where 0 <= {} < {}", self.index(&guard.index), self.index(&guard.bound)));
        }
        text
    }

    fn scalar(&self, expr: &Scalar, args: &[String]) -> String {
        match expr {
            Scalar::Arg(position) => args[*position].clone(),
            Scalar::Let(position) => format!("x{position}"),
            Scalar::Const(value) => format!("{value:?}"),
            Scalar::Position(index) => format!("position({})", self.index(index)),
            Scalar::Select(compare, parts) => {
                let [lhs, rhs, then, otherwise] = &**parts;
                let compare = match compare {
                    Compare::Lt => "<",
                    Compare::Le => "<=",
                    Compare::Eq => "==",
                };
                let [lhs, rhs, then, otherwise] = [lhs, rhs, then, otherwise].map(|part| self.scalar(part, args));
                format!("({lhs} {compare} {rhs} ? {then} : {otherwise})")
            }
            Scalar::Unary(op, value) => {
                let name = match op {
                    UnaryOp::Neg => "-",
                    UnaryOp::Exp => "exp",
                    UnaryOp::ExpBelowZero => "exp_below_zero",
                    UnaryOp::ExpShort => "exp_short",
                    UnaryOp::Log => "log",
                    UnaryOp::Tanh => "tanh",
                    UnaryOp::Erf => "erf",
                    UnaryOp::Sqrt => "sqrt",
                    UnaryOp::Recip => "recip",
                };
                format!("{name}({})", self.scalar(value, args))
            }
            Scalar::Binary(op, lhs, rhs) => {
                let (lhs, rhs) = (self.scalar(lhs, args), self.scalar(rhs, args));
                match op {
                    BinaryOp::Add => format!("({lhs} + {rhs})"),
                    BinaryOp::Sub => format!("({lhs} - {rhs})"),
                    BinaryOp::Mul => format!("({lhs} * {rhs})"),
                    BinaryOp::Div => format!("({lhs} / {rhs})"),
                    BinaryOp::Min => format!("min({lhs}, {rhs})"),
                    BinaryOp::Max => format!("max({lhs}, {rhs})"),
                }
            }
        }
    }
}
