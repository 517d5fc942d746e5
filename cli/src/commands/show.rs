//! `show`: what a schedule becomes, at every level.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use codegen::emit::{llvm, wgsl};
use search_space::target::TargetKind;

use super::arguments::{Choice, Question};
use super::{Context, Ending, say};

/// Print the program of a schedule: tiles, lanes, LLVM IR, assembly or WGSL
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Show {
    #[command(flatten)]
    question: Question,
    /// Show the schedule that a look-up in this database answers
    #[arg(long, value_name = "FILE", conflicts_with = "schedule")]
    db: Option<PathBuf>,
    /// Show this schedule: 'a=1 b=2 ...', or default
    #[arg(long, value_name = "SCHEDULE", default_value = "default")]
    schedule: String,
    /// What to print
    #[arg(long = "as", value_enum, value_name = "FORM", default_value_t = Form::Tile)]
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Level 1: tiles
    Tile,
    /// Level 2: what one lane does
    Lane,
    /// LLVM IR (CPU)
    Llvm,
    /// Assembly (CPU)
    Asm,
    /// WGSL (Vulkan)
    Wgsl,
    /// The schedule itself
    Schedule,
}

const EXAMPLES: &str = "\
Examples:
  tilewright show 'matmul m=512 n=512 k=512 dtype=f32' --device cpu
  tilewright show 'matmul m=512 n=512 k=512 dtype=f32' --device cpu --db night.tune --as asm
  tilewright show 'matmul m=512 n=512 k=512 dtype=f32' --device vulkan --as wgsl";

impl Show {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Ending> {
        let asked = self.question.ask()?;
        let kind = asked.target().key.kind;
        match (self.form, kind) {
            (Form::Llvm | Form::Asm, TargetKind::Cpu) | (Form::Wgsl, TargetKind::Vulkan) => {}
            (Form::Llvm | Form::Asm, _) => bail!("--as llvm and --as asm are for the CPU; {} has wgsl", asked.spec),
            (Form::Wgsl, _) => bail!("--as wgsl is for Vulkan; {} has llvm and asm", asked.spec),
            _ => {}
        }
        let choice = match &self.db {
            Some(path) => Choice::Stored(path),
            None => Choice::Given(&self.schedule),
        };
        let Some(schedule) = choice.schedule(&asked)? else {
            say(&format!("{} is not in the database for {}; `lookup` says why", asked.workload.summary(), asked.spec));
            return Ok(Ending::No);
        };
        let target = asked.target();
        let lowered = || {
            codegen::lower(&asked.workload, target, &schedule)
                .with_context(|| format!("lowering {} with {schedule}", asked.workload.summary()))
        };
        let text = match self.form {
            Form::Schedule => schedule.to_string(),
            Form::Tile => lowered()?.tile.to_string(),
            Form::Lane => lowered()?.lane.to_string(),
            Form::Llvm => llvm::ir(&lowered()?.lane, &target.key)?,
            Form::Asm => llvm::assembly(&lowered()?.lane, &target.key)?,
            Form::Wgsl => {
                let kernels = lowered()?.lane.kernels;
                let texts: Vec<String> = kernels.iter().map(wgsl::emit).collect::<Result<_, _>>()?;
                texts.join("\n")
            }
        };
        context.output.line(text.trim_end())?;
        Ok(Ending::Done)
    }
}
