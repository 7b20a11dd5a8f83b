//! Base64 as RFC 4648 has it, for the histogram in the closing line.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes as text, padded to a multiple of four letters.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.chunks(3).flat_map(group).collect()
}

fn group(bytes: &[u8]) -> [char; 4] {
    let byte = |place: usize| u32::from(bytes.get(place).copied().unwrap_or_default());
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    let letter = |place: usize| {
        let index = (bits >> (18 - 6 * place)) & 63;
        if place > bytes.len() {
            '='
        } else {
            char::from(LETTERS[index as usize])
        }
    };
    [letter(0), letter(1), letter(2), letter(3)]
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn agrees_with_the_examples_of_the_rfc() {
        let expected = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, text) in expected.iter().enumerate() {
            assert_eq!(encode(&b"foobar"[..len]), *text);
        }
    }
}
