use super::*;

#[test]
fn the_largest_limit_is_the_bottleneck() {
    // Of llvm-mca 14, 100 iterations of seven chains of ADDPS on Skylake.
    let text = "Iterations:        100\nInstructions:      700\nTotal Cycles:      406\n\
                Total uOps:        700\n\nDispatch Width:    6\nBlock RThroughput: 3.5\n\n\
                Throughput Bottlenecks: \n  Resource Pressure       [ 0.74% ]\n  \
                - SKLPort0  [ 0.74% ]\n  - SKLPort1  [ 0.74% ]\n  \
                Data Dependencies:      [ 22.41% ]\n  - Register Dependencies [ 22.41% ]\n  \
                - Memory Dependencies   [ 0.00% ]\n";
    let expected = Prediction {
        instructions: 7,
        cycles: 4.06,
        throughput_bound: 3.5,
        bottleneck: Some("register dependencies".to_owned()),
        ..Prediction::default()
    };
    assert_eq!(read(text), Some(expected));
    let ports = text.replace("22.41%", "0.10%");
    let bottleneck = read(&ports).and_then(|predicted| predicted.bottleneck);
    assert_eq!(bottleneck.as_deref(), Some("pressure on SKLPort1"));
    let none = text.replace("22.41%", "0.00%").replace("0.74%", "0.00%");
    assert_eq!(read(&none).map(|predicted| predicted.bottleneck), Some(None));
    assert_eq!(read("Iterations: 0"), None);
}
