//! Writes the demo graphs: to `datasets/models/`, or to the directory given as the only argument.
#![expect(clippy::print_stdout, reason = "a generator run by hand says what it wrote")]

use std::path::PathBuf;

use tilewright_datasets::demo;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/models")), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    for (name, model) in demo::models() {
        let (path, bytes) = (folder.join(name), demo::encode(&model));
        std::fs::write(&path, &bytes)?;
        println!("{}: {} bytes", path.display(), bytes.len());
    }
    Ok(())
}
