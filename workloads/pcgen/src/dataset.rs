//! Making one dataset, or finding that it exists already.

use crate::content::Content;
use crate::data::{self, Sums};
use crate::part_file::{require_no_holes, sync_folder_of, with_suffix, PartFile};
use crate::pattern::Fill;
use crate::GENERATOR_VERSION;
use contract::failure::OrFailure;
use contract::{Failure, Sidecar};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The requested dataset and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The data file; its sidecar lies beside it.
    pub out: PathBuf,
    /// Length of the data.
    pub size_bytes: u64,
    /// Seed of the generator.
    pub seed: u64,
    /// Its content.
    pub fill: Fill,
    /// Replace another file of that name.
    pub force: bool,
}

/// A dataset that exists now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// It existed before and fits the request.
    pub reused: bool,
    /// Its sidecar.
    pub sidecar: Sidecar,
}

/// Make the dataset, or do nothing if it exists already.
///
/// # Errors
/// If another file has that name (unless forced), the disk is too full, or the result would have
/// holes. All files written until then are removed.
pub fn make(request: &Request) -> Result<Generated, Failure> {
    if let Some(sidecar) = fitting(request) {
        return Ok(Generated { reused: true, sidecar });
    }
    if request.out.exists() && !request.force {
        let shown = request.out.display();
        return Err(Failure::Failed(format!(
            "{shown} exists and is not the dataset asked for: add --force to replace it"
        )));
    }
    let sidecar = write(request)?;
    Ok(Generated { reused: false, sidecar })
}

/// Return the sidecar of the requested dataset if that exists already.
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

/// The data file gets its name last: under that name it is always complete, with its sidecar beside
/// it.
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

/// Remove an old data file. Left beside the new sidecar by a crash, it would pass for the new
/// dataset.
fn remove_old(data: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(data) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(cause).or_failed(format!("cannot replace {}", data.display()))
        }
        _ => sync_folder_of(data),
    }
}

fn write_sidecar(sidecar: &Sidecar, path: &Path) -> Result<(), Failure> {
    let part = with_suffix(path, ".part");
    let written = File::create(&part)
        .and_then(|mut file| writeln!(file, "{}", sidecar.to_json()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written.or_failed(format!("cannot write the sidecar {}", path.display()))
}
