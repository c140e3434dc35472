//! Exit statuses, and the conversion of errors into sentences.

use std::io::Write;
use std::process::ExitCode;

use lbr_msr::access::MsrError;

use crate::present::fail;

/// Why a command did not end well: the exit code and the sentence.
pub(crate) struct Failure {
    /// The documented exit status.
    pub(crate) code: u8,
    /// The cause, its location, and what to do next.
    pub(crate) error: anyhow::Error,
}

/// A [`Failure`]: its exit code, then the arguments of `format!`.
macro_rules! failure {
    ($code:expr, $($text:tt)*) => {
        $crate::exit::Failure { code: $code, error: anyhow::anyhow!($($text)*) }
    };
}
/// A [`Failure`] of usage or input; takes the arguments of `format!`.
macro_rules! usage {
    ($($text:tt)*) => { $crate::exit::failure!($crate::exit::USAGE, $($text)*) };
}
pub(crate) use {failure, usage};

/// [`std::result::Result`] with defaults: an exit status, or a failure to report.
pub(crate) type Result<T = u8, E = Failure> = std::result::Result<T, E>;

/// Done.
pub(crate) const DONE: u8 = 0;
/// Failed while running.
pub(crate) const FAILED: u8 = 1;
/// Bad usage or input.
pub(crate) const USAGE: u8 = 2;
/// No usable LBR here.
pub(crate) const NO_LBR: u8 = 3;
/// Not permitted.
pub(crate) const NOT_PERMITTED: u8 = 4;
/// Data of too poor quality.
pub(crate) const POOR: u8 = 5;
/// More changed than is allowed.
pub(crate) const DIFFERS: u8 = 6;

/// Ends a command whose output is complete.
pub(crate) fn done(out: &mut impl Write) -> Result {
    out.flush()?;
    Ok(DONE)
}

/// Attaches an exit code to an error.
pub(crate) trait OrExit<T> {
    /// Turns an error into a [`Failure`] with this exit code.
    fn or_exit(self, code: u8) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, code: u8) -> Result<T> {
        self.map_err(|e| Failure { code, error: e.into() })
    }
}

/// Errors without an exit status count as failures while running.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure { code: FAILED, error: e.into() }
    }
}

/// Prints a failure as one sentence and returns its exit status. A closed pipe is success: the
/// reader has seen enough.
pub(crate) fn report(outcome: Result) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Failure { error, .. }) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure { code, error }) => {
            // Only standard output fails without a path; all other errors name theirs.
            let bare = error.chain().len() == 1 && error.is::<std::io::Error>();
            let place = if bare { "standard output: " } else { "" };
            // This error lists lines to be copied.
            let listed = error
                .chain()
                .any(|cause| matches!(cause.downcast_ref(), Some(MsrError::NotListed { .. })));
            let text = format!("{place}{error:#}");
            let (what, list) = text.split_once('\n').filter(|_| listed).unwrap_or((&text, ""));
            fail(what, list);
            ExitCode::from(code)
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
