//! Which backend records, and why not the others.

use anyhow::anyhow;
use lbr_msr::MsrError;
use lbr_msr::access::{Device, Root};
use lbr_msr::probe::{RecordedCpuid, probe};

use super::Backend;
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED};

/// For the software LBR: why it stands in, `None` where it was asked for. For
/// a backend that was asked for by name: its refusal.
pub(super) fn choose(backend: Backend) -> Result<Option<String>, Failure> {
    let refusal = |name: &str| {
        let (code, why) = out_of_reach();
        Err(Failure { code, error: anyhow!("--backend {name}: {why}; --backend soft works") })
    };
    match backend {
        Backend::Soft => Ok(None),
        Backend::Auto => Ok(Some(out_of_reach().1)),
        Backend::Msr => refusal("msr"),
        Backend::MsrSafe => refusal("msr-safe"),
    }
}

/// Why the registers of this CPU are not recorded from.
fn out_of_reach() -> (u8, String) {
    if let Err(unsupported) = probe(&RecordedCpuid::here(), None) {
        return (NO_LBR, unsupported.to_string());
    }
    match Device::open(0, &Root::default()) {
        Err(error @ (MsrError::Permission { .. } | MsrError::Capability { .. })) => {
            (NOT_PERMITTED, error.to_string())
        }
        Err(error) => (NO_LBR, error.to_string()),
        Ok(_) => (
            FAILED,
            "recording from the registers of hardware is not part of this version, which reads \
             them only (lbr dump)"
                .to_owned(),
        ),
    }
}
