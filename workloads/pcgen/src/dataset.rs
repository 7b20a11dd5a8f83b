//! Making one dataset, or finding that it is there already.

use crate::content::Content;
use crate::data::{self, Sums};
use crate::part_file::{require_no_holes, sync_folder_of, with_suffix, PartFile};
use crate::pattern::Fill;
use crate::GENERATOR_VERSION;
use contract::{Failure, Sidecar};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Which dataset is wanted, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The data file; its sidecar lies beside it.
    pub out: PathBuf,
    /// Length of the data.
    pub size_bytes: u64,
    /// Seed of the generator.
    pub seed: u64,
    /// What to fill it with.
    pub fill: Fill,
    /// Replace another file of that name.
    pub force: bool,
}

/// A dataset that is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// It was there before and fits the request.
    pub reused: bool,
    /// What it holds.
    pub sidecar: Sidecar,
}

/// Makes the dataset, or does nothing where it is there already.
///
/// # Errors
/// When another file has that name (unless forced), the disk is too full, or the result would have holes. Whatever
/// was written by then is removed.
pub fn make(request: &Request) -> Result<Made, Failure> {
    if let Some(sidecar) = fitting(request) {
        return Ok(Made { reused: true, sidecar });
    }
    if request.out.exists() && !request.force {
        let shown = request.out.display();
        return Err(Failure::Failed(format!(
            "{shown} exists and is not the dataset asked for: add --force to replace it"
        )));
    }
    let sidecar = write(request)?;
    Ok(Made { reused: false, sidecar })
}

/// The sidecar of a dataset that is there already and is the one asked for.
fn fitting(request: &Request) -> Option<Sidecar> {
    let sidecar = Sidecar::load(&Sidecar::path_of(&request.out)).ok()?;
    let file = File::open(&request.out).ok()?;
    let fits = sidecar.generator_version == GENERATOR_VERSION
        && sidecar.seed == request.seed
        && sidecar.fill == request.fill.name()
        && sidecar.size_bytes == request.size_bytes
        && file.metadata().ok()?.len() == request.size_bytes
        && require_no_holes(&file, &request.out).is_ok();
    fits.then_some(sidecar)
}

/// The data file gets its name last: whoever sees it under that name finds it whole, with its sidecar beside it.
fn write(request: &Request) -> Result<Sidecar, Failure> {
    let content = Content::new(request.fill, request.seed, request.size_bytes)?;
    let mut part = PartFile::create(&request.out, request.size_bytes)?;
    let sums = data::write(part.file(), &content, request.size_bytes)?;
    part.settle()?;
    let sidecar = describe(request, sums);
    remove_old(&request.out)?;
    write_sidecar(&sidecar, &Sidecar::path_of(&request.out))?;
    part.finish(&request.out)?;
    Ok(sidecar)
}

fn describe(request: &Request, sums: Sums) -> Sidecar {
    Sidecar {
        generator_version: GENERATOR_VERSION,
        seed: request.seed,
        fill: request.fill.name().to_owned(),
        size_bytes: request.size_bytes,
        byte_sum: sums.byte_sum(),
        stride512_sum: sums.stride512_sum,
        crc32c: sums.crc32c,
        block_byte_sums: sums.block_byte_sums,
    }
}

/// An old data file beside the new sidecar, left by a crash at this moment, would pass for the new dataset.
fn remove_old(data: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(data) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::of(format!("cannot replace {}", data.display()), cause))
        }
        _ => sync_folder_of(data),
    }
}

fn write_sidecar(sidecar: &Sidecar, path: &Path) -> Result<(), Failure> {
    let part = with_suffix(path, ".part");
    let written = File::create(&part)
        .and_then(|mut file| writeln!(file, "{}", sidecar.to_json()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&part);
        Failure::of(format!("cannot write the sidecar {}", path.display()), cause)
    })
}
