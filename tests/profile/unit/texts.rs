use super::Texts;

#[test]
fn each_text_has_one_number() {
    let mut texts = Texts::default();
    let names: Vec<String> = (0..10_000).map(|at| format!("f{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        assert_eq!(texts.find(name), None);
        assert_eq!(texts.number(name), Some(at as u32));
    }
    assert_eq!(texts.number(""), Some(10_000));
    for (at, name) in names.iter().enumerate() {
        assert_eq!((texts.number(name), texts.get(at as u32)), (Some(at as u32), Some(&**name)));
    }
    assert_eq!((texts.get(10_000), texts.get(10_001)), (Some(""), None));
}
