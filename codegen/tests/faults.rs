//! Seeded faults: what the verifier and the interpreter are for.

#![allow(clippy::unwrap_used, reason = "a test may panic, print its seed and round its inputs")]

use search_space::{Workload, reference, samples};
use tilewright_codegen::index::{Index, Var};
use tilewright_codegen::tile::interpret::{InterpretError, interpret};
use tilewright_codegen::tile::verify::{TileError, verify};
use tilewright_codegen::tile::{Access, Fold, FoldOp, Kernel, LoopKind, Place, Program, Scalar, Space, Stmt, View};
use tilewright_codegen::{layout::Layout, lower};

fn program(workload: &Workload, tail: &str) -> Program {
    packed(workload, tail, "panel")
}

fn packed(workload: &Workload, tail: &str, pack_b: &str) -> Program {
    let target = samples::cpu_target("haswell", &["avx", "avx2", "fma"], 32, 2);
    let mut schedule = search_space::families::plan(workload, &target).unwrap().default;
    for (name, value) in [("mr", 4), ("mt", 1), ("nt", 1), ("vw", 8), ("nv", 1), ("kc", 4), ("pf", 0)] {
        schedule.set(name, value);
    }
    let par = if pack_b == "fused" { "cols" } else { "rows" };
    for (name, value) in [("tail", tail), ("pack_a", "panel"), ("pack_b", pack_b), ("par", par), ("vec", "n")] {
        schedule.set(name, value);
    }
    lower(workload, &target, &schedule).unwrap().tile
}

fn matmul() -> Workload {
    Workload::parse("matmul m=6 n=10 k=7 dtype=f32").unwrap()
}

/// Applies `change` to every statement, outermost first.
fn change(stmts: &mut Vec<Stmt>, edit: &mut dyn FnMut(&mut Stmt)) {
    for stmt in stmts {
        edit(stmt);
        match stmt {
            Stmt::For { body, .. } => change(body, edit),
            Stmt::If { then, otherwise, .. } => {
                change(then, edit);
                change(otherwise, edit);
            }
            _ => {}
        }
    }
}

fn broken(edit: impl FnOnce(&mut Kernel)) -> TileError {
    let mut program = program(&matmul(), "masked");
    assert_eq!(verify(&program), Ok(()), "the program is good before the fault");
    edit(&mut program.kernels[0]);
    verify(&program).unwrap_err()
}

/// A product on the matrix unit with two shapes of register tiles.
fn tiled() -> Program {
    let target = samples::cpu_target("sapphirerapids", &["amx-bf16", "amx-tile", "avx512f"], 64, 1);
    let workload = Workload::parse("matmul m=40 n=32 k=40 dtype=bf16").unwrap();
    let mut schedule = search_space::families::plan(&workload, &target).unwrap().default;
    for (name, value) in [("mr", 32), ("nv", 2), ("mt", 1), ("nt", 1)] {
        schedule.set(name, value);
    }
    lower(&workload, &target, &schedule).unwrap().tile
}

/// Changes a statement of a program whose first register tile is at this position.
type Fault = Box<dyn Fn(&mut Stmt, usize)>;

#[test]
fn verifier_finds_each_misuse_of_a_matrix_unit() {
    let acc = |kernel: &Kernel| {
        let found = kernel.tiles.iter().position(|tile| matches!(tile.space, Space::Register(_)));
        found.expect("there is a register tile")
    };
    let faults: Vec<Fault> = vec![
        Box::new(|stmt, _| {
            if let Stmt::Fill { value, .. } = stmt {
                *value = 1.0;
            }
        }),
        Box::new(|stmt, _| {
            if let Stmt::Contract { shape, .. } = stmt {
                shape[2] = Index::Const(40);
            }
        }),
        // The other tile takes the registers before the sums are copied.
        Box::new(|stmt, acc| {
            if let Stmt::Fill { tile, .. } = stmt {
                *tile = acc;
            }
        }),
        Box::new(|stmt, acc| {
            if let Stmt::Map { args, .. } = stmt {
                args[0].place = Place::Tile(acc);
            }
        }),
        Box::new(|stmt, acc| {
            if let Stmt::Copy { src, dst, .. } = stmt
                && src.place == Place::Tile(acc)
            {
                dst.guards.push(tilewright_codegen::tile::Guard { index: Index::Coord(0), bound: Index::Const(3) });
            }
        }),
        Box::new(|stmt, acc| {
            if let Stmt::Copy { src, shape, .. } = stmt
                && src.place == Place::Tile(acc)
            {
                shape[0] = Index::Const(3);
            }
        }),
    ];
    for (position, fault) in faults.iter().enumerate() {
        let mut program = tiled();
        assert_eq!(verify(&program), Ok(()), "the program is good before the fault");
        let kernel = &mut program.kernels[0];
        let acc = acc(kernel);
        change(&mut kernel.body, &mut |stmt| fault(stmt, acc));
        let error = verify(&program);
        assert!(matches!(error, Err(TileError::Matrix { .. })), "fault {position}: {error:?}");
    }
}

#[test]
fn verifier_finds_each_fault() {
    let unbound = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Copy { src, .. } = stmt {
                src.index[0] = Index::Var(Var(99));
            }
        });
    });
    assert!(matches!(unbound, TileError::Unbound { .. }), "{unbound}");
    let missing = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Copy { dst, .. } = stmt {
                dst.place = Place::Tile(99);
            }
        });
    });
    assert!(matches!(missing, TileError::Missing { what: "tile", position: 99 }), "{missing}");
    let arity = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Copy { dst, .. } = stmt {
                dst.index.pop();
            }
        });
    });
    assert!(matches!(arity, TileError::Arity { dims: 3, indices: 2, .. }), "{arity}");
    let coordinate = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Contract { a, .. } = stmt {
                a.index[0] = Index::Coord(1);
            }
        });
    });
    assert!(matches!(coordinate, TileError::Coordinate { dim: 1, .. }), "{coordinate}");
    let accumulator = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Contract { shape, .. } = stmt {
                shape[0] = Index::Const(3);
            }
        });
    });
    assert!(matches!(accumulator, TileError::Accumulator { .. }), "{accumulator}");
    let read_only = broken(|kernel| kernel.buffers[2].access = Access::Read);
    assert!(matches!(read_only, TileError::ReadOnly { .. }), "{read_only}");
    let outside = broken(|kernel| {
        let mut store = None;
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Map { .. } = stmt {
                store.get_or_insert(stmt.clone());
            }
        });
        // The same store once more, after the loop over the cores, at constant places.
        let Some(Stmt::Map { shape, mut dst, .. }) = store else { unreachable!("the program stores") };
        (dst.index, dst.guards) = (vec![Index::Coord(1)], Vec::new());
        kernel.body.push(Stmt::Map { shape, args: vec![dst.clone()], dst, expr: Scalar::Arg(0) });
    });
    assert!(matches!(outside, TileError::OutsideCores { .. }), "{outside}");
    let argument = broken(|kernel| {
        change(&mut kernel.body, &mut |stmt| {
            if let Stmt::Map { args, .. } = stmt {
                args.clear();
            }
        });
    });
    assert_eq!(argument, TileError::Value { what: "map", position: 1 });
    let sweep = |change: fn(&mut Vec<Scalar>, &mut Vec<Fold>)| {
        broken(|kernel| {
            let view = |index: Vec<Index>| View { place: Place::Tile(0), index, guards: Vec::new() };
            let one = || view(vec![Index::ZERO, Index::ZERO, Index::Coord(0)]);
            let mut lets = vec![Scalar::Arg(0), Scalar::Let(0)];
            let mut folds = vec![Fold { into: one(), op: FoldOp::Add, value: 1 }; 2];
            change(&mut lets, &mut folds);
            let args = vec![view(vec![Index::ZERO, Index::Coord(1), Index::Coord(0)])];
            let shape = vec![Index::Const(2), Index::Const(2)];
            kernel.body.push(Stmt::Sweep { shape, args, lets, stores: Vec::new(), folds, accumulators: 1, ahead: 0 });
        })
    };
    assert_eq!(sweep(|lets, _| lets[0] = Scalar::Let(0)), TileError::Value { what: "sweep", position: 0 });
    assert_eq!(sweep(|_, folds| folds[1].value = 2), TileError::Value { what: "sweep", position: 2 });
    assert!(matches!(sweep(|_, folds| folds[1].into.index[1] = Index::Coord(1)), TileError::Folds { .. }));
    assert!(matches!(
        sweep(|_, folds| folds.iter_mut().for_each(|fold| fold.into.index[1] = Index::Coord(1))),
        TileError::Folds { .. }
    ));
    let nested = broken(|kernel| {
        let var = Var(u32::try_from(kernel.vars.len()).unwrap());
        kernel.vars.push("again".into());
        let body = std::mem::take(&mut kernel.body);
        kernel.body = vec![Stmt::For { var, extent: Index::Const(2), kind: LoopKind::Cores, body }];
    });
    assert_eq!(nested, TileError::NestedParallel);
    let layout = broken(|kernel| {
        let shape = kernel.tiles[0].shape.clone();
        kernel.tiles[0].space = Space::Scratch(Layout::strided(&shape, &[1, 1, 1]));
    });
    assert!(matches!(layout, TileError::Layout { .. }), "{layout}");
}

/// What a contraction keeps of its factor, and what is asked for ahead.
#[test]
fn verifier_finds_each_fault_beside_a_contraction() {
    let good = packed(&matmul(), "separate", "fused");
    assert_eq!(verify(&good), Ok(()), "the program is good before the fault");
    let kept = |edit: &dyn Fn(&mut View)| {
        let mut program = good.clone();
        let mut changed = 0;
        change(&mut program.kernels[0].body, &mut |stmt| {
            if let Stmt::Contract { keep: Some(keep), .. } = stmt {
                edit(keep);
                changed += 1;
            }
        });
        assert!(changed > 0, "the program packs on the way");
        verify(&program).unwrap_err()
    };
    let row = kept(&|keep| keep.index[0] = Index::Coord(0));
    assert!(matches!(row, TileError::Coordinate { dim: 0, .. }), "{row}");
    let input = kept(&|keep| (keep.place, keep.index) = (Place::Buffer(1), vec![Index::Coord(1)]));
    assert!(matches!(input, TileError::ReadOnly { .. }), "{input}");
    let mut program = tiled();
    change(&mut program.kernels[0].body, &mut |stmt| {
        if let Stmt::Contract { b, keep, .. } = stmt {
            *keep = Some(b.clone());
        }
    });
    let whole = verify(&program).unwrap_err();
    assert!(matches!(whole, TileError::Keep { .. }), "{whole}");
    let mut program = good.clone();
    let mut changed = 0;
    change(&mut program.kernels[0].body, &mut |stmt| {
        if let Stmt::Prefetch { shape, .. } = stmt {
            shape[0] = Index::Var(Var(0));
            changed += 1;
        }
    });
    assert!(changed > 0, "the program asks for its partial sums");
    let window = verify(&program).unwrap_err();
    assert!(matches!(window, TileError::Prefetch { .. }), "{window}");
    // A panel that is not kept is read by the next row of tiles.
    let workload = matmul();
    let wanted = run(&workload, &good).unwrap();
    let mut program = good;
    change(&mut program.kernels[0].body, &mut |stmt| {
        if let Stmt::Contract { keep, .. } = stmt {
            *keep = None;
        }
    });
    let found = run(&workload, &program);
    assert!(found.as_ref().map_or(true, |found| *found != wanted), "{found:?}");
}

/// Runs a program with a fault in it on inputs of ones.
fn run(workload: &Workload, program: &Program) -> Result<Vec<f64>, InterpretError> {
    let length = |i: usize| usize::try_from(workload.operand_len(i)).unwrap();
    let mut operands: Vec<Vec<f64>> = (0..workload.operands.len()).map(|i| vec![1.0; length(i)]).collect();
    interpret(program, &mut operands)?;
    Ok(operands.pop().unwrap())
}

#[test]
fn interpreter_finds_what_the_verifier_cannot() {
    let workload = matmul();
    let inputs: Vec<Vec<f64>> = vec![vec![1.0; 42], vec![1.0; 70]];
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let wanted = reference::evaluate(&workload, &views).unwrap().remove(0);
    let good = program(&workload, "masked");
    assert_eq!(run(&workload, &good).unwrap(), wanted);

    // A packing copy without its guard reads beyond the operand.
    let mut unguarded = good.clone();
    change(&mut unguarded.kernels[0].body, &mut |stmt| {
        if let Stmt::Copy { src, .. } = stmt {
            src.guards.clear();
        }
    });
    assert!(matches!(run(&workload, &unguarded), Err(InterpretError::OutOfBounds { .. })));

    // A panel that is packed one step short is read as NaN.
    let mut short = good.clone();
    change(&mut short.kernels[0].body, &mut |stmt| {
        if let Stmt::Copy { shape, .. } = stmt {
            shape[1] = shape[1].clone() - Index::Const(1);
        }
    });
    assert!(run(&workload, &short).unwrap().iter().any(|value| value.is_nan()));

    // An accumulator that is not cleared keeps the tile before.
    let mut dirty = good;
    change(&mut dirty.kernels[0].body, &mut |stmt| {
        if let Stmt::Fill { value, .. } = stmt {
            *value = 1.0;
        }
    });
    assert_ne!(run(&workload, &dirty).unwrap(), wanted);
}

/// A schedule of another size is refused where its tiles would reach over the end.
#[test]
fn tiles_that_do_not_fit_are_refused() {
    let target = samples::cpu_target("haswell", &["avx", "avx2", "fma"], 32, 1);
    let of = |text: &str| Workload::parse(text).unwrap();
    let plan = search_space::families::plan(&of("matmul m=8 n=16 k=8 dtype=f32"), &target).unwrap();
    let mut schedule = plan.default;
    for (name, value) in [("mr", 4), ("nv", 1), ("mt", 1), ("nt", 1), ("pf", 0)] {
        schedule.set(name, value);
    }
    for (tail, pack_b, text, why) in [
        ("-", "panel", "matmul m=9 n=16 k=8 dtype=f32", "9 rows are not whole tiles of 4"),
        ("-", "panel", "matmul m=8 n=17 k=8 dtype=f32", "17 columns are not whole tiles of 8"),
        ("overlap", "none", "matmul m=3 n=16 k=8 dtype=f32", "3 rows are fewer than a tile of 4"),
        ("separate", "fused", "matmul m=3 n=16 k=8 dtype=f32", "no tile of 4 rows is there to pack columns"),
    ] {
        schedule.set("tail", tail);
        schedule.set("pack_b", pack_b);
        let error = lower(&of(text), &target, &schedule).unwrap_err().to_string();
        assert!(error.contains(why), "{tail} {pack_b}: {error}");
    }
}
