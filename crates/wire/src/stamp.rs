//! Times on the wire: RFC 3339 in UTC with milliseconds, `2026-05-17T20:14:33.122Z`. Fields that end in `ts` are this;
//! fields that end in `_ms` are plain numbers.

use grandstand_core::time::Wall;

/// Writes 24 bytes. Years after 9999 are written as the last millisecond of 9999, so the form never changes.
pub fn write(at: Wall, out: &mut Vec<u8>) {
    // 9999-12-31T23:59:59.999Z
    const LAST: u64 = 253_402_300_799_999;
    let ms = at.0.min(LAST);
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    digits(&mut text[0..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], rest / 3_600_000);
    digits(&mut text[14..16], rest / 60_000 % 60);
    digits(&mut text[17..19], rest / 1000 % 60);
    digits(&mut text[20..23], rest % 1000);
    out.extend_from_slice(&text);
}

pub fn text(at: Wall) -> String {
    let mut out = Vec::with_capacity(24);
    write(at, &mut out);
    String::from_utf8(out).expect("digits and marks are ASCII")
}

/// Reads the form that [`write()`] writes; the fraction may have 0 to 9 digits, of which three count.
/// Errors: `None` for any other form, an impossible date, or a time before 1970.
pub fn parse(text: &str) -> Option<Wall> {
    let b = text.as_bytes();
    if b.len() < 20 || b.len() > 30 || b[4] != b'-' || b[7] != b'-' || b[10] != b'T' || b[13] != b':' || b[16] != b':' {
        return None;
    }
    let fraction = match &b[19..] {
        [b'Z'] => 0,
        [b'.', digits @ .., b'Z'] if !digits.is_empty() => {
            let three: Vec<u8> = digits.iter().copied().chain(*b"00").take(3).collect();
            if digits.iter().any(|d| !d.is_ascii_digit()) {
                return None;
            }
            number(&three)?
        }
        _ => return None,
    };
    let (year, month, day) = (number(&b[0..4])?, number(&b[5..7])?, number(&b[8..10])?);
    let (hour, minute, second) = (number(&b[11..13])?, number(&b[14..16])?, number(&b[17..19])?);
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before(year, month) + day.checked_sub(1)?;
    // The day exists when it gives itself back.
    (civil(days) == (year, month, day))
        .then(|| Wall((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000 + fraction))
}

fn digits(out: &mut [u8], mut n: u64) {
    for d in out.iter_mut().rev() {
        *d = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + u64::from(d - b'0')))
}

/// Year, month and day of a day counted from 1970-01-01. Source: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`; years start in March so that the leap day is the last.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to the first of the month. Source: as [`civil`], `days_from_civil`.
fn days_before(year: u64, month: u64) -> u64 {
    let y = year - u64::from(month <= 2);
    let (era, yoe) = (y / 400, y % 400);
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * mp + 2) / 5;
    era * 146_097 + doe - 719_468
}

#[cfg(test)]
mod tests {
    use grandstand_core::time::Wall;
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::{parse, text};

    #[test]
    fn known_moments_are_written_as_known() {
        for (ms, form) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_779_048_873_122, "2026-05-17T20:14:33.122Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(Wall(ms)), form);
            assert_eq!(parse(form), Some(Wall(ms)));
        }
        assert_eq!(text(Wall(u64::MAX)), "9999-12-31T23:59:59.999Z");
        assert_eq!(parse("2026-05-17T20:14:33Z"), Some(Wall(1_779_048_873_000)));
        assert_eq!(parse("2026-05-17T20:14:33.1Z"), Some(Wall(1_779_048_873_100)));
    }

    #[test]
    fn other_forms_and_impossible_days_are_refused() {
        for bad in [
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01T00:00:00.Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00.00é",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_millisecond_survives(ms in 0u64..=253_402_300_799_999) {
            prop_assert_eq!(parse(&text(Wall(ms))), Some(Wall(ms)));
        }
    }
}
