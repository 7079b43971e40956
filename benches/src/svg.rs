//! The main results as a picture: bars of medians, a tick where the minimum is. It follows the reader's light or dark
//! scheme.

use std::fmt::Write as _;

use crate::harness::{Group, Row};
use crate::host::Host;
use crate::table::time;
use crate::{run, update};

/// The groups that are shown.
const SHOWN: &[&str] = &[run::RUN, update::ALONE, update::TOGETHER];

const WIDTH: usize = 760;
/// Where bars begin, and how long the longest is.
const LEFT: usize = 290;
const LONGEST: f64 = 370.0;
const ROW: usize = 22;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.h{font-weight:600;font-size:15px}\
    .s{fill:#57606a;font-size:12px}.n{text-anchor:end}.b{fill:#8c959f}.o{fill:#0969da}.t{stroke:#1f2328;stroke-width:2}\
    .g{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.b{fill:#656c76}.o{fill:#4493f8}\
    .t{stroke:#e6edf3}.g{fill:#0d1117}}";

/// A whole SVG document.
pub(crate) fn picture(host: &Host, groups: &[Group]) -> String {
    let shown: Vec<&Group> = groups.iter().filter(|g| SHOWN.contains(&g.name)).collect();
    let (mut body, mut y) = (String::new(), 16);
    for group in &shown {
        y += 26;
        let _ = writeln!(body, r#"<text class="h" x="16" y="{y}">{}</text>"#, escape(group.title));
        y += 8;
        let longest = group.rows.iter().map(|r| r.ns.median).fold(f64::MIN_POSITIVE, f64::max);
        for row in &group.rows {
            bar(&mut body, row, y, LONGEST / longest);
            y += ROW;
        }
    }
    let host = escape(&host.line());
    y += 26;
    let _ = writeln!(body, r#"<text class="s" x="16" y="{y}">Bars: medians; ticks: minima. {host}</text>"#);
    let height = y + 16;
    let desc: Vec<String> = shown.iter().map(|g| described(g)).collect();
    let desc = escape(&desc.join(" "));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">
<title id="t">What a run and an update cost</title>
<desc id="d">{desc} Measured on {host}.</desc>
<style>{STYLE}</style>
<rect class="g" width="{WIDTH}" height="{height}" rx="6"/>
{body}</svg>
"#
    )
}

fn bar(body: &mut String, row: &Row, y: usize, scale: f64) {
    let (length, min) = (row.ns.median * scale, LEFT as f64 + row.ns.min * scale);
    let (name_x, text_y, value_x) = (LEFT - 8, y + 15, LEFT as f64 + length + 8.0);
    let class = if is_ours(&row.name) { "o" } else { "b" };
    let _ = writeln!(
        body,
        r#"<text class="n" x="{name_x}" y="{text_y}">{}</text>
<rect class="{class}" x="{LEFT}" y="{}" width="{length:.1}" height="14"/>
<path class="t" d="M{min:.1} {}v14"/>
<text x="{value_x:.1}" y="{text_y}">{}</text>"#,
        escape(&row.name),
        y + 4,
        y + 4,
        time(row.ns.median),
    );
}

/// What is measured of the path, and not of what it is compared with.
fn is_ours(name: &str) -> bool {
    ["off, ", "on, ", "64-bit", "32-bit"].iter().any(|start| name.starts_with(start))
}

/// A group in words, for who does not see it.
fn described(group: &Group) -> String {
    let rows: Vec<String> = group.rows.iter().map(|r| format!("{}: {}", r.name, time(r.ns.median))).collect();
    format!("{}, medians. {}.", group.title, rows.join("; "))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Summary;

    #[test]
    fn bars_are_as_long_as_their_median_and_names_are_escaped() {
        let row = |name: &str, v| Row {
            name: name.into(),
            ns: Summary::of(&[v]),
            instructions: None,
            samples: Vec::new(),
        };
        let rows = vec![row("64-bit", 5.0), row("Cell<(u64, u64)>", 10.0)];
        let groups = [Group { name: update::ALONE, title: "A & B", rounds: 1, rows }];
        let host = Host { cpu: "c".into(), cores: 1, kernel: "k".into(), rustc: "r".into() };
        let svg = picture(&host, &groups);
        assert!(svg.contains(r#"class="o" x="290" y="54" width="185.0""#), "{svg}");
        assert!(svg.contains(r#"class="b" x="290" y="76" width="370.0""#), "{svg}");
        assert!(svg.contains("Cell&lt;(u64, u64)&gt;: 10.00ns") && svg.contains("A &amp; B"), "{svg}");
        assert!(!svg.contains("Cell<"));
    }
}
