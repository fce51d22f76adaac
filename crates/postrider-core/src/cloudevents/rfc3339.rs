//! RFC 3339 timestamps, as CloudEvents uses them.
//!
//! Implemented here because the conversion is short, and a calendar library would be the crate's largest dependency.

use crate::{Invalid, limits};
use std::time::{Duration, SystemTime};

const SECONDS_A_DAY: i64 = 24 * 60 * 60;
/// The first second of the year 10000, which four digits cannot write.
const YEAR_10000: i64 = 253_402_300_800;
const YEAR_0: i64 = -62_167_219_200;

/// `time` in UTC with milliseconds, as in `2026-07-14T09:30:00.000Z`. A time outside the years 0 to 9999, which RFC
/// 3339 cannot express, becomes the nearest one that it can.
pub fn format(time: SystemTime) -> String {
    let millis = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        // Rounded down like the others, so that the order of times stays.
        Err(before) => -i64::try_from(before.duration().as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX),
    }
    .clamp(YEAR_0 * 1000, YEAR_10000 * 1000 - 1);
    let (seconds, millis) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_A_DAY));
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // By hand, because every sent message has a timestamp, and a formatter takes ten times as long.
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let parts = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, hour),
        (14..16, minute),
        (17..19, second),
        (20..23, millis),
    ];
    for (place, number) in parts {
        put_digits(&mut text[place], number);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes the last digits of a number, as many as fit.
fn put_digits(digits: &mut [u8], mut number: i64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789"[(number % 10).unsigned_abs() as usize];
        number /= 10;
    }
}

/// Parses a timestamp with any offset and any number of decimals; beyond nanoseconds they are cut off.
///
/// # Errors
/// When it is not an RFC 3339 timestamp, or the day does not exist.
pub fn parse(text: &str) -> Result<SystemTime, Invalid> {
    instant(text).ok_or_else(|| {
        let text = limits::truncated(text, 40);
        Invalid::rule("time", format!("{text:?} is not a time such as 2026-07-14T09:30:00.000Z"))
    })
}

fn instant(text: &str) -> Option<SystemTime> {
    let (date_time, rest) = text.split_at_checked(19)?;
    let fits = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte.to_ascii_uppercase() == form,
    };
    if !date_time.bytes().zip(*b"0000-00-00T00:00:00").all(fits) {
        return None;
    }
    let field = |from: usize, to: usize| date_time.get(from..to)?.parse::<i64>().ok();
    let date = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let days = days(date);
    // Second 60 is a leap second. A day that does not exist comes back as another one.
    if hour > 23 || minute > 59 || second > 60 || civil(days) != date {
        return None;
    }

    let (nanos, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let (digits, offset) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
            if digits.is_empty() {
                return None;
            }
            (format!("{digits:0<9.9}").parse().ok()?, offset)
        }
    };
    let offset = match offset.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
            if [h1, h2, m1, m2].into_iter().all(u8::is_ascii_digit) =>
        {
            let two = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            let (hours, minutes) = (two(*h1, *h2), two(*m1, *m2));
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };

    let seconds = days * SECONDS_A_DAY + hour * 3600 + minute * 60 + second - offset;
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    whole?.checked_add(Duration::from_nanos(nanos))
}

/// Days from 1 March of the year 0, from which leap days come last, to 1 January 1970.
const DAYS_TO_1970: i64 = 719_468;
/// Days in the 400 years after which the calendar repeats.
const DAYS_AN_ERA: i64 = 146_097;

/// The Gregorian year, month and day for a number of days after 1 January 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let (era, day) = (days.div_euclid(DAYS_AN_ERA), days.rem_euclid(DAYS_AN_ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months counted from March: their lengths repeat every five, 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

/// The inverse of [`civil`].
fn days((year, month, day): (i64, i64, i64)) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * DAYS_AN_ERA + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64, nanos: u32) -> SystemTime {
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let whole = match seconds {
            0.. => SystemTime::UNIX_EPOCH + distance,
            _ => SystemTime::UNIX_EPOCH - distance,
        };
        whole + Duration::from_nanos(nanos.into())
    }

    #[test]
    fn format_of_known_times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_078_012_800, "2004-02-29T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_772_323_200, "2026-03-01T00:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (1_483_228_799, "2016-12-31T23:59:59.000Z"),
            (YEAR_10000 - 1, "9999-12-31T23:59:59.000Z"),
            (YEAR_0, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(format(at(seconds, 0)), expected);
            assert_eq!(parse(expected), Ok(at(seconds, 0)));
        }
        assert_eq!(format(at(YEAR_10000, 0)), "9999-12-31T23:59:59.999Z");
        assert_eq!(format(at(YEAR_0 - 1, 0)), "0000-01-01T00:00:00.000Z");
        assert_eq!(format(at(-1, 999_999_999)), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn parse_accepts_offsets_and_decimals() {
        let noon = parse("2024-02-29T12:00:00Z").unwrap();
        for same in [
            "2024-02-29t12:00:00z",
            "2024-02-29T12:00:00.0Z",
            "2024-02-29T13:30:00+01:30",
            "2024-02-28T23:00:00.000-13:00",
            "2024-02-29T11:59:60Z",
        ] {
            assert_eq!(parse(same), Ok(noon), "{same}");
        }
        let precise = parse("2024-02-29T12:00:00.123456789987Z").unwrap();
        assert_eq!(precise, noon + Duration::from_nanos(123_456_789));
        for wrong in [
            "",
            "2024-02-29",
            "2024-02-29T12:00:00",
            "2023-02-29T12:00:00Z",
            "2100-02-29T12:00:00Z",
            "2024-00-01T12:00:00Z",
            "2024-13-01T12:00:00Z",
            "2024-01-00T12:00:00Z",
            "2024-04-31T12:00:00Z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T12:60:00Z",
            "2024-02-29T12:00:61Z",
            "2024-02-29T12:00:00.Z",
            "2024-02-29T12:00:00.5",
            "2024-02-29T12:00:00+0100",
            "2024-02-29T12:00:00+24:00",
            "2024-02-29T12:00:00+01:60",
            "2024-02-29T12:00:00ZZ",
            "+024-02-29T12:00:00Z",
            "2024-02-29T12:00:0éZ",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_millisecond_round_trips_and_sorts(
            a in YEAR_0..YEAR_10000, b in YEAR_0..YEAR_10000, millis in 0..1000_u32,
        ) {
            let time = at(a, millis * 1_000_000);
            prop_assert_eq!(parse(&format(time)), Ok(time));
            prop_assert_eq!(format(time) < format(at(b, 0)), time < at(b, 0));
        }

        #[test]
        fn days_follow_one_another(day in -800_000..3_000_000_i64) {
            let (today, tomorrow) = (civil(day), civil(day + 1));
            prop_assert_eq!(days(today), day);
            let (year, month, of_month) = today;
            let follows = [(year, month, of_month + 1), (year, month + 1, 1), (year + 1, 1, 1)].contains(&tomorrow);
            prop_assert!(follows, "{:?} is followed by {:?}", today, tomorrow);
        }

        #[test]
        fn any_time_can_be_written(time: SystemTime) {
            prop_assert_eq!(format(time).len(), 24);
        }

        #[test]
        fn reading_never_panics(
            text: String, likely in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}.{0,8}",
        ) {
            let _ = parse(&text);
            let _ = parse(&likely);
        }
    }
}
