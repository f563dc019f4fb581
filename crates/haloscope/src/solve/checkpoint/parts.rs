//! Checkpoints of states that are spread over ranks: each rank writes what it has, and the first rank a manifest.
//!
//! Parts have names that no other checkpoint has. The manifest takes the checkpoint's name when all parts are on the disk, so
//! that a kill at any moment leaves the old checkpoint or the new one. Parts that no manifest names are removed by the next
//! run that looks at the folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use flate2::Crc;
use haloscope_comm::{Collectives, Context};

use super::format::{self, Header};
use super::outline::{Entry, Outline, part_path};
use super::{Checkpoints, Found, JobId, PREFIX, State, remove};
use crate::array::View;
use crate::digest::Digest;
use crate::distribute::{agree, agree_on_root};
use crate::error::{Error, Result};
use crate::io::write_atomically_as;
use crate::region::{self, Region};

/// The elements that are converted at a time.
const CHUNK: usize = 1 << 16;

/// What a rank has of an array.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The shape of the whole array.
    pub whole: &'a [usize],
    /// What of it is here, a range for each axis; ranges of nothing on ranks that have none.
    pub region: &'a [Range<usize>],
    /// The values of that region.
    pub values: &'a View,
}

/// What a rank has of a state. Arrays that several ranks have whole are written once.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The number of completed iterations.
    pub iteration: usize,
    /// The image.
    pub image: Part<'a>,
    /// Other arrays, by the method's own names.
    pub arrays: BTreeMap<&'a str, Part<'a>>,
    /// Numbers, which are the same on all ranks.
    pub numbers: &'a BTreeMap<String, f64>,
}

/// Which box of an array a rank needs, if any: of the array of this name (none for the image) and whole shape.
pub type Wanted<'a> = dyn Fn(Option<&str>, &[usize]) -> Option<Vec<Range<usize>>> + 'a;

impl Checkpoints {
    /// Writes a checkpoint of a state that is spread over ranks; all ranks call it. If one rank fails, all do, and the others
    /// in the folder stay as they are. Any number of ranks can resume from it: with [`load_parts`](Self::load_parts) each
    /// reads what it needs, with [`load_latest`](Self::load_latest) all get the whole state.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use haloscope::Error;
    /// use haloscope::solve::{Checkpoints, Every, JobId, Part, Parts};
    /// use haloscope_comm::Context;
    /// use ndarray::ArrayD;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().to_owned();
    /// let whole = [1, 1, 8, 4];
    /// Context::threads(2, move |ctx| {
    ///     let region = [0..1, 0..1, 4 * ctx.rank()..4 * ctx.rank() + 4, 0..4];
    ///     let values = ArrayD::from_elem(vec![1, 1, 4, 4], ctx.rank() as f32);
    ///     let image = Part { whole: &whole, region: &region, values: &values };
    ///     let (arrays, numbers) = (BTreeMap::new(), BTreeMap::new());
    ///     let parts = Parts { iteration: 7, image, arrays, numbers: &numbers };
    ///     let job = JobId::new("example", b"");
    ///     Checkpoints::new(&path, Every::default())?.save_parts(ctx, &parts, &job)?;
    ///
    ///     // The middle rows, on both ranks.
    ///     let middle = |_: Option<&str>, _: &[usize]| Some(vec![0..1, 0..1, 3..5, 0..4]);
    ///     let found = Checkpoints::new(&path, Every::default())?.load_parts(ctx, &job, &middle)?;
    ///     let image = found.expect("it is there").state.image.into_local();
    ///     assert_eq!((image[[0, 0, 0, 0]], image[[0, 0, 1, 0]]), (0.0, 1.0));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save_parts(&mut self, ctx: &Context, parts: &Parts, job: &JobId) -> Result<()> {
        let outcome = self.write_parts(ctx, parts, job);
        self.note_iteration(parts.iteration);
        outcome
    }

    /// [`save_parts`](Self::save_parts) if it is time, which the first rank decides.
    pub fn save_parts_if_due(&mut self, ctx: &Context, parts: &Parts, job: &JobId) -> Result<bool> {
        let due = self.is_due(ctx, parts.iteration)?;
        if due {
            self.save_parts(ctx, parts, job)?;
        }
        Ok(due)
    }

    fn write_parts(&mut self, ctx: &Context, parts: &Parts, job: &JobId) -> Result<()> {
        agree(ctx, parts.check())?;
        let lists = ctx.comm().all_gather(&parts.describe())?;
        // From here to the writing, all ranks find the same.
        let plan = Plan::new(parts, &lists)?;
        let path = self.path_of(parts.iteration);
        let bytes = 4 * plan.files.iter().flatten().map(Entry::volume).sum::<u64>();
        if bytes > self.most_bytes {
            let reason = format!("it would have {bytes} bytes; the limit is {}", self.most_bytes);
            return Err(Error::Limit { file: path.display().to_string(), reason });
        }
        let others = agree_on_root(ctx, || self.begin(parts.iteration))?;
        let mut token = [new_token(job, parts.iteration)];
        ctx.comm().broadcast(0, &mut token)?;
        let [token] = token;
        let mine = part_path(&path, token, ctx.rank());
        let written = agree(ctx, parts.write(&mine, &plan, ctx.rank()));
        let finish = || -> Result<()> {
            let sums: Vec<u64> = written?.into_iter().map(u64::from).collect();
            let sums = ctx.comm().all_gather(&sums)?;
            agree_on_root(ctx, || {
                let header = plan.header(parts, job, token, &sums);
                write_atomically_as(&path, PREFIX, |file| format::write_manifest(file, &header))
            })?;
            Ok(())
        };
        if let Err(error) = finish() {
            // Where a rank is gone the checkpoint may be complete all the same; parts of none are removed later.
            if !matches!(error, Error::Ranks(_)) {
                remove(&mine);
            }
            return Err(error);
        }
        agree_on_root(ctx, || {
            self.settle(others.unwrap_or_default());
            Ok(())
        })?;
        Ok(())
    }

    /// The newest checkpoint that is whole, of which each rank reads what it wants; all ranks call it. `wanted` is given the
    /// name of an array (none for the image) and its whole shape, and says which box of it this rank needs, if any. Arrays
    /// that it does not want are not in the state. `None` if there are no checkpoints.
    ///
    /// # Errors
    /// On all ranks: if all are damaged, or if the newest that is whole is of another job or format.
    pub fn load_parts(
        &mut self,
        ctx: &Context,
        job: &JobId,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>> {
        let paths = agree_on_root(ctx, || {
            self.remove_leftovers();
            let paths = self.list()?;
            let text = |path: &std::path::PathBuf| path.to_str().map(str::to_owned);
            paths.iter().map(text).collect::<Option<Vec<_>>>().ok_or_else(|| {
                Error::argument("checkpoints", "the name of their folder is no UTF-8")
            })
        })?;
        let mut paths = paths.unwrap_or_default().join("\0").into_bytes();
        ctx.comm().broadcast_list(0, &mut paths)?;
        let paths = String::from_utf8_lossy(&paths).into_owned();
        let mut rejected = Vec::new();
        for path in paths.split('\0').filter(|path| !path.is_empty()).map(Path::new) {
            let most = self.most_bytes;
            // A file of another job is found before its elements are looked at.
            let checked = agree_on_root(ctx, || {
                let outline = Outline::open(path, most, job)?;
                format::verify(path)?;
                Ok(outline)
            });
            let read = checked.and_then(|outline| {
                let read = || -> Result<(State, Outline)> {
                    let outline = match outline {
                        Some(outline) => outline,
                        None => Outline::open(path, most, job)?,
                    };
                    Ok((outline.read(wanted)?, outline))
                };
                agree(ctx, read())
            });
            match read {
                Ok((state, outline)) => {
                    let same = outline.job.versions == job.versions;
                    let other_versions = (!same).then(|| outline.job.versions.clone());
                    let found = Found { state, path: path.to_owned(), rejected, other_versions };
                    self.take_up(&found);
                    if ctx.is_root() {
                        self.unmark_finished();
                    }
                    return Ok(Some(found));
                }
                Err(error) if is_damage(ctx, &error)? => {
                    rejected.push((path.to_owned(), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if rejected.is_empty() { Ok(None) } else { Err(self.none_usable(&rejected)) }
    }
}

/// Whether an error that all ranks have is about this checkpoint alone, so that an older one may do. The rank that found it
/// knows.
fn is_damage(ctx: &Context, error: &Error) -> Result<bool> {
    if let Error::Ranks(_) = error {
        return Ok(false);
    }
    let is_mine = matches!(error, Error::Content { .. } | Error::File { .. });
    let is_fatal = !is_mine && !matches!(error, Error::OnRank { .. });
    let mut fatal = [u64::from(is_fatal)];
    ctx.comm().all_reduce(haloscope_comm::Reduction::Max, &mut fatal)?;
    Ok(fatal == [0])
}

impl Parts<'_> {
    /// The image and the other arrays in the order of their names.
    fn all(&self) -> impl Iterator<Item = (Option<&str>, &Part<'_>)> {
        let others = self.arrays.iter().map(|(name, part)| (Some(*name), part));
        std::iter::once((None, &self.image)).chain(others)
    }

    fn check(&self) -> Result<()> {
        for (name, Part { whole, region, values }) in self.all() {
            let fits = region.len() == whole.len()
                && values.shape() == region::sides(region)
                && region
                    .iter()
                    .zip(*whole)
                    .all(|(range, &side)| range.start <= range.end && range.end <= side)
                && whole.len() <= format::MOST_AXES as usize;
            if !fits {
                return Err(Error::Shape {
                    what: format!("the part {region:?} of {}", title(name)),
                    expected: format!("it is within {whole:?} and has its values"),
                    found: values.shape().to_vec(),
                });
            }
        }
        Ok(())
    }

    /// What this rank has, for the others.
    fn describe(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, part) in self.all() {
            out.push(u8::from(name.is_some()));
            format::put_text(&mut out, name.unwrap_or_default());
            format::put_shape(&mut out, part.whole);
            format::put_region(&mut out, part.region);
        }
        out
    }

    /// Writes what the plan has this rank write, and returns the checksums.
    fn write(&self, path: &Path, plan: &Plan, rank: usize) -> Result<Vec<u32>> {
        let entries = &plan.files[rank];
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let write = || -> std::io::Result<Vec<u32>> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
            let mut sums = Vec::new();
            let mut bytes = Vec::with_capacity(4 * CHUNK);
            for entry in entries {
                let name = &plan.arrays[entry.array].0;
                let part = match name {
                    None => Some(&self.image),
                    Some(name) => self.arrays.get(&name[..]),
                };
                let Some(part) = part else { continue };
                let mut crc = Crc::new();
                let mut values = part.values.iter();
                loop {
                    bytes.clear();
                    bytes.extend(values.by_ref().take(CHUNK).flat_map(|value| value.to_le_bytes()));
                    if bytes.is_empty() {
                        break;
                    }
                    crc.update(&bytes);
                    file.write_all(&bytes)?;
                }
                sums.push(crc.sum());
            }
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            Ok(sums)
        };
        write().map_err(|error| {
            remove(path);
            let reason = format!("cannot write it: {error}");
            Error::File { file: path.display().to_string(), reason }
        })
    }
}

/// The shape of an array, and the boxes of it that ranks have.
type Boxes = (Vec<usize>, Vec<(usize, Region)>);

/// Who writes which box.
struct Plan {
    /// Names and shapes; the image is first, and has none.
    arrays: Vec<(Option<String>, Vec<usize>)>,
    /// What each rank writes, in order.
    files: Vec<Vec<Entry>>,
}

impl Plan {
    fn new(parts: &Parts, lists: &[Vec<u8>]) -> Result<Self> {
        let mut arrays: BTreeMap<Option<String>, Boxes> = BTreeMap::new();
        for (rank, list) in lists.iter().enumerate() {
            let mut list = Header(list);
            while !list.0.is_empty() {
                let entry = list.description();
                let (name, whole, region) = entry.expect("a rank of this program described it");
                let (shape, regions) =
                    arrays.entry(name.clone()).or_insert_with(|| (whole.clone(), Vec::new()));
                if *shape != whole {
                    return Err(Error::Shape {
                        what: format!("{} on rank {rank}", title(name.as_deref())),
                        expected: format!("all ranks have parts of {shape:?}"),
                        found: whole,
                    });
                }
                let is_new = regions.iter().all(|(_, other)| *other != region);
                if is_new && !region.iter().any(Range::is_empty) {
                    regions.push((rank, region));
                }
            }
        }
        let mut plan = Self { arrays: Vec::new(), files: vec![Vec::new(); lists.len()] };
        for (number, (name, (shape, regions))) in arrays.into_iter().enumerate() {
            let all: Vec<Region> = regions.iter().map(|(_, region)| region.clone()).collect();
            region::check_cover(&shape, &all).map_err(|error| {
                let reason =
                    format!("iteration {}, {}: {error}", parts.iteration, title(name.as_deref()));
                Error::argument("checkpoint", reason)
            })?;
            for (rank, region) in regions {
                plan.files[rank].push(Entry { array: number, region, sum: 0 });
            }
            plan.arrays.push((name, shape));
        }
        Ok(plan)
    }

    fn header(&self, parts: &Parts, job: &JobId, token: u64, sums: &[Vec<u64>]) -> Vec<u8> {
        let mut out = token.to_le_bytes().to_vec();
        let arrays: Vec<(&str, &[usize])> = (self.arrays.iter())
            .map(|(name, shape)| (name.as_deref().unwrap_or_default(), &shape[..]))
            .collect();
        let numbers = parts.numbers.iter().map(|(name, number)| (&name[..], *number));
        format::put_header(&mut out, job, parts.iteration, numbers, &arrays);
        out.extend((self.files.len() as u32).to_le_bytes());
        for (entries, sums) in self.files.iter().zip(sums) {
            out.extend((4 * entries.iter().map(Entry::volume).sum::<u64>()).to_le_bytes());
            out.extend((entries.len() as u32).to_le_bytes());
            for (entry, sum) in entries.iter().zip(sums) {
                out.extend((entry.array as u32).to_le_bytes());
                format::put_region(&mut out, &entry.region);
                out.extend((*sum as u32).to_le_bytes());
            }
        }
        out
    }
}

impl Entry {
    fn volume(&self) -> u64 {
        region::volume(&self.region) as u64
    }
}

fn title(name: Option<&str>) -> String {
    name.map_or_else(|| "the image".into(), |name| format!("the array {name:?}"))
}

/// A number that no other checkpoint in the folder has.
fn new_token(job: &JobId, iteration: usize) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut digest = Digest::default();
    digest.add_bytes(&job.hash.to_le_bytes());
    digest.add_bytes(&(iteration as u64).to_le_bytes());
    digest.add_bytes(&now.unwrap_or_default().as_nanos().to_le_bytes());
    digest.add_bytes(&std::process::id().to_le_bytes());
    digest.value()
}
