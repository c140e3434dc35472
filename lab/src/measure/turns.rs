//! Runs several pieces of code in turns.

use std::fs;

use super::bracket::Body;
use super::options::MeasureError;
use super::ratio::{Turn, ticks_of};
use super::result::Strip;
use super::session::Session;

/// Maximum number of undisturbed turns.
pub const TURNS: usize = 12;
/// Maximum number of turns to make.
pub(super) const MOST: usize = 3 * TURNS;

impl Session {
    /// Measures pieces of code in turns until [`TURNS`] are undisturbed or three times as many were
    /// made. Runs alternate within a turn, so that changes of the core's frequency or the machine's
    /// load affect all pieces alike. If stopped early, returns the complete turns.
    ///
    /// # Errors
    /// The piece's index and its error.
    pub fn take_turns(&mut self, bodies: &[Body]) -> Result<Vec<Turn>, (usize, MeasureError)> {
        let mut lanes = Vec::new();
        for (i, body) in bodies.iter().enumerate() {
            lanes.push(self.lane_of_code(body).map_err(|error| (i, error))?);
        }
        if !self.counts_cycles() {
            lanes.push(self.lane_of_code(&chain()).map_err(|error| (0, error))?);
        }
        let cpu = self.options().pin.and_then(|pin| pin.cpus().next());
        let mut turns: Vec<Turn> = Vec::new();
        let mut whole = 0;
        while whole < TURNS && turns.len() < MOST {
            let before = cpu.and_then(stolen);
            let mut pieces = self.turn(&mut lanes)?;
            if pieces.iter().any(|piece| piece.stopped) {
                if turns.is_empty() {
                    return Err((0, MeasureError::Stopped));
                }
                break;
            }
            let reference = if pieces.len() > bodies.len() { pieces.pop() } else { None };
            let turn = Turn { pieces, reference, stolen: before != cpu.and_then(stolen) };
            whole += usize::from(!turn.is_disturbed());
            turns.push(turn);
        }
        Ok(turns)
    }

    /// Time stamp counter ticks per core cycle, by a chain of dependent ADDs; `None` if core cycles
    /// are counted.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn ticks_per_cycle(&mut self) -> Result<Option<f64>, MeasureError> {
        match self.counts_cycles() {
            true => Ok(None),
            false => self.measure_code(&chain()).map(|chain| ticks_of(&chain)),
        }
    }

    fn lane_of_code(&mut self, body: &Body) -> Result<super::lane::Lane, MeasureError> {
        self.lane(
            body,
            &super::session::around(body),
            true,
            |registers| registers,
            Strip::default(),
        )
    }
}

/// Dependent ADDs, one core cycle each.
fn chain() -> Body {
    // ADD RAX, RAX
    let code = vec![0x48, 0x01, 0xC0];
    Body { code, unroll: 1024, rounds: Some(12), ..Body::default() }
}

/// Time stolen by the hypervisor on a CPU. proc_stat(5), `steal`.
fn stolen(cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}
