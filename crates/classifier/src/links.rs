//! Links in a text: which words are addresses of the web, and of which hosts.
//!
//! An address is a word with a scheme or `www.`, or a host name that ends in one of the common top-level names or is followed by a
//! path. What looks like one through look-alikes is one too, but only a host in plain ASCII can be on the list of allowed ones.

use std::sync::Arc;

use crate::fold;

/// What is done with links.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Links {
    #[default]
    Allow,
    /// All but those of these hosts and what is below them.
    Deny(Vec<Arc<str>>),
}

impl Links {
    /// The first link that is not allowed.
    pub fn denied(&self, text: &str) -> Option<String> {
        let Links::Deny(allowed) = self else { return None };
        let words = text.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '(' | ')' | '[' | ']'));
        words.filter(|word| word.contains(['.', ':', '。', '．', '｡'])).find_map(|word| {
            let folded: String =
                fold::letters(word).into_iter().map(|c| if c == '。' || c == '｡' { '.' } else { c }).collect();
            let host = host_of(&folded)?;
            let is_allowed = word.is_ascii() && allowed.iter().any(|domain| is_below(host, domain));
            (!is_allowed).then(|| host.to_owned())
        })
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The host of a word that is a link.
fn host_of(word: &str) -> Option<&str> {
    let word = word.trim_matches(|c: char| matches!(c, ',' | ';' | '!' | '?' | '\'' | '*' | '_' | '~' | '.'));
    let (scheme, rest) = match word.find("://") {
        Some(at) => (true, &word[at + 3..]),
        None => (false, word),
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // Whoever stands before the last @ is not the host.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    if host.is_empty() {
        return None;
    }
    let mut labels = host.rsplit('.');
    let top = labels.next().unwrap_or_default();
    let is_name = |label: &str| {
        (1..=63).contains(&label.len()) && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    let n_labels = 1 + labels.clone().count();
    let is_host = n_labels >= 2 && is_name(top) && labels.all(is_name);
    let is_link = scheme
        || is_host
            && (host.starts_with("www.")
                || TOP.binary_search(&top).is_ok()
                || tail.starts_with('/') && top.len() >= 2 && top.chars().all(char::is_alphabetic));
    is_link.then_some(host)
}

/// Top-level names by which a host without a scheme is taken for one: common in links, and no words that follow a full stop
/// without a space (which is why `is`, `it`, `in`, `so`, `to` and `no` are not here). Sorted.
const TOP: &[&str] = &[
    "ai", "app", "at", "biz", "blog", "br", "ca", "casino", "cc", "ch", "click", "club", "cn", "co", "com", "cz", "de",
    "dev", "dk", "edu", "es", "eu", "fi", "fm", "fr", "games", "gg", "gl", "gov", "hu", "info", "io", "jp", "kr",
    "link", "live", "ly", "me", "mobi", "mx", "net", "nl", "online", "org", "ph", "pl", "porn", "pro", "pw", "ro",
    "ru", "se", "sh", "shop", "site", "sk", "space", "store", "stream", "su", "tech", "tk", "top", "tr", "tv", "ua",
    "uk", "us", "vip", "website", "win", "wtf", "xxx", "xyz", "za",
];

#[cfg(test)]
mod tests {
    use super::{Links, TOP};

    fn deny() -> Links {
        Links::Deny(vec!["example.com".into(), "league.org".into()])
    }

    #[test]
    fn links_are_found_with_and_without_a_scheme() {
        for text in [
            "see http://evil.net/x",
            "HTTPS://EVIL.NET",
            "www.evil.zone",
            "go to evil.com now",
            "(evil.tv)",
            "t.me/spam",
            "bit.ly/abc?x",
            "evil.whatever/path",
            "http://example.com@evil.net/",
            "http://evil.net:8080",
            "ｅｖｉｌ．ｃｏｍ",
            "evil。com",
            "http://127.0.0.1/",
            "notexample.com",
            "ехample.com",
        ] {
            assert!(deny().denied(text).is_some(), "{text}");
        }
    }

    #[test]
    fn allowed_hosts_and_what_is_below_them_pass() {
        for text in ["https://example.com/x", "www.example.com", "a.b.league.org/x", "example.com.", "see example.com!"]
        {
            assert_eq!(deny().denied(text), None, "{text}");
        }
    }

    #[test]
    fn what_people_write_without_a_space_is_no_link() {
        for text in [
            "what a goal.it was great",
            "3.14",
            "hello...world",
            "e.g.",
            "no.thanks",
            "10:30",
            "a.b",
            "v1.2.3",
            "ok.",
            ":)",
        ] {
            assert_eq!(deny().denied(text), None, "{text}");
        }
        assert_eq!(Links::Allow.denied("http://evil.net"), None);
    }

    #[test]
    fn top_level_names_are_sorted() {
        assert!(TOP.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
