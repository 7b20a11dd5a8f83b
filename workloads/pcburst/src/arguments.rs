//! The command line of `pcburst`.

use clap::{ArgMatches, Command};
use contract::amount;
use contract::command_line::{optional_path, parse, value};
use contract::options::{choice, handshake, named, no_handshake, path, Choice};
use contract::{Failure, Handshake};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `pcburst` is asked to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How much memory is taken.
    pub bytes: u64,
    /// What the page cache holds before.
    pub page_cache: PageCache,
    /// The file it is filled with, or with a copy of.
    pub file: Option<PathBuf>,
    /// Where the copy is made. It has no name there, so that it goes with the process.
    pub folder: Option<PathBuf>,
    /// In pages of which size.
    pub huge_pages: HugePages,
    /// Talking with whoever started it, or not.
    pub handshake: Handshake,
}

/// What the page cache holds before the burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// Nothing of ours.
    Empty,
    /// A file that was read.
    Clean,
    /// A file that was written, and as much of it not yet on the disk as the kernel lets be.
    Dirty,
}

/// In pages of which size the memory comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// As the machine is set up.
    AsSetUp,
    /// Small ones alone: each is a fault of its own.
    Never,
}

const PAGE_CACHES: &[Choice<PageCache>] =
    &[("empty", PageCache::Empty), ("clean", PageCache::Clean), ("dirty", PageCache::Dirty)];
const HUGE_PAGES: &[Choice<HugePages>] = &[("as-set-up", HugePages::AsSetUp), ("never", HugePages::Never)];

const EXAMPLES: &str = "\
Examples:
  pcburst --bytes 268435456 --no-handshake
  pcburst --bytes 268435456 --page-cache clean --file data.bin --no-handshake
  pcburst --size-of data.bin --fraction 0.4 --page-cache dirty --file data.bin --dir /data --no-handshake

Exit codes: 0 done, 1 failed or memory changed, 2 bad arguments, 77 cannot on this host.";

/// Reads the arguments; `None` where only help was asked for.
///
/// # Errors
/// [`Failure::BadArguments`] naming the argument at fault.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Plan>, Failure> {
    let Some(matches) = parse(command(), arguments)? else {
        return Ok(None);
    };
    let plan = plan(&matches)?;
    check(&plan)?;
    Ok(Some(plan))
}

fn plan(matches: &ArgMatches) -> Result<Plan, Failure> {
    Ok(Plan {
        bytes: amount::bytes(matches)?,
        page_cache: named(PAGE_CACHES, &value::<String>(matches, "page-cache")),
        file: optional_path(matches, "file"),
        folder: optional_path(matches, "dir"),
        huge_pages: named(HUGE_PAGES, &value::<String>(matches, "huge-pages")),
        handshake: handshake(matches),
    })
}

fn check(plan: &Plan) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::BadArguments(why.to_owned()));
    if plan.page_cache != PageCache::Empty && plan.file.is_none() {
        return refuse("--page-cache clean or dirty needs a --file to fill it with");
    }
    if plan.page_cache == PageCache::Dirty && plan.folder.is_none() {
        return refuse("--page-cache dirty needs a --dir for the copy that it writes");
    }
    Ok(())
}

fn command() -> Command {
    Command::new("pcburst")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Takes memory as fast as it can beside a page cache, and reports how long each MiB took")
        .after_help(EXAMPLES)
        .args(amount::arguments())
        .arg(
            choice("page-cache", PAGE_CACHES)
                .help("What it holds before: nothing of ours, a file, a file just written"),
        )
        .arg(path("file").help("The file it is filled with"))
        .arg(path("dir").help("Where the copy is made that is written, which has no name and goes with it"))
        .arg(choice("huge-pages", HUGE_PAGES).help("As the machine is set up, or small pages alone"))
        .arg(no_handshake())
}
