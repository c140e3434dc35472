//! Draws what a terminal was sent as a picture: `lbr ... | terminal_svg >FILE`.

use std::io::Read as _;

fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    print!("{}", anstyle_svg::Term::new().render_svg(&text));
    Ok(())
}
