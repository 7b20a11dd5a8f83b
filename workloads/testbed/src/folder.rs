//! A folder for each test.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A folder that is removed, with everything in it, when dropped.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Make one under `parent`, which is `env!("CARGO_TARGET_TMPDIR")` in an integration test.
    #[must_use]
    pub fn new(parent: &str, test: &str) -> Self {
        let folder = Path::new(parent).join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Return whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
