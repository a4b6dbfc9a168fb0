//! Word lists: what an operator wrote, compiled into one automaton over folded text.
//!
//! A list has one entry a line: a word or words, `#` and what follows it is a comment. An entry is found where words begin and
//! end; with `*` before or after it inside longer words too. What an allow-list names is taken out of the sight of the others.
//!
//! The awkward case is the town of Scunthorpe: an entry without a star is never found inside a word, and one with stars is not
//! found where an allowed word stands over it, nor across something that was passed over.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, MatchKind};
use grandstand_core::moderation::Ruling;
use grandstand_core::record::Verdict;

use crate::fold::{self, Folded};

/// Entries of all lists together: an automaton of some tens of MiB.
pub const ENTRIES_MAX: usize = 100_000;
pub const ENTRY_BYTES_MAX: usize = 100;

/// What is wrong with a list; the line counts from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub line: usize,
    pub what: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Allow,
    Found(Verdict),
}

#[derive(Debug)]
struct Entry {
    pattern: Folded,
    /// May stand behind, or before, more of a word.
    open: (bool, bool),
    says: Says,
    ruling: Ruling,
}

/// The lists, read.
#[derive(Debug, Default)]
pub struct Words {
    /// `None`: no entries.
    automaton: Option<AhoCorasick>,
    /// By the automaton's pattern.
    entries: Vec<Vec<Entry>>,
}

/// The texts of the three lists.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lists<'a> {
    pub block: &'a str,
    pub flag: &'a str,
    pub allow: &'a str,
}

impl Words {
    /// Errors: the list's name and its first line that is no entry.
    pub fn read(lists: Lists<'_>) -> Result<Words, (&'static str, Fault)> {
        let mut entries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let mut n = 0;
        for (name, text, says) in [
            ("block", lists.block, Says::Found(Verdict::Block)),
            ("flag", lists.flag, Says::Found(Verdict::Flag)),
            ("allow", lists.allow, Says::Allow),
        ] {
            for (line, text) in text.lines().enumerate() {
                let fault = |what| (name, Fault { line: line + 1, what });
                let text = text.split('#').next().unwrap_or_default().trim();
                if text.is_empty() {
                    continue;
                }
                n += 1;
                if n > ENTRIES_MAX {
                    return Err(fault("there are more than 100000 entries"));
                }
                for entry in entries_of(name, text, says).map_err(fault)? {
                    entries.entry(entry.pattern.text.clone()).or_default().push(entry);
                }
            }
        }
        if entries.is_empty() {
            return Ok(Words::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(entries.keys())
            .map_err(|_| ("block", Fault { line: 0, what: "the lists are too large" }))?;
        Ok(Words { automaton: Some(automaton), entries: entries.into_values().collect() })
    }

    pub fn len(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sternest thing that the lists say of a text.
    pub fn judge(&self, letters: &[char]) -> Ruling {
        if self.automaton.is_none() {
            return Ruling::ALLOW;
        }
        let mut ruling = self.judge_view(&fold::plain(letters));
        let mut ones = ['i', 'l'].iter().take(if fold::is_ambiguous(letters) { 2 } else { 1 });
        while ruling.verdict != Verdict::Block
            && let Some(view) = ones.next().and_then(|one| fold::disguised(letters, *one))
        {
            ruling = ruling.or(self.judge_view(&view));
        }
        ruling
    }

    fn judge_view(&self, view: &Folded) -> Ruling {
        let Some(automaton) = &self.automaton else { return Ruling::ALLOW };
        let mut found: Vec<(std::ops::Range<usize>, &Entry)> = Vec::new();
        let mut allowed: Vec<std::ops::Range<usize>> = Vec::new();
        for hit in automaton.find_overlapping_iter(&view.text) {
            let span = hit.start()..hit.end();
            for entry in &self.entries[hit.pattern().as_usize()] {
                if !stands(view, &span, entry) {
                    continue;
                }
                match entry.says {
                    Says::Allow => allowed.push(span.clone()),
                    Says::Found(_) => found.push((span.clone(), entry)),
                }
            }
        }
        let hidden = |span: &std::ops::Range<usize>| allowed.iter().any(|a| a.start <= span.start && span.end <= a.end);
        let standing = found.into_iter().filter(|(span, _)| !hidden(span));
        standing.fold(Ruling::ALLOW, |ruling, (_, entry)| ruling.or(entry.ruling.clone()))
    }
}

fn stands(view: &Folded, span: &std::ops::Range<usize>, entry: &Entry) -> bool {
    let (begins, ends) = (view.begins(span.start), view.ends(span.end));
    let (before, after) = entry.open;
    (begins || before)
        && (ends || after)
        // Two words that stand side by side are not one that holds the entry.
        && ((begins && ends) || !view.is_joined(span.clone()))
        && view.is_stretched(span.clone(), &entry.pattern)
}

/// An entry as the plain view shows it, and where that differs as the disguised one does.
fn entries_of(list: &str, text: &str, says: Says) -> Result<Vec<Entry>, &'static str> {
    if text.len() > ENTRY_BYTES_MAX {
        return Err("an entry has at most 100 bytes");
    }
    let (before, word) = text.strip_prefix('*').map_or((false, text), |rest| (true, rest));
    let (after, word) = word.strip_suffix('*').map_or((false, word), |rest| (true, rest));
    if word.contains('*') {
        return Err("a star stands at an entry's beginning or end alone");
    }
    let letters = fold::letters(word);
    let mut patterns = vec![fold::plain(&letters).trimmed()];
    for one in ['i', 'l'] {
        patterns.extend(fold::disguised(&letters, one).map(Folded::trimmed));
    }
    patterns.retain(|pattern| !pattern.text.is_empty());
    patterns.dedup();
    if patterns.is_empty() {
        return Err("an entry needs a letter, a digit or a picture");
    }
    let verdict = match says {
        Says::Allow => Verdict::Allow,
        Says::Found(verdict) => verdict,
    };
    let ruling = Ruling::of(verdict, &format!("{list}: {text}"));
    Ok(patterns
        .into_iter()
        .map(|pattern| Entry { pattern, open: (before, after), says, ruling: ruling.clone() })
        .collect())
}
