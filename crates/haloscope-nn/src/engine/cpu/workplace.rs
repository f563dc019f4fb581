//! What one run at a time works with, memory and threads, and what runs are made of: loading, steps, storing.

use std::ops::Range;

use super::buffer::AlignedBuffer;
use super::convert::{load_plane, store_channel};
use super::layout::Tensor;
use super::operation::{Operands, Value};
use super::place::pad;
use super::stage::Stage;
use super::team::Team;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// How much of everything a plan needs, in floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) activations: usize,
    /// The workspace of one thread.
    pub(crate) workspace: usize,
    pub(crate) threads: usize,
}

/// Memory and threads.
pub(crate) struct Workplace {
    memory: AlignedBuffer,
    team: Team,
}

impl Room {
    /// Room for steps of which the greediest needs so much workspace.
    pub(crate) fn new(activations: usize, workspace: usize, threads: usize) -> Self {
        Self { activations, workspace: pad(workspace), threads }
    }

    /// Bytes of the workspaces of all threads.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.threads * self.workspace * size_of::<f32>()
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.activations * size_of::<f32>() + self.workspace_bytes()
    }

    /// A workplace with that much room.
    pub(crate) fn workplace(&self) -> Workplace {
        let memory = AlignedBuffer::uninitialised(self.bytes() / size_of::<f32>());
        Workplace { memory, team: Team::new(self.threads) }
    }

    /// Refuses a workplace that another plan made, if it is too small or has other threads.
    pub(crate) fn check(&self, workplace: &Workplace) -> Result<()> {
        let (bytes, threads) = (workplace.memory.bytes(), workplace.team.threads());
        if bytes >= self.bytes() && threads == self.threads {
            return Ok(());
        }
        let reason = format!(
            "{bytes} bytes and {threads} threads; the plan needs {} and {}: make it with the plan's own `scratch`",
            self.bytes(),
            self.threads
        );
        Err(Error::Argument { what: "scratch", reason })
    }
}

impl Workplace {
    /// The activations' memory.
    pub(crate) fn memory(&self) -> *mut f32 {
        self.memory.as_ptr()
    }

    /// The floats of all memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.memory.bytes() / size_of::<f32>()
    }

    /// The threads.
    pub(crate) fn team(&mut self) -> &mut Team {
        &mut self.team
    }

    /// Loads rows of the engine's input from images of these sizes, of which `images` holds the rows of `band`.
    pub(crate) fn load(
        &mut self,
        images: &[f32],
        band: &Range<usize>,
        sizes: [usize; 3],
        value: &Value,
        rows: &Range<usize>,
    ) {
        let tensor = value.tensor(self.memory());
        self.team.for_each(tensor.layout.planes(), &|_, plane| {
            // SAFETY: the workplace is borrowed by this run, and each plane is loaded once.
            unsafe { load_plane(images, band, sizes, &tensor, plane, rows.clone()) };
        });
    }

    /// Computes rows of a step's output. Fails if the caller was asked to stop.
    pub(crate) fn run(
        &mut self,
        room: &Room,
        stage: &Stage,
        values: &[Value],
        rows: Range<usize>,
    ) -> Result<()> {
        let memory = self.memory();
        let workspaces = Floats(memory.wrapping_add(room.activations));
        let Stage { operation, inputs, output, border_is_clear } = stage;
        let (output, border_is_clear) = (*output, *border_is_clear);
        let operands = Operands { memory, values, inputs, output, rows, border_is_clear };
        let stop = Stop::current();
        self.team.for_each(operation.items(&operands.rows), &|thread, item| {
            if stop.is_requested() {
                return;
            }
            let workspaces = &workspaces;
            let workspace = workspaces.0.wrapping_add(thread * room.workspace);
            // SAFETY: the plan gave each value its own memory as long as it lives; the team runs
            // each item once; each thread has its own workspace of the largest length.
            unsafe { operation.run(item, &operands, workspace) };
        });
        if stop.is_requested() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Stores rows of the result as `[batch][channel][depth][row][column]`, which `target` has the length of.
    pub(crate) fn store(
        &mut self,
        value: &Value,
        [depth, _, width]: [usize; 3],
        rows: &Range<usize>,
        target: &mut [f32],
    ) {
        let result: Tensor = value.tensor(self.memory());
        let (batch, channels) = (result.layout.batch, result.layout.channels);
        let plane = depth * rows.len() * width;
        assert_eq!(target.len(), batch * channels * plane, "the caller compared them");
        let target = Floats(target.as_mut_ptr());
        self.team.for_each(batch * channels, &|_, index| {
            let target = &target;
            // SAFETY: the target has this length; each index is a part of its own.
            unsafe {
                let target = std::slice::from_raw_parts_mut(target.0.add(index * plane), plane);
                store_channel(&result, index / channels, index % channels, rows, width, target);
            }
        });
    }
}

/// A pointer to floats that threads share, each for a part of its own.
struct Floats(*mut f32);
// SAFETY: see above.
unsafe impl Sync for Floats {}
