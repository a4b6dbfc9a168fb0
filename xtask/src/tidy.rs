//! The structure, checked: which crate may use which, which module of the server may name which, what the pure rules reach.
//!
//! One table of allowed edges serves crates and modules. Whatever is not in it is refused, so a new edge is a decision.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Crate → crates of this workspace it may use. Imports go down the floors only.
const CRATES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("wire", &["core"]),
    ("classifier", &["core"]),
    ("store", &["core", "wire"]),
    ("client", &["core", "wire"]),
    ("server", &["core", "wire", "store", "classifier"]),
    ("load", &["core", "wire", "client"]),
    ("sim", &["core", "wire", "store"]),
    ("fuzz", &["core", "wire", "server"]),
    ("grandstand", &["core", "wire", "store", "client", "server", "load"]),
];

/// Roles of the server → modules of the server they may name. They never name each other.
const ROLES: &[&str] = &["gateway", "shard", "control"];
/// What the roles may name beside themselves. The roles are named by `process` alone.
const SHARED: &[&str] = &[
    "admission",
    "auth",
    "changes",
    "clock",
    "config",
    "early",
    "edge",
    "failpoint",
    "kernel",
    "link",
    "metrics",
    "moderation",
    "shedding",
];

/// Crates that the pure rules may not reach, by any path.
const IMPURE: &[&str] = &["tokio", "serde", "mio", "rusqlite", "libc", "rustix"];

const ARCHITECTURE_LINES_MAX: usize = 300;
/// A word in backquotes that begins so is a path, and has to be there.
const FOLDERS: &[&str] = &["crates/", "xtask/", "web/", "docs/", "tests/", "deploy/"];

pub fn run(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    floors(root, &mut faults)?;
    roles(root, &mut faults)?;
    purity(root, &mut faults)?;
    sources(root, &mut faults)?;
    documents(root, &mut faults)?;
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    if !faults.is_empty() {
        bail!("tidy found {} faults", faults.len());
    }
    println!("tidy: floors, roles, purity, sources and documents hold");
    Ok(())
}

fn floors(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let name = folder.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let Some((_, allowed)) = CRATES.iter().find(|(c, _)| *c == name) else {
            faults.push(format!("crates/{name} has no floor: add it to the table in xtask/src/tidy.rs"));
            continue;
        };
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml"))?.parse()?;
        for section in ["dependencies", "build-dependencies"] {
            let used = manifest.get(section).and_then(|s| s.as_table()).into_iter().flat_map(|t| t.keys());
            for other in used.filter_map(|k| k.strip_prefix("grandstand-")) {
                if !allowed.contains(&other) {
                    faults.push(format!("crates/{name} may not use crates/{other}"));
                }
            }
        }
    }
    Ok(())
}

fn roles(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let src = root.join("crates/server/src");
    for role in ROLES {
        for file in files(&src, "rs")? {
            let inside = file.starts_with(src.join(role)) || file == src.join(format!("{role}.rs"));
            if !inside {
                continue;
            }
            let text = fs::read_to_string(&file)?;
            for (line, word) in named_from_the_top(&text) {
                if word != *role && !SHARED.contains(&word) {
                    let place = file.strip_prefix(root).unwrap_or(&file).display();
                    faults.push(format!("{place}:{line}: {role} may not name crate::{word}"));
                }
            }
        }
    }
    Ok(())
}

/// Every module that a source names by `crate::`, in groups too, with its line.
fn named_from_the_top(text: &str) -> Vec<(usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let first_word = |t: &str| t.find(|c| !is_word(c)).unwrap_or(t.len());
    let mut named = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            named.push((line, &rest[..first_word(rest)]));
            continue;
        };
        let (mut depth, mut expected) = (0, true);
        for (i, c) in group.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => expected = true,
                c if expected && is_word(c) => {
                    named.push((line, &group[i..i + first_word(&group[i..])]));
                    expected = false;
                }
                _ => {}
            }
        }
    }
    named
}

fn purity(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let out = Command::new("cargo")
        .current_dir(root)
        .args(["tree", "-p", "grandstand-core", "-e", "normal,build", "--prefix", "none", "--locked"])
        .output()?;
    if !out.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&out.stderr));
    }
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        if IMPURE.contains(&name) {
            faults.push(format!("the pure rules reach {name}"));
        }
    }
    for file in files(&root.join("crates/core/src"), "rs")? {
        let text = fs::read_to_string(&file)?;
        for word in ["std::net", "std::fs", "std::thread", "std::io", "Instant::now", "SystemTime"] {
            if text.contains(word) {
                faults.push(format!(
                    "{}: the pure rules name {word}",
                    file.strip_prefix(root).unwrap_or(&file).display()
                ));
            }
        }
    }
    Ok(())
}

fn sources(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    for (name, _) in CRATES {
        let src = root.join("crates").join(name).join("src");
        let top = ["lib.rs", "main.rs"].iter().map(|f| src.join(f)).find(|f| f.exists());
        let top = top.with_context(|| format!("crates/{name} has neither lib.rs nor main.rs"))?;
        if !fs::read_to_string(&top)?.contains("#![forbid(unsafe_code)]") {
            faults.push(format!("crates/{name} does not forbid unsafe code"));
        }
    }
    for file in files(&root.join("crates"), "rs")? {
        let place = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if file.file_name().is_some_and(|n| n == "mod.rs") {
            faults.push(format!("{place}: no mod.rs"));
        }
        let text = fs::read_to_string(&file)?;
        if text.contains("#[ignore") {
            faults.push(format!("{place}: an ignored test is a check that skips in silence"));
        }
    }
    Ok(())
}

fn documents(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    for name in ["README.md", "ARCHITECTURE.md", "GLOSSARY.md", "STYLE.md", "CHANGELOG.md", "LICENSE"] {
        if !root.join(name).exists() {
            faults.push(format!("{name} is missing"));
        }
    }
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    if architecture.lines().count() > ARCHITECTURE_LINES_MAX {
        faults.push(format!("ARCHITECTURE.md has more than {ARCHITECTURE_LINES_MAX} lines"));
    }
    let mut pages = files(&root.join("docs"), "md")?;
    pages.extend(
        fs::read_dir(root)?
            .filter_map(|e| e.ok())
            .map(|e| e.path())
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    for page in pages {
        let text = fs::read_to_string(&page)?;
        for link in text.split("](").skip(1).filter_map(|t| t.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let outside = file.is_empty() || file.contains("://") || file.contains(' ');
            if !outside && !page.parent().unwrap_or(root).join(file).exists() {
                faults.push(format!("{}: broken link {link}", page.strip_prefix(root).unwrap_or(&page).display()));
            }
        }
        for named in text.split('`').skip(1).step_by(2).filter(|n| FOLDERS.iter().any(|f| n.starts_with(f))) {
            if !named.contains(['{', '*', ' ']) && !root.join(named).exists() {
                faults.push(format!("{}: there is no {named}", page.strip_prefix(root).unwrap_or(&page).display()));
            }
        }
    }
    Ok(())
}

/// Every file with this extension below `folder`, in a fixed order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::named_from_the_top;

    #[test]
    fn modules_are_found_in_groups_and_over_lines() {
        let text =
            "use crate::link;\nuse crate::{clock, auth::{self, door},\n    shard};\nfn f() { crate::gateway::run() }";
        assert_eq!(named_from_the_top(text), [(1, "link"), (2, "clock"), (2, "auth"), (2, "shard"), (4, "gateway")]);
    }
}
