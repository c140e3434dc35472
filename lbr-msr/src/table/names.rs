//! Common names of CPUs.

/// Each name, with the model it selects.
pub const NAMES: [(&str, &str); 47] = [
    ("pentium-pro", "06_01"),
    ("pentium-m", "06_0D"),
    ("yonah", "06_0E"),
    ("core2", "06_0F"),
    ("penryn", "06_17"),
    ("bonnell", "06_1C"),
    ("saltwell", "06_36"),
    ("nehalem", "06_1A"),
    ("westmere", "06_2C"),
    ("sandy-bridge", "06_2A"),
    ("ivy-bridge", "06_3A"),
    ("haswell", "06_3C"),
    ("broadwell", "06_3D"),
    ("skylake", "06_5E"),
    ("skylake-server", "06_55"),
    ("cascade-lake", "06_55"),
    ("kaby-lake", "06_9E"),
    ("coffee-lake", "06_9E"),
    ("comet-lake", "06_A5"),
    ("cannon-lake", "06_66"),
    ("ice-lake", "06_7E"),
    ("ice-lake-server", "06_6A"),
    ("tiger-lake", "06_8C"),
    ("rocket-lake", "06_A7"),
    ("knights-landing", "06_57"),
    ("silvermont", "06_37"),
    ("airmont", "06_4C"),
    ("goldmont", "06_5C"),
    ("goldmont-plus", "06_7A"),
    ("tremont", "06_96"),
    ("sapphire-rapids", "06_8F"),
    ("golden-cove", "06_8F"),
    ("emerald-rapids", "06_CF"),
    ("granite-rapids", "06_AD"),
    ("sierra-forest", "06_AF"),
    ("alder-lake", "06_97"),
    ("raptor-lake", "06_B7"),
    ("meteor-lake", "06_AA"),
    ("arrow-lake", "06_C6"),
    ("lunar-lake", "06_BD"),
    ("gracemont", "06_BE"),
    ("willamette", "0F_01"),
    ("prescott", "0F_03"),
    ("zen3", "19_21"),
    ("zen4", "19_61"),
    ("zen5", "1A_44"),
    ("zen6", "1A_50"),
];

/// The family and model of a name, ignoring case, hyphens, underscores and spaces.
pub(super) fn named(name: &str) -> Option<(u32, u32)> {
    let plain = |text: &'static str| text.chars().filter(|c| *c != '-');
    let wanted = || name.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
    let (_, key) = NAMES
        .iter()
        .find(|(known, _)| plain(known).eq(wanted().map(|c| c.to_ascii_lowercase())))?;
    super::parse_key(key)
}
