//! What a person sees of a timeline: in a wide and in a narrow terminal, in colour and without, as a page.

use timeline::{Source, Timeline, What};

fn load(object: &str, value: u64, newest: Option<u64>) -> What {
    What::Load { object: object.into(), value, order: None, newest }
}

fn sample() -> Timeline {
    let mut t = Timeline::new("a <late> reader");
    let reader = t.lane("reader");
    let (irq, cpu) = (t.lane("cpu0 irq"), t.lane("cpu0"));
    t.push(cpu, What::Store { object: "seq".into(), value: 1, order: Some("Release".into()) }).source =
        Some(Source { file: "src/seqcount.rs".into(), line: 5 });
    t.push(irq, What::Note { text: "interrupt".into() });
    t.push(reader, load("cnt", 0xFFFF_FFFF, Some(0x1_0000_0000)));
    t.push(reader, What::Fence { order: None });
    t.verdict = "[one-moment] torn".into();
    t.sort_lanes();
    t.keep_sources(|_| Some((1..=9).map(|n| format!("line {n} <x>\n")).collect()));
    t
}

#[test]
fn cpus_come_first_then_their_interrupts_then_the_others() {
    assert_eq!(sample().lanes, ["cpu0", "cpu0 irq", "reader"]);
}

#[test]
fn a_row_stands_in_its_lane_with_its_source() {
    let text = sample().text(100, false);
    let row = text.lines().find(|l| l.contains("seq = 1 Release")).unwrap();
    assert!(row.starts_with("  1 | seq = 1 Release") && row.ends_with("seqcount.rs:5"), "{text}");
    let interrupt = text.lines().find(|l| l.contains("interrupt") && !l.contains("cpu0")).unwrap();
    assert_eq!(interrupt.matches('|').count(), 3, "{text}");
    assert!(text.contains("fence dropped"));
    assert!(text.ends_with("\n[one-moment] torn\n"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal_and_nothing_is_lost() {
    for width in [24, 40, 60, 80, 120] {
        let text = sample().text(width, false);
        for line in text.lines().skip(1) {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
        }
        let words: String = text.split_whitespace().filter(|w| *w != "|").collect();
        assert!(words.contains("old:") && words.contains("0x100000000"), "{width}: {text}");
    }
}

#[test]
fn a_narrow_terminal_names_the_lane_of_each_row() {
    let text = sample().text(40, false);
    assert!(text.contains("reader: cnt -> 0xffffffff"), "{text}");
}

#[test]
fn only_colour_has_escapes() {
    assert!(!sample().text(80, false).contains('\x1b'));
    let text = sample().text(80, true);
    assert!(text.contains("\x1b[33m") && text.contains("\x1b[1;31m[one-moment] torn\x1b[0m"), "{text:?}");
}

#[test]
fn json_comes_back_as_it_was_and_nonsense_is_refused() {
    let t = sample();
    assert_eq!(Timeline::from_json(&t.json()), Ok(t.clone()));
    assert!(Timeline::from_json("{}").unwrap_err().contains("no timeline"));
    let bad = t.json().replace("\"lane\":2", "\"lane\":7");
    assert_eq!(Timeline::from_json(&bad).unwrap_err(), "row 3 names a lane that there is not");
}

#[test]
fn the_page_is_one_file_that_escapes_what_it_shows() {
    let page = sample().page();
    assert!(page.contains("a &lt;late&gt; reader") && !page.contains("<late>"));
    assert!(page.contains("line 5 &lt;x&gt;"));
    for outside in ["http://", "https://", "src=\"", "href="] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    assert!(page.contains("lang=\"en\"") && page.contains("<caption>") && page.contains("scope=\"col\""));
    assert_eq!(page.matches("class=\"op old\"").count(), 1);
}

#[test]
fn a_few_lines_around_each_row_are_kept() {
    let t = sample();
    let kept: Vec<u32> = t.sources["src/seqcount.rs"].keys().copied().collect();
    assert_eq!(kept, (2..=8).collect::<Vec<_>>());
    assert_eq!(t.line(t.rows[0].source.as_ref().unwrap()), Some("line 5 <x>"));
}
