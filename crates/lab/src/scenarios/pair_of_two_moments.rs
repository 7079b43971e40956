//! On 64-bit each counter is whole and the pair is not: a mean of the two may be of no moment at all.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "Time of one moment, count of another",
    change: Change::Rule(
        "on 64-bit counters fetched together carry no mutual guarantee; on 32-bit the sequence gives it",
    ),
    watch: "what the writer does between the reader's two loads",
    cause: "on 64-bit the section is empty: nothing tells a reader that an update came between its load of the \
            time and its load of the count",
    breaks: "one-moment",
    wrong: Side {
        form: "64-bit, an execution that the model filter::pair_64_fact found",
        run: || {
            let json = include_str!("../../../../counterexamples/filter-pair_64_fact.json");
            recorded(json, "one-moment", "read: 1 run, 0 ns more; there was never such a moment")
        },
    },
    right: Side { form: "32-bit: the reader sees the sequence change and reads again", run: with_sequence },
    question: "Monitoring tools divide the two on 64-bit machines all day. Why does nobody notice?",
    answer: "The error is one run at most, and it does not add up: the next read is right again. Only a mean \
             over very few runs is visibly off. A tool that subtracts two readings should still expect it.",
};

fn with_sequence() -> Take {
    let lab = Lab::<Bits32>::new(2);
    lab.at("cpu1", "nsecs.hi", Act::Turn("cpu0"));
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    let seen = std::sync::Mutex::new(None);
    lab.play(|p| {
        p.cpu(1, |_| *seen.lock().unwrap() = read(&prog, 0, 3));
        p.cpu(0, |cpu| _ = run(cpu, &prog));
    })
    .expect("nothing panics");
    let seen = seen.into_inner().unwrap().unwrap_or_default();
    let (cnt, ns) = (seen.cnt, seen.nsecs);
    lab.judge(
        "one-moment",
        (cnt, ns) == (1, 120),
        format!("read: {cnt} run, {ns} ns, which is what one moment held"),
    )
}
