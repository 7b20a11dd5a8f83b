//! Sizes on the command line.

/// Parse a length in bytes, or with K, M or G for the powers of 1024.
///
/// # Errors
/// A sentence if the text is not such a length.
pub fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("at most one of K, M and G".to_owned()),
    };
    let number: usize =
        digits.parse().map_err(|_| "not a number of bytes, like 65536 or 64K".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(
            [size("7"), size("64K"), size("2M"), size("1G")].map(Result::unwrap),
            [7, 65536, 2 << 20, 1 << 30]
        );
        for wrong in ["", "K", "64Q", "64KM", "-1", "18014398509481984K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
