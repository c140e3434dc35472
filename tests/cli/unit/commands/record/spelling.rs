use super::*;

#[test]
fn events_name_rings() {
    fn of(event: &str) -> Result<&str, String> {
        rings(event).map_err(|error| error.to_string())
    }
    assert_eq!(of("branches"), Ok(""));
    assert_eq!(of("branches:u"), Ok("u"));
    assert_eq!(of("branch-instructions:uk"), Ok("uk"));
    assert_eq!(of("cpu/branch-instructions/k"), Ok("k"));
    assert_eq!(of("cpu/branches/"), Ok(""));
    for other in ["cycles", "cycles:u", "branches:upp", "branches,cycles", "", ":", "/", "é:u"] {
        assert!(of(other).is_err(), "{other}");
    }
}

#[test]
fn rings_of_an_event_go_to_filters_without_any() {
    assert_eq!(with_rings(super::super::FILTER, ""), "any,u,no_far");
    assert_eq!(with_rings(super::super::FILTER, "u"), "any,no_far,u");
    assert_eq!(with_rings(super::super::FILTER, "k"), "any,k");
    assert_eq!(with_rings("any_call", "uk"), "any_call,u,k");
    assert_eq!(with_rings("any_call,k", "u"), "any_call,k");
}
