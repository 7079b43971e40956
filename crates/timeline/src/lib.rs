//! What happened, step by step: one lane a CPU or context, one row an operation.
//!
//! A [`Timeline`] comes from an execution that a model explored or from a machine in virtual time, and is shown in a
//! terminal ([`Timeline::text`]), as a page of its own ([`Timeline::page`]) or kept as JSON. It is data only: this crate
//! knows neither what was run nor how.
//!
//! ```
//! use timeline::{Timeline, What};
//!
//! let mut t = Timeline::new("a store that is seen late");
//! let writer = t.lane("writer");
//! let reader = t.lane("reader");
//! t.push(writer, What::Store { object: "x".into(), value: 1, order: None });
//! t.push(reader, What::Load { object: "x".into(), value: 0, order: None, newest: Some(1) });
//! t.verdict = "the reader saw the old value".into();
//! assert!(t.text(80, false).contains("x -> 0 (old: newest is 1)"));
//! ```

mod page;
mod text;

use std::collections::BTreeMap;
use std::fmt;

pub use page::{SCRIPT, STYLE, heading};
use serde::{Deserialize, Serialize};

/// How many lines before and after a row's own are kept of its source.
const AROUND: u32 = 3;

/// What happened, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// What it is of.
    pub title: String,
    /// The CPUs, threads and interrupts, left to right.
    pub lanes: Vec<String>,
    /// What each of them did, first to last.
    pub rows: Vec<Row>,
    /// What came of it.
    pub verdict: String,
    /// That is as it should be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// Lines of source that rows name, with some around them: file, line number, text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, BTreeMap<u32, String>>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Index into [`Timeline::lanes`].
    pub lane: usize,
    /// What was done.
    pub what: What,
    /// When, in nanoseconds of virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The file, from the root of the workspace.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An operation. `order` is a memory ordering stronger than relaxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum What {
    /// A load; `newest` is what another thread had stored by then, if this load saw something older.
    Load {
        /// The word's name.
        object: String,
        /// What was read.
        value: u64,
        /// Its ordering.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<String>,
        /// The newest value, if that is another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<u64>,
    },
    /// A store, or the store of a read-modify-write.
    Store {
        /// The word's name.
        object: String,
        /// What was written.
        value: u64,
        /// Its ordering.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<String>,
    },
    /// A fence.
    Fence {
        /// Its ordering; none if it was dropped on purpose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<String>,
    },
    /// A step that is not an operation on memory, or a remark.
    Note {
        /// Its words.
        text: String,
    },
}

impl What {
    /// Whether it read a value that was not the newest.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Load { newest: Some(_), .. })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = |order: &Option<String>| order.as_ref().map(|o| format!(" {o}")).unwrap_or_default();
        match self {
            Self::Load { object, value, order: o, newest: None } => {
                write!(f, "{object} -> {}{}", number(*value), order(o))
            }
            Self::Load { object, value, order: o, newest: Some(newest) } => {
                write!(f, "{object} -> {}{} (old: newest is {})", number(*value), order(o), number(*newest))
            }
            Self::Store { object, value, order: o } => write!(f, "{object} = {}{}", number(*value), order(o)),
            Self::Fence { order: Some(o) } => write!(f, "fence {o}"),
            Self::Fence { order: None } => f.write_str("fence dropped"),
            Self::Note { text } => f.write_str(text),
        }
    }
}

fn json(v: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(v).expect("strings and numbers only")
}

/// Small numbers as people count, large ones by their bits.
fn number(v: u64) -> String {
    if v < 1_000_000_000 { v.to_string() } else { format!("{v:#x}") }
}

impl Timeline {
    /// An empty one.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The same under another title.
    pub fn titled(&self, title: &str) -> Self {
        Self { title: title.into(), ..self.clone() }
    }

    /// The lane called `name`: the one there is, or a new one at the right.
    pub fn lane(&mut self, name: &str) -> usize {
        self.lanes.iter().position(|l| l == name).unwrap_or_else(|| {
            self.lanes.push(name.to_owned());
            self.lanes.len() - 1
        })
    }

    /// Adds a row at the end.
    pub fn push(&mut self, lane: usize, what: What) -> &mut Row {
        let at = self.rows.len();
        self.rows.push(Row { lane, what, ns: None, source: None });
        &mut self.rows[at]
    }

    /// Puts the lanes into the order of their names, CPUs and their interrupts first, "main" last.
    pub fn sort_lanes(&mut self) {
        self.order_lanes(|name| (name == "main", !name.starts_with("cpu"), name.to_owned()));
    }

    /// Puts the lanes into the order of what `key` says of their names.
    pub fn order_lanes<T: Ord>(&mut self, key: impl Fn(&str) -> T) {
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_by_key(|&i| key(&self.lanes[i]));
        let mut new = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            new[from] = to;
        }
        self.lanes = order.iter().map(|&i| self.lanes[i].clone()).collect();
        self.rows.iter_mut().for_each(|row| row.lane = new[row.lane]);
    }

    /// Keeps the lines of source that rows name, with a few around each; `read` gives a file's text.
    pub fn keep_sources(&mut self, read: impl Fn(&str) -> Option<String>) {
        let named: Vec<Source> = self.rows.iter().filter_map(|r| r.source.clone()).collect();
        let mut files = BTreeMap::new();
        for Source { file, line } in named {
            let text = files.entry(file.clone()).or_insert_with(|| read(&file).unwrap_or_default());
            let first = line.saturating_sub(AROUND).max(1);
            let lines = (1..).zip(text.lines()).filter(|(n, _)| (first..=line + AROUND).contains(n));
            let kept = lines.map(|(n, l)| (n, l.to_owned()));
            self.sources.entry(file).or_default().extend(kept);
        }
    }

    /// The text of the line that `source` names, if it was kept.
    pub fn line(&self, source: &Source) -> Option<&str> {
        self.sources.get(&source.file)?.get(&source.line).map(|l| l.trim())
    }

    /// As JSON, one line a row and one a line of source, so that a change of one reads as that.
    pub fn json(&self) -> String {
        let lines = |l: Vec<String>| l.join(",\n");
        let rows = self.rows.iter().map(json).collect();
        let sources = self.sources.iter().map(|(file, kept)| {
            let kept = kept.iter().map(|(n, text)| format!("\"{n}\":{}", json(text))).collect();
            format!("{}:{{\n{}}}", json(file), lines(kept))
        });
        format!(
            "{{\"title\":{},\n\"lanes\":{},\n\"rows\":[\n{}],\n\"verdict\":{},{}\n\"sources\":{{{}}}}}\n",
            json(&self.title),
            json(&self.lanes),
            lines(rows),
            json(&self.verdict),
            if self.holds { "\"holds\":true," } else { "" },
            lines(sources.collect())
        )
    }

    /// From JSON.
    ///
    /// # Errors
    /// If it is not what [`Timeline::json`] writes, or a row names a lane that there is not.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let t: Self = serde_json::from_str(text).map_err(|e| format!("this is no timeline: {e}"))?;
        match t.rows.iter().position(|r| r.lane >= t.lanes.len()) {
            Some(row) => Err(format!("row {} names a lane that there is not", row + 1)),
            None => Ok(t),
        }
    }
}
