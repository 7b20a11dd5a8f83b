//! Sizes with an unambiguous unit.

/// A unit as it is typed, and its bytes.
const UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// A smaller file holds no queue of large blocks.
const LEAST_BYTES: u64 = 16 << 20;

/// Parse a size such as `256MiB`. Returns bytes, rounded down to whole MiB.
///
/// # Errors
/// A sentence if it has no such unit or is too small.
pub fn parse_size_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)))
        .ok_or("write a number and a unit, as in 256MiB or 2GB")?;
    let count: u64 =
        number.trim().parse().map_err(|_| "write a whole number before the unit".to_owned())?;
    let bytes = count.checked_mul(unit).ok_or("that is more than any disk holds")? >> 20 << 20;
    if bytes < LEAST_BYTES {
        return Err("at least 16MiB".to_owned());
    }
    Ok(bytes)
}

/// Format a size for humans.
pub fn shown(bytes: u64) -> String {
    if bytes >= 1 << 30 {
        return format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64);
    }
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_bases_differ() {
        assert_eq!(parse_size_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size_bytes("2GiB"), Ok(2 << 30));
        assert_eq!(
            parse_size_bytes("64MB"),
            Ok(61 << 20),
            "in whole MiB, so that a block of 1 MiB always fits"
        );
        assert!(parse_size_bytes("2GB") < parse_size_bytes("2GiB"));
    }

    #[test]
    fn a_size_without_a_clear_unit_is_refused() {
        for wrong in ["1G", "1024", "GiB", "-1GiB", "1.5GiB", "1MiB", "99999999999999GiB", ""] {
            assert!(parse_size_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
