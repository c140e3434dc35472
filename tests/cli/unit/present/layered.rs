use super::*;

/// Boxes and links, made from a seed.
fn graph(mut seed: u64) -> (Vec<(f64, f64)>, Vec<Link>) {
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % limit
    };
    let count = 1 + below(40);
    let sizes = (0..count).map(|_| (30.0 + below(270) as f64, 20.0 + below(100) as f64)).collect();
    let links = (0..below(80)).map(|_| {
        let (from, to) = (below(count), below(count));
        Link { from, to, back: to <= from, weight: 1.0 }
    });
    (sizes, links.collect())
}

#[test]
fn no_box_is_over_another_and_no_edge_passes_through_one() {
    for seed in 0..100 {
        let (sizes, links) = graph(seed);
        let drawn = layout(&sizes, &links);
        let corners: Vec<[f64; 4]> = drawn
            .boxes
            .iter()
            .zip(&sizes)
            .map(|((x, y), (width, height))| [*x, *y, x + width, y + height])
            .collect();
        for (at, [left, top, right, bottom]) in corners.iter().enumerate() {
            assert!(*right <= drawn.width && *bottom <= drawn.height, "{seed}");
            for other in &corners[at + 1..] {
                let apart = *right <= other[0] || other[2] <= *left;
                assert!(apart || *bottom <= other[1] || other[3] <= *top, "{seed}");
            }
        }
        let is_clear = |(x, y): (f64, f64)| {
            corners.iter().all(|[left, top, right, bottom]| {
                x < left + 0.5 || x > right - 0.5 || y < top + 0.5 || y > bottom - 0.5
            })
        };
        for (link, route) in links.iter().zip(&drawn.routes) {
            assert_eq!(route[0].from, corners[link.from][3], "{seed}");
            assert_eq!(route[route.len() - 1].to, corners[link.to][1] - HEAD, "{seed}");
            for step in 0..=20 {
                let t = f64::from(step) / 20.0;
                let legs = route.iter().map(|leg| (leg.x, leg.from + (leg.to - leg.from) * t));
                let curves = route.windows(2).map(|pair| curve(&pair[0], &pair[1], t));
                assert!(legs.chain(curves).all(is_clear), "{seed}: {link:?}");
            }
        }
    }
}

#[test]
fn a_loop_is_drawn_below_its_entry_and_turns_beside_it() {
    let link = |from, to, back| Link { from, to, back, weight: 1.0 };
    let links = [link(0, 1, false), link(1, 1, true), link(1, 2, false), link(2, 0, true)];
    let drawn = layout(&[(80.0, 30.0); 3], &links);
    let tops: Vec<f64> = drawn.boxes.iter().map(|at| at.1).collect();
    assert!(tops[0] < tops[1] && tops[1] < tops[2], "{tops:?}");
    // The outer back edge passes all three rows, upwards.
    assert_eq!(drawn.routes[3].iter().filter(|leg| !leg.is_down).count(), 3);
}
