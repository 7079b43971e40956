//! A short run: today's form stands it, and older ones do not, so that it is known to see something.

use std::process::Command;

/// Whether all was well, and what was said.
fn torture(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_torture")).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    println!("{text}");
    (output.status.success(), text)
}

#[test]
fn the_path_stands_it() {
    let (well, text) = torture(&["--updates", "300000"]);
    assert!(well && text.ends_with("0 lost, 0 stuck readers, every count exact\n"), "{text}");
    assert!(["\n64-bit\n", "\n32-bit\n", "\n32-bit RT\n"].iter().all(|form| text.contains(form)), "{text}");
}

#[test]
fn updates_that_do_not_mask_interrupts_do_not_stand_it() {
    // Until it breaks; the time is only a limit.
    let (well, text) = torture(&["--form", "before_f941eadd8d6d", "--seconds", "250"]);
    assert!(!well, "{text}");
    assert!(["[one-moment]", "[exact]", "[stuck]"].iter().any(|broken| text.contains(broken)), "{text}");
}

#[test]
fn a_guard_of_three_steps_does_not_stand_it() {
    let (well, text) = torture(&["--form", "before_c89e843a11f1", "--seconds", "250"]);
    assert!(!well, "{text}");
    assert!(["[exclusive]", "[guard-free]"].iter().any(|broken| text.contains(broken)), "{text}");
}
