//! `cargo xtask loom --mutants`: small errors of logic, made one at a time, which a model or a test must notice.
//!
//! The list says what is replaced by what ([`LIST`]). Each mutant is built and run in a scratch copy of the sources: the
//! models of its crate and of those above it first, and, if they all pass, its crate's ordinary tests; the other way
//! round where the list says so. What kills:
//!
//! - of a model: a named invariant, an outcome never reached, or loom's causality violation. `LOOM_WEAKEN`, set to no site,
//!   turns the pinned counts off: a changed count is no kill;
//! - of a test: that it fails, or that its program dies;
//! - no end at all, if the list says that the mutant may hang.
//!
//! A mutant that survives fails, and so does one that does not compile. The unchanged sources go first and must pass.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::report::{Outcome, Report};
use crate::runner::cargo;
use crate::tidy::{self, File};

/// Where the mutants are listed.
pub(crate) const LIST: &str = "xtask/mutants.toml";

/// How many mutants are run at a time, each in a copy and with target folders of its own.
const SCRATCHES: usize = 2;

/// How long a test program may run before it is called hung. The slowest takes a few seconds.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

/// One error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    /// The file, from the root.
    file: String,
    /// What is replaced; it stands in the file once.
    find: String,
    replace: String,
    /// The rule that this breaks.
    why: String,
    /// The packages whose ordinary tests are run if no model notices; none: the file's own.
    #[serde(default)]
    tests: Vec<String>,
    /// No model sees it: the tests go first, to save time.
    #[serde(default)]
    tests_first: bool,
    /// Waiting for ever is what this error does.
    #[serde(default)]
    may_hang: bool,
}

impl Mutant {
    /// The crate whose source it is in.
    fn package(&self) -> Result<&str> {
        let mut parts = self.file.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("crates"), Some(package), Some("src")) => Ok(package),
            _ => bail!("{}: {} is no source of a crate (crates/NAME/src/…)", self.name, self.file),
        }
    }

    /// The packages whose ordinary tests are to notice it.
    fn tests(&self) -> Result<Vec<String>> {
        Ok(if self.tests.is_empty() { vec![self.package()?.into()] } else { self.tests.clone() })
    }

    /// `text`, its file's, with the error.
    fn applied(&self, text: &str) -> Result<String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            n => {
                bail!("{}: `find` stands {n} times in {}, and must stand there once", self.name, self.file)
            }
        }
    }
}

/// Reads a list; each mutant has a name of its own, says why, and changes something.
fn parse(text: &str) -> Result<Vec<Mutant>> {
    let list: List = toml::from_str(text).map_err(|e| anyhow::anyhow!("{}", e.to_string().trim_end()))?;
    let mut names = BTreeSet::new();
    for mutant in &list.mutant {
        let name = &mutant.name;
        if !names.insert(name) {
            bail!("{name}: two mutants have this name");
        }
        if mutant.why.is_empty() || mutant.find.is_empty() || mutant.find == mutant.replace {
            bail!("{name}: `why` and `find` say something, and `replace` something else than `find`");
        }
        mutant.package()?;
    }
    Ok(list.mutant)
}

/// What of the list no longer fits the sources, a line each.
pub(crate) fn unfit(files: &[File]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map(|f| f.text.as_str());
    let Some(list) = text(LIST) else { return Vec::new() };
    let mutants = match parse(list) {
        Ok(mutants) => mutants,
        Err(e) => return vec![e.to_string()],
    };
    let misfit = |m: &Mutant| match text(&m.file) {
        None => Some(format!("{}: there is no {}", m.name, m.file)),
        Some(text) => m.applied(text).err().map(|e| e.to_string()),
    };
    mutants.iter().filter_map(misfit).collect()
}

/// How a mutant ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Something noticed, and this is what.
    Killed(String),
    Survived,
    /// It was not run: what the compiler said.
    NotBuilt(String),
    /// This program did not end, and nothing says that it may not.
    Hung(String),
}

impl End {
    /// What the step that ran `mutant`, or the sources as they are, came to, and a remark.
    fn judged(self, mutant: Option<&Mutant>) -> (Outcome, Option<String>) {
        let failed = |output: String| (Outcome::Check { ok: false, output }, None);
        let passed = |note| (Outcome::Check { ok: true, output: String::new() }, note);
        match (self, mutant) {
            (End::Survived, None) => passed(None),
            (End::Killed(what), None) => {
                failed(format!("the unchanged sources fail, so a kill says nothing: {what}"))
            }
            (End::Killed(what), Some(_)) => passed(Some(format!("killed by {what}"))),
            (End::Survived, Some(m)) => failed(format!(
                "no model and no test noticed ({}): strengthen one, or take the mutant off the list if it changes nothing",
                m.why
            )),
            (End::NotBuilt(errors), _) => failed(format!("does not compile, which is no kill:\n{errors}")),
            (End::Hung(program), _) => {
                failed(format!("{program} did not end in {} s (see `may_hang`)", LIMIT.as_secs()))
            }
        }
    }
}

/// Runs all mutants.
///
/// # Errors
/// If the list is bad, the sources cannot be copied, or the report cannot be written.
pub(crate) fn run(sh: &Shell, report: &mut Report<impl Write>) -> Result<()> {
    let root = sh.current_dir();
    let list = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let mutants = parse(&list).with_context(|| LIST)?;
    let sources = sources(sh)?;
    let scratches = (0..SCRATCHES).map(|n| Scratch::new(&root, n, &sources)).collect::<Result<Vec<_>>>()?;
    let mut jobs = mutants.iter().map(|m| Job::of(m, &sources)).collect::<Result<Vec<_>>>()?;
    jobs.insert(0, Job::unchanged(&jobs));
    let queue = Mutex::new(jobs.iter().enumerate().collect::<VecDeque<_>>());
    let next = || queue.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
    let (send, results) = mpsc::channel();
    let start = Instant::now();
    thread::scope(|s| {
        for scratch in &scratches {
            let (send, next) = (send.clone(), &next);
            s.spawn(move || {
                while let Some((at, job)) = next() {
                    let start = Instant::now();
                    let end = scratch.run(job);
                    // A report that cannot be written ends the other side.
                    if send.send((at, end, start.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        // In the list's order, whoever ends first.
        let mut ended = BTreeMap::new();
        let mut at = 0;
        let mut by_models = 0;
        for (which, end, took) in results {
            ended.insert(which, (end, took));
            while let Some((end, took)) = ended.remove(&at) {
                let mutant = jobs[at].mutant;
                let (outcome, note) = match end {
                    Ok(end) => end.judged(mutant),
                    Err(e) => (Outcome::Check { ok: false, output: format!("{e:#}") }, None),
                };
                let name =
                    mutant.map_or("the unchanged sources".into(), |m: &Mutant| format!("mutant {}", m.name));
                report.ended(&name, outcome, took)?;
                if let Some(note) = note {
                    by_models += usize::from(!note.starts_with("killed by test"));
                    report.note(&note)?;
                }
                at += 1;
            }
        }
        report.note(&format!(
            "{} mutants, {by_models} killed by models, in {:.0} s",
            mutants.len(),
            start.elapsed().as_secs_f64()
        ))
    })
}

/// What to run in a scratch copy: the error, and the test programs, one package's models or one other at a time.
struct Job<'a> {
    mutant: Option<&'a Mutant>,
    targets: Vec<(Layer, String, Vec<String>)>,
}

impl<'a> Job<'a> {
    /// The models of the mutant's crate, of those above it, and the tests.
    fn of(mutant: &'a Mutant, sources: &[String]) -> Result<Self> {
        let above = tidy::above(mutant.package()?);
        let models = above.into_iter().flat_map(|package| models(package, sources));
        let tests = mutant.tests()?;
        let tests = tests.iter().flat_map(|package| tests_of(package, sources));
        let mut targets: Vec<_> = models.chain(tests).collect();
        if mutant.tests_first {
            targets.sort_by_key(|(layer, ..)| *layer == Layer::Models);
        }
        Ok(Self { mutant: Some(mutant), targets })
    }

    /// All of `jobs`, without the error.
    fn unchanged(jobs: &[Job<'_>]) -> Self {
        let all: BTreeSet<_> = jobs.iter().flat_map(|job| &job.targets).cloned().collect();
        Self { mutant: None, targets: all.into_iter().collect() }
    }
}

/// The models of `package`, if it has some.
fn models(package: &str, sources: &[String]) -> Option<(Layer, String, Vec<String>)> {
    let select: Vec<_> =
        targets(package, sources).filter(|(is_model, _)| *is_model).map(|(_, t)| t).collect();
    (!select.is_empty()).then(|| (Layer::Models, package.into(), select))
}

/// The other tests of `package`: those in its library, then file by file.
fn tests_of(package: &str, sources: &[String]) -> Vec<(Layer, String, Vec<String>)> {
    let files = targets(package, sources).filter(|(is_model, _)| !is_model).map(|(_, target)| target);
    std::iter::once("--lib".into()).chain(files).map(|t| (Layer::Tests, package.into(), vec![t])).collect()
}

/// The files in `tests` of `package` as cargo's arguments, and whether they hold models.
fn targets(package: &str, sources: &[String]) -> impl Iterator<Item = (bool, String)> {
    let folder = format!("crates/{package}/tests/");
    sources.iter().filter_map(move |path| {
        let test = path.strip_prefix(&folder)?.strip_suffix(".rs").filter(|t| !t.contains('/'))?;
        Some((test.starts_with("loom_"), format!("--test={test}")))
    })
}

/// The files that git knows or would add, from the root, if they are there.
fn sources(sh: &Shell) -> Result<Vec<String>> {
    let list = cmd!(sh, "git ls-files -z --cached --others --exclude-standard").quiet().read()?;
    Ok(list.split_terminator('\0').filter(|path| sh.path_exists(path)).map(str::to_owned).collect())
}

/// A copy of the sources, with target folders that stay from run to run.
struct Scratch {
    root: PathBuf,
}

/// The two kinds of runs, which are built differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Models,
    Tests,
}

impl Scratch {
    /// Makes copy number `n` of the `sources` under `root`. What is as it should be is not touched, so that cargo does not
    /// build it again.
    fn new(root: &Path, n: usize, sources: &[String]) -> Result<Self> {
        let copy = root.join(format!("target/mutants/{n}"));
        fs::create_dir_all(&copy).with_context(|| format!("cannot make {}", copy.display()))?;
        for gone in tidy::files(&copy)?.iter().filter(|file| !sources.contains(&file.path)) {
            fs::remove_file(copy.join(&gone.path))?;
        }
        for path in sources {
            let (from, to) = (root.join(path), copy.join(path));
            let bytes = fs::read(&from).with_context(|| format!("cannot read {path}"))?;
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(Self { root: copy })
    }

    /// Makes the error, runs what is to notice it, and takes it back.
    fn run(&self, job: &Job<'_>) -> Result<End> {
        let Some(mutant) = job.mutant else { return self.examine(job) };
        let file = self.root.join(&mutant.file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", mutant.file))?;
        fs::write(&file, mutant.applied(&text)?)?;
        let end = self.examine(job);
        fs::write(&file, text)?;
        end
    }

    /// Runs the targets up to the first that notices. What comes after that is not even built.
    fn examine(&self, job: &Job<'_>) -> Result<End> {
        for (layer, package, select) in &job.targets {
            let programs = match self.build(*layer, package, select)? {
                Ok(programs) => programs,
                Err(errors) => return Ok(End::NotBuilt(errors)),
            };
            for (name, program) in programs {
                let name = format!("{package} {name}");
                let end = match (self.watch(*layer, package, &program)?, layer) {
                    (Ran::Noticed(what), Layer::Models) => End::Killed(what),
                    (Ran::Noticed(test), Layer::Tests) => End::Killed(format!("test {test} ({name})")),
                    (Ran::Hung, _) if job.mutant.is_some_and(|m| m.may_hang) => {
                        End::Killed(format!("hanging ({name})"))
                    }
                    (Ran::Hung, _) => End::Hung(name),
                    (Ran::Ended(status), _) if status.success() => continue,
                    // A model that fails in another way has noticed nothing that it names.
                    (Ran::Ended(_), Layer::Models) if job.mutant.is_some() => continue,
                    (Ran::Ended(status), _) => {
                        End::Killed(format!("test program {name}, which died: {status}"))
                    }
                };
                return Ok(end);
            }
        }
        Ok(End::Survived)
    }

    /// Builds the test programs of `package` that `select` selects: their names and paths, or the compiler's errors.
    fn build(
        &self,
        layer: Layer,
        package: &str,
        select: &[String],
    ) -> Result<Result<Vec<(String, PathBuf)>, String>> {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root).args(["test", "--no-run", "--color=never", "--package", package]);
        command.args(select).env("CARGO_INCREMENTAL", "1");
        match layer {
            Layer::Models => command
                .arg("--release")
                .env("RUSTFLAGS", "--cfg loom")
                .env("CARGO_TARGET_DIR", self.root.join("target/loom")),
            // Without debug information: it is half of the work.
            Layer::Tests => command
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env("CARGO_TARGET_DIR", self.root.join("target/test")),
        };
        let output = command.stdin(Stdio::null()).output().context("cargo cannot be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Ok(Err(errors(&said)));
        }
        Ok(Ok(programs(&said).map(|(name, path)| (name.into(), self.root.join(path))).collect()))
    }

    /// Runs a test program of `package` up to its end, its limit, or the first line that says that it noticed.
    fn watch(&self, layer: Layer, package: &str, program: &Path) -> Result<Ran> {
        let folder = self.root.join("crates").join(package);
        let mut command = Command::new(program);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env("RUST_BACKTRACE", "0");
        match layer {
            Layer::Models => {
                command.args(["--nocapture", "--test-threads=1"]).env("LOOM_WEAKEN", "none");
                watch(command, LIMIT, noticed_by_model)
            }
            Layer::Tests => watch(command, LIMIT, noticed_by_test),
        }
    }
}

/// How a test program ended.
#[derive(Debug)]
enum Ran {
    /// A line said that something noticed, and the program was ended.
    Noticed(String),
    Ended(ExitStatus),
    /// It reached its limit, and was ended.
    Hung,
}

/// Runs `command` up to its end, `limit`, or the first line of its output in which `notices` finds something.
fn watch(mut command: Command, limit: Duration, notices: fn(&str) -> Option<String>) -> Result<Ran> {
    fn lines(from: impl Read, to: &mpsc::Sender<String>) {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    }
    let deadline = Instant::now() + limit;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (send, said) = mpsc::channel();
    thread::scope(|s| {
        let send_too = send.clone();
        s.spawn(move || out.map(|out| lines(out, &send)));
        s.spawn(move || err.map(|err| lines(err, &send_too)));
        let ran = loop {
            match said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(what) = notices(&line) {
                        break Ran::Noticed(what);
                    }
                }
                Err(RecvTimeoutError::Timeout) => break Ran::Hung,
                Err(RecvTimeoutError::Disconnected) => return Ok(Ran::Ended(child.wait()?)),
            }
        };
        child.kill()?;
        child.wait()?;
        Ok(ran)
    })
}

/// What a model says that it noticed: `MODEL: INVARIANT`, or what was not reached, or loom's word for a race.
fn noticed_by_model(line: &str) -> Option<String> {
    if let Some((_, kill)) = line.split_once("killed by ") {
        let (model, rest) = kill.split_once(" after ")?;
        return Some(format!("{model}: {}", rest.split_once(": ")?.1));
    }
    let (model, what) = line.split_once(": ")?;
    if !model.contains("::") || model.contains(' ') {
        return None;
    }
    if what.starts_with("Causality violation") {
        return Some(format!("{model}: causality violation"));
    }
    let missing = what.strip_prefix("never reached ")?;
    Some(format!("{model}: never reached {}", missing.split(';').next().unwrap_or_default()))
}

/// The test that a line of libtest says has failed.
fn noticed_by_test(line: &str) -> Option<String> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned)
}

/// The test programs that cargo says it has built: `Executable tests/a.rs (target/…/a-0123)`.
fn programs(said: &str) -> impl Iterator<Item = (&str, &str)> {
    said.lines()
        .filter_map(|l| l.trim_start().strip_prefix("Executable ")?.strip_suffix(')')?.split_once(" ("))
}

/// The errors in what cargo said, each with where it is.
fn errors(said: &str) -> String {
    let mut lines = said.lines().peekable();
    let mut found = String::new();
    while let Some(line) = lines.next() {
        if line.starts_with("error") {
            found.extend([line, "\n"]);
            if let Some(at) = lines.next_if(|l| l.trim_start().starts_with("--> ")) {
                found.extend([at, "\n"]);
            }
        }
    }
    if found.is_empty() { said.into() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    const ENTRY: &str = r#"[[mutant]]
name = "m"
file = "crates/a/src/lib.rs"
find = "b"
replace = "c"
why = "w"
"#;

    fn mutant(more: &str) -> Mutant {
        parse(&format!("{ENTRY}{more}")).unwrap().remove(0)
    }

    fn error<T: std::fmt::Debug>(r: Result<T>) -> String {
        r.unwrap_err().to_string()
    }

    #[test]
    fn what_is_found_once_is_replaced() {
        assert_eq!(mutant("").applied("a b a").unwrap(), "a c a");
        let none = "m: `find` stands 0 times in crates/a/src/lib.rs, and must stand there once";
        assert_eq!(error(mutant("").applied("a")), none);
        assert_eq!(error(mutant("").applied("b b")), none.replace('0', "2"));
    }

    #[test]
    fn a_bad_list_is_one_line_that_names_the_mutant() {
        assert_eq!(error(parse(&ENTRY.repeat(2))), "m: two mutants have this name");
        for same in ["replace = \"b\"", "why = \"\"", "find = \"\""] {
            let key = same.split(' ').next().unwrap();
            let bad: String = ENTRY
                .lines()
                .map(|l| if l.starts_with(key) { same } else { l })
                .flat_map(|l| [l, "\n"])
                .collect();
            assert!(error(parse(&bad)).starts_with("m: `why` and `find` say something"), "{bad}");
        }
        let elsewhere = error(parse(&ENTRY.replace("crates/a/src", "xtask/src")));
        assert_eq!(elsewhere, "m: xtask/src/lib.rs is no source of a crate (crates/NAME/src/…)");
        assert!(error(parse(&format!("{ENTRY}tset = []\n"))).contains("unknown field `tset`"));
        assert!(error(parse("[[mutant]]\nname = \"m\"\n")).contains("missing field `file`"));
    }

    #[test]
    fn tests_are_the_files_own_unless_others_are_named() {
        assert_eq!(mutant("").tests().unwrap(), ["a"]);
        assert_eq!(mutant("tests = [\"b\", \"c\"]\n").tests().unwrap(), ["b", "c"]);
    }

    #[test]
    fn the_list_fits_the_sources_or_says_what_does_not() {
        let unfit = |text| unfit(&tree(&[(LIST, ENTRY), ("crates/a/src/lib.rs", text)]));
        assert_eq!(unfit("b"), [""; 0]);
        assert_eq!(unfit("d").len(), 1);
        assert_eq!(super::unfit(&tree(&[(LIST, ENTRY)])), ["m: there is no crates/a/src/lib.rs"]);
        assert_eq!(super::unfit(&tree(&[(LIST, "mutant = 1")])).len(), 1);
    }

    #[test]
    fn models_first_and_the_nearest_then_tests_file_by_file() {
        let sources = [
            "crates/trampoline/tests/loom_b.rs",
            "crates/stats/tests/loom_c.rs",
            "crates/filter/tests/loom_a.rs",
            "crates/filter/tests/facts.rs",
            "crates/filter/tests/stepper/mod.rs",
        ]
        .map(String::from);
        let in_filter = Mutant { file: "crates/filter/src/run.rs".into(), ..mutant("") };
        let job = Job::of(&in_filter, &sources).unwrap();
        let targets: Vec<_> =
            job.targets.iter().map(|(_, package, t)| format!("{package} {}", t.join(" "))).collect();
        assert_eq!(
            targets,
            ["filter --test=loom_a", "trampoline --test=loom_b", "filter --lib", "filter --test=facts"]
        );
        assert_eq!(Job::unchanged(&[job]).targets.len(), 4);
    }

    #[test]
    fn models_notice_by_what_they_name() {
        let noticed = |line| noticed_by_model(line);
        let kill = "test a ... killed by filter::x after 7 executions: one-moment";
        assert_eq!(noticed(kill).unwrap(), "filter::x: one-moment");
        assert_eq!(
            noticed("a::x: never reached [\"1 runs\"]; reached []").unwrap(),
            "a::x: never reached [\"1 runs\"]"
        );
        let race = "a::x: Causality violation: Concurrent `unsync_load` and atomic store.";
        assert_eq!(noticed(race).unwrap(), "a::x: causality violation");
        for other in [
            "a::x: 7 executions, pinned are Some(8). What changed?",
            "a::x: [total] should have broken and did not",
            "a::x: [total] should have broken, and this did: Causality violation: Concurrent",
            "Causality violation: Concurrent `unsync_load` and atomic store.",
            "    broken: Causality violation: Concurrent `unsync_load` and atomic store.",
            "a::x: index out of bounds",
            "model a::x quick 7 executions 0.01 s  breaks total",
        ] {
            assert_eq!(noticed(other), None, "{other}");
        }
    }

    #[test]
    fn tests_notice_by_failing() {
        assert_eq!(noticed_by_test("test tests::a ... FAILED").as_deref(), Some("tests::a"));
        for other in
            ["test tests::a ... ok", "test result: FAILED. 1 passed", "    tests::a", "test a ... ignored"]
        {
            assert_eq!(noticed_by_test(other), None, "{other}");
        }
    }

    #[test]
    fn what_cargo_says() {
        let said =
            "   Compiling a\n  Executable unittests src/lib.rs (t/a-1)\n  Executable tests/b.rs (t/b-2)\n";
        let expected = [("unittests src/lib.rs", "t/a-1"), ("tests/b.rs", "t/b-2")];
        assert_eq!(programs(said).collect::<Vec<_>>(), expected);
        let failed =
            "warning: x\n --> w.rs:1\nerror[E1]: bad\n --> a.rs:2\n  |\nerror: could not compile `a`\n";
        assert_eq!(errors(failed), "error[E1]: bad\n --> a.rs:2\nerror: could not compile `a`\n");
    }

    fn shell(script: &str, limit: Duration) -> Ran {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]);
        watch(sh, limit, noticed_by_test).unwrap()
    }

    #[test]
    fn a_program_is_watched_up_to_its_end_its_limit_or_its_first_kill() {
        // Nothing here waits that long, unless it is broken.
        const LONG: Duration = Duration::from_secs(600);
        assert!(matches!(shell("exit 3", LONG), Ran::Ended(status) if status.code() == Some(3)));
        assert!(matches!(shell("echo test a ... ok", LONG), Ran::Ended(status) if status.success()));
        let kill = shell("echo test a ... FAILED >&2; exec sleep 600", LONG);
        assert!(matches!(kill, Ran::Noticed(test) if test == "a"));
        assert!(matches!(shell("exec sleep 600", Duration::ZERO), Ran::Hung));
    }

    #[test]
    fn only_a_kill_passes_and_only_of_a_mutant() {
        let m = mutant("");
        let killed = || End::Killed("filter::x: total".into());
        let judged = |end: End, mutant| match end.judged(mutant) {
            (Outcome::Check { ok, output }, note) => (ok, output, note),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            judged(killed(), Some(&m)),
            (true, String::new(), Some("killed by filter::x: total".into()))
        );
        assert!(judged(End::Survived, None).0);
        for (end, mutant, says) in [
            (killed(), None, "the unchanged sources fail"),
            (End::Survived, Some(&m), "no model and no test noticed (w)"),
            (End::NotBuilt("error".into()), Some(&m), "does not compile, which is no kill"),
            (End::Hung("a".into()), Some(&m), "a did not end in 120 s"),
        ] {
            let (ok, output, note) = judged(end, mutant);
            assert!(!ok && note.is_none() && output.starts_with(says), "{output}");
        }
    }
}
