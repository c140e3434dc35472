//! Measuring a closure.
//!
//! A bracket calls a function that calls the closure. How many branches and instructions that takes
//! depends on the compiler. An empty closure compiled next to it shows how many, and these are
//! removed from both ends.

use lbr_msr::record::HwBranchType;

use super::bracket::{Body, Gpr, GprValues};
use super::child::StepCounts;
use super::options::MeasureError;
use super::result::{Measurement, Strip};
use super::session::Session;

/// The function that the bracket calls. A reference, unlike a pointer, is not checked for alignment
/// in unoptimised builds.
extern "sysv64" fn invoke<F: FnMut()>(closure: &mut F) {
    closure();
}

fn body_of<F: FnMut()>() -> Body {
    let address = invoke::<F> as extern "sysv64" fn(&mut F) as usize as u64;
    Body { call: Some(address), ..Body::default() }
}

fn pointing_at<F>(closure: &mut F) -> impl Fn(GprValues) -> GprValues {
    let pointer = std::ptr::from_mut(closure) as u64;
    move |registers| registers.with(Gpr::Rdi, pointer)
}

impl Session {
    /// Measures a closure.
    ///
    /// It runs many times, in a forked process: its changes to memory persist from run to run
    /// there, but are not visible here. In a process with several threads it must not wait for
    /// another thread or for a lock that one may hold: the fork has only the calling thread.
    ///
    /// The call of the closure and the return from it are subtracted: an empty closure measures as
    /// empty.
    ///
    /// ```
    /// use lbr_lab::measure::Session;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut session = Session::stepping()?;
    /// let numbers = [3u32, 1, 2];
    /// let measured = session.measure(|| {
    ///     for n in &numbers {
    ///         std::hint::black_box(n);
    ///     }
    /// })?;
    /// let counts = measured.counts.ok_or("stepping was switched off")?;
    /// println!("{} instructions, {} taken branches", counts.instructions, counts.branches);
    /// # assert!(counts.instructions > 0);
    /// # assert!(session.measure(|| {})?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`MeasureError`]. A closure that panics ends its process by SIGABRT.
    pub fn measure<F: FnMut()>(&mut self, mut closure: F) -> Result<Measurement, MeasureError> {
        // Generic over F, so that it is compiled in the same crate as `closure`.
        let mut nothing = || {
            let _ = std::marker::PhantomData::<F>;
        };
        let (less, shape) = self.shape(&body_of_value(&nothing), &pointing_at(&mut nothing))?;
        // Calls lead into the closure, its return out of it.
        let head = shape.iter().take_while(|class| **class != HwBranchType::Ret).count();
        let strip = Strip { head, tail: shape.len() - head };
        let body = body_of::<F>();
        let nothing = body_of_value(&nothing);
        let start = pointing_at(&mut closure);
        let mut measured = self.measure_body(&body, &nothing, false, start, strip)?;
        if let Some(counts) = &mut measured.counts {
            *counts = StepCounts {
                instructions: counts.instructions.saturating_sub(less.instructions),
                branches: counts.branches.saturating_sub(less.branches),
                not_taken: counts.not_taken.saturating_sub(less.not_taken),
                ..*counts
            };
        }
        Ok(measured)
    }
}

fn body_of_value<F: FnMut()>(_: &F) -> Body {
    body_of::<F>()
}

impl Measurement {
    /// No executed instructions were counted between the two marker jumps.
    pub fn is_empty(&self) -> bool {
        let counted = self.counts.is_none_or(|counts| {
            counts.instructions == 0 && counts.branches == 0 && counts.not_taken == 0
        });
        counted && self.blocks.is_empty()
    }
}
