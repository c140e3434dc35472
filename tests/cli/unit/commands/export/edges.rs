use std::time::Duration;

use super::*;

/// As `date -u -d @SECONDS +%F` prints it.
#[test]
fn days_have_dates() {
    let dates = [
        (0, "1970-01-01"),
        (951_782_399, "2000-02-28"),
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (1_798_675_199, "2026-12-30"),
        (4_107_542_400, "2100-03-01"),
    ];
    for (seconds, expected) in dates {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(day(time).as_deref(), Some(expected), "{seconds}");
    }
    assert_eq!(date("2026-01-31").as_deref(), Ok("2026-01-31"));
    for wrong in ["2026-13-01", "2026-1-31", "20260131", "2026-01-+1", "../../etc/x"] {
        assert!(date(wrong).is_err(), "{wrong}");
    }
}
