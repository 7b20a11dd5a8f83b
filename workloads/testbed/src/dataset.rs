//! A folder for each test, with a dataset in it.

use crate::Folder;
use contract::Sidecar;
use pcgen::{make, Fill, Request};
use std::path::PathBuf;

/// Length of the dataset, which is no multiple of a page, a block or a MiB.
pub const SIZE_BYTES: u64 = (3 << 20) + 4096 + 77;

/// A dataset in a folder of its own, removed when dropped.
#[derive(Debug)]
pub struct Dataset {
    /// The folder.
    pub folder: Folder,
    /// The data.
    pub file: PathBuf,
    /// Its sidecar.
    pub sidecar: Sidecar,
}

impl Dataset {
    /// Make one under `parent`, which is `env!("CARGO_TARGET_TMPDIR")` in an integration test.
    #[must_use]
    pub fn new(parent: &str, test: &str) -> Self {
        let folder = Folder::new(parent, test);
        let file = folder.join("data");
        let request = Request {
            out: file.clone(),
            size_bytes: SIZE_BYTES,
            seed: 5,
            fill: Fill::Random,
            force: false,
        };
        let sidecar = make(&request).unwrap().sidecar;
        Self { folder, file, sidecar }
    }

    /// Return the path of its sidecar.
    #[must_use]
    pub fn sidecar_path(&self) -> String {
        Sidecar::path_of(&self.file).display().to_string()
    }

    /// Drop it from the page cache.
    pub fn make_cold(&self) {
        let file = std::fs::File::open(&self.file).unwrap();
        contract::page_cache::write_back_and_drop(&file).unwrap();
        assert_eq!(self.resident_bytes(), 0, "it should be cold now");
    }

    /// Return the bytes of it that are in the page cache.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let file = std::fs::File::open(&self.file).unwrap();
        let length = usize::try_from(self.sidecar.size_bytes).unwrap();
        contract::page_cache::resident_bytes(&file, length).expect("mincore(2) of our own file")
    }
}
