//! Amounts of money as people write them.

/// Millionths of a currency in its own units: no decimals, two, or as many as it needs.
pub fn text(micros: u64) -> String {
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    if part == 0 {
        return whole.to_string();
    }
    let digits = format!("{part:06}");
    format!("{whole}.{:0<2}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn amounts_are_exact() {
        for (micros, wanted) in [(0, "0"), (5_000_000, "5"), (2_500_000, "2.50"), (1, "0.000001"), (1_230_000, "1.23")]
        {
            assert_eq!(text(micros), wanted);
        }
    }
}
