//! A self-contained HTML page: style and script are inline, and a policy keeps it from loading
//! anything.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::present::escape::escaped_lines;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The page fetches nothing, whatever its content.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    img-src data:; base-uri 'none'; form-action 'none'";

/// The page; `style` is added to the common style.
pub(crate) fn page(title: &str, content: &Markup, style: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("lbr ", env!("CARGO_PKG_VERSION")));
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                main { (content) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    escaped_lines(&page.into_string())
}
