//! The server's own counters, from `/metrics`: read while storms go on, and held against what the viewers of a run saw.

use anyhow::Result;

use crate::http::Http;
use crate::report::Check;
use crate::viewers::Seen;

/// The metrics at one moment.
pub struct Page(String);

impl Page {
    /// `None` when the server does not show its metrics here.
    pub fn read(http: &mut Http) -> Result<Option<Page>> {
        let (status, page) = http.call("GET", "/metrics", "", "")?;
        let page = Page(String::from_utf8_lossy(&page).into_owned());
        Ok((status == 200 && page.sum("grandstand_gateway_streams_admitted_total", "").is_some()).then_some(page))
    }

    /// A family's value, over all lines (several gateways have one each) that hold `label`.
    pub fn sum(&self, name: &str, label: &str) -> Option<u64> {
        let mut lines = self
            .0
            .lines()
            .filter(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && l.contains(label))
            .filter_map(|l| l.rsplit_once(' ')?.1.parse::<u64>().ok());
        lines.next().map(|first| first + lines.sum::<u64>())
    }

    pub fn count(&self, name: &str, label: &str) -> u64 {
        self.sum(name, label).unwrap_or(0)
    }
}

/// Counters of drops and deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    pub gave: u64,
    pub skipped: u64,
    pub priority_lost: u64,
    pub assertions: u64,
}

impl Books {
    pub fn of(page: &Page) -> Books {
        let gave = |lane| page.count("grandstand_gateway_delivered_total", lane);
        Books {
            gave: gave("lane=\"comment\"") + gave("lane=\"priority\""),
            skipped: page.count("grandstand_gateway_skipped_total", ""),
            priority_lost: page.count("grandstand_gateway_priority_lost_total", ""),
            assertions: page.count("grandstand_gateway_assertions_failed_total", ""),
        }
    }

    /// What came to this run and is not in the books. Others may use the server meanwhile, and a frame may be lost with its
    /// connection, so the server's counts may be higher than the viewers', and never lower.
    pub fn checks(before: Books, after: Books, seen: &[Seen]) -> [Check; 4] {
        let sum = |member: fn(&Seen) -> u64| seen.iter().map(member).sum::<u64>();
        let missing = |saw: u64, before: u64, after: u64| saw.saturating_sub(after.saturating_sub(before));
        [
            Check {
                name: "events given that the server did not count",
                failed: missing(sum(|s| s.delivered), before.gave, after.gave),
            },
            Check {
                name: "comments told as skipped that the server did not count",
                failed: missing(sum(|s| s.skipped), before.skipped, after.skipped),
            },
            Check {
                name: "priority events that the server says it lost",
                failed: after.priority_lost.saturating_sub(before.priority_lost),
            },
            Check {
                name: "assertions of the server that failed",
                failed: after.assertions.saturating_sub(before.assertions),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{Books, Page};
    use crate::viewers::Seen;

    #[test]
    fn counters_of_several_gateways_are_added_and_others_are_not_taken_for_them() {
        let page = Page(
            "grandstand_gateway_streams_admitted_total{gateway=\"a\"} 3\ngrandstand_gateway_streams_admitted_total{gateway=\"b\"} 4\n\
             grandstand_gateway_streams_admitted_total_more 9\ngrandstand_gateway_resumes_total{answer=\"ring\"} 5\n"
                .to_owned(),
        );
        assert_eq!(page.sum("grandstand_gateway_streams_admitted_total", ""), Some(7));
        assert_eq!(page.count("grandstand_gateway_resumes_total", "answer=\"ring\""), 5);
        assert_eq!(page.sum("grandstand_gateway_admission_rate", ""), None);
    }

    #[test]
    fn a_delivery_or_a_skip_beside_the_books_is_found_and_another_clients_is_not_asked_about() {
        let seen = [Seen { delivered: 10, skipped: 3, ..Seen::default() }];
        let failed = |after: Books| Books::checks(Books::default(), after, &seen).map(|c| c.failed);
        assert_eq!(failed(Books { gave: 12, skipped: 3, ..Books::default() }), [0, 0, 0, 0]);
        assert_eq!(failed(Books { gave: 9, skipped: 1, priority_lost: 1, assertions: 2 }), [1, 2, 1, 2]);
    }
}
