//! What recordings write as money: "CA$10.00", "¥1,000", "CLP 2,500".

/// The currency and the amount in millionths of it.
/// Errors: `None` for a text that is no amount of a known sign or code.
pub(super) fn parse(text: &str) -> Option<(String, u64)> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_digit())?;
    let (sign, number) = text.split_at(at);
    let currency = match sign.trim() {
        "$" | "US$" => "USD",
        "CA$" => "CAD",
        "A$" | "AU$" => "AUD",
        "NZ$" => "NZD",
        "HK$" => "HKD",
        "NT$" => "TWD",
        "MX$" => "MXN",
        "R$" => "BRL",
        "£" => "GBP",
        "€" => "EUR",
        "¥" | "￥" => "JPY",
        "₩" => "KRW",
        "₹" => "INR",
        "₱" => "PHP",
        code if code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase()) => code,
        _ => return None,
    };
    Some((currency.to_owned(), micros(number)?))
}

/// Decimal text with at most six places and commas between thousands.
pub(super) fn micros(number: &str) -> Option<u64> {
    let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let whole: u64 = whole.replace(',', "").parse().ok()?;
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn signs_codes_and_thousands_are_read() {
        for (text, currency, micros) in [
            ("$0.99", "USD", 990_000),
            ("CA$10.00", "CAD", 10_000_000),
            ("¥1,000", "JPY", 1_000_000_000),
            ("CLP\u{a0}2,500", "CLP", 2_500_000_000),
            ("PLN 25.00", "PLN", 25_000_000),
            ("€2.00", "EUR", 2_000_000),
        ] {
            assert_eq!(parse(text), Some((currency.to_owned(), micros)), "{text}");
        }
        for bad in ["", "free", "12", "?5.00", "$5.0000001", "$5.x", "$99999999999999999999"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
