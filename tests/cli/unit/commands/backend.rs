use super::*;

type Found = Result<&'static str, (u8, &'static str)>;

fn failure<T>((code, error): (u8, &'static str)) -> Result<T> {
    Err(Failure { code, error: anyhow!("{error}") })
}

/// The choice and its reason, in words.
fn chosen(backend: Backend, registers: Found, perf: Option<Found>) -> String {
    let found = |found: Found| found.or_else(failure);
    match backend.choose(|| found(registers), || perf.map(found)) {
        Ok(Choice::Hardware(name)) => name.to_owned(),
        Ok(Choice::Software(None)) => "soft".to_owned(),
        Ok(Choice::Software(Some(why))) => format!("soft, {}: {:#}", why.code, why.error),
        Err(why) => format!("refused, {}: {:#}", why.code, why.error),
    }
}

#[test]
fn registers_before_perf_before_software() {
    use Backend::{Auto, Msr, Perf, Soft};
    let no_driver: Found = Err((NO_LBR, "no driver"));
    let level: Found = Err((NOT_PERMITTED, "level 3"));
    let typed: Found = Err((USAGE, "no such CPU"));
    for (backend, registers, perf, expected) in [
        (Auto, Ok("msr"), Some(Ok("perf")), "msr"),
        (Auto, no_driver, Some(Ok("perf")), "perf"),
        (Auto, no_driver, Some(level), "soft, 3: no driver; as perf events: level 3"),
        (Auto, no_driver, Some(no_driver), "soft, 3: no driver; the same holds for perf events"),
        (Auto, no_driver, None, "soft, 3: no driver"),
        (Auto, typed, Some(Ok("perf")), "refused, 2: no such CPU"),
        (Auto, no_driver, Some(typed), "refused, 2: no such CPU"),
        (
            Msr,
            no_driver,
            Some(Ok("perf")),
            "refused, 3: --backend msr: no driver; --backend soft works",
        ),
        (Perf, Ok("msr"), Some(Ok("perf")), "perf"),
        (Perf, Ok("msr"), Some(level), "refused, 4: --backend perf: level 3; --backend soft works"),
        (Perf, Ok("msr"), None, "refused, 2: --backend perf is for lbr record and lbr time"),
        (Soft, Ok("msr"), Some(Ok("perf")), "soft"),
    ] {
        assert_eq!(chosen(backend, registers, perf), expected, "{backend:?}");
    }
}
