use super::count_cpus;

#[test]
fn cpus_of_a_list() {
    let count = ["0", "0-3,8", "2-2,4-5", "3-1", "0,", "", "0-4294967295"].map(count_cpus);
    assert_eq!(count, [Some(1), Some(5), Some(3), None, None, None, None]);
}
