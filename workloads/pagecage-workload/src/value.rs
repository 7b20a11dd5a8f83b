//! JSON values, and their text on one line.

use crate::Failure;
use std::fmt::Write;

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A figure that there is not.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a fraction; it must be finite when it is printed.
    Number(f64),
    /// Text.
    Text(String),
    /// Several values.
    Array(Vec<Value>),
    /// Values by name.
    Object(Object),
}

macro_rules! from {
    ($($kind:ident: $($source:ty),+;)+) => {$($(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$kind(value.into())
            }
        }
    )+)+};
}

from! {
    Bool: bool;
    Integer: i32, i64, u32, u64;
    Number: f32, f64;
    Text: &str, String;
    Array: Vec<Value>;
    Object: Object;
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Integer(value as i128)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Values by name, in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(Vec<(String, Value)>);

impl Object {
    /// Create an empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a value. One of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Return a message of the handshake. The content cannot replace its type.
    pub(crate) fn message(kind: &str, content: Self) -> Self {
        let own = content.0.into_iter().filter(|(name, _)| name != "type");
        Self(std::iter::once(("type".to_owned(), kind.into())).chain(own).collect())
    }

    /// Return the JSON text, on one line.
    ///
    /// # Errors
    /// If a number is not finite, which JSON cannot express.
    pub fn text(&self) -> Result<String, Failure> {
        let mut text = String::new();
        self.write(&mut text)?;
        Ok(text)
    }

    fn write(&self, text: &mut String) -> Result<(), Failure> {
        text.push('{');
        for (place, (name, value)) in self.0.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            quote(name, text);
            text.push(':');
            value.write(name, text)?;
        }
        text.push('}');
        Ok(())
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Value {
    /// Append the JSON text. `name` is for errors.
    fn write(&self, name: &str, text: &mut String) -> Result<(), Failure> {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Integer(value) => text.push_str(&value.to_string()),
            Self::Number(value) if value.is_finite() => {
                let _ = write!(text, "{value:?}"); // a String never fails
            }
            Self::Number(value) => {
                let why = format!("`{name}` is {value}, which is not a number in JSON");
                return Err(Failure::Failed(why));
            }
            Self::Text(value) => quote(value, text),
            Self::Array(values) => write_array(name, values, text)?,
            Self::Object(object) => object.write(text)?,
        }
        Ok(())
    }
}

fn write_array(name: &str, values: &[Value], text: &mut String) -> Result<(), Failure> {
    text.push('[');
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        value.write(name, text)?;
    }
    text.push(']');
    Ok(())
}

/// Append a JSON string.
fn quote(value: &str, text: &mut String) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character)); // a String never fails
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_has_its_text() {
        let object = Object::new()
            .with("none", None::<u64>)
            .with("yes", true)
            .with("largest", u64::MAX)
            .with("least", i64::MIN)
            .with("half", 0.5)
            .with("small", 1e-9)
            .with("word", "a \"b\"\n")
            .with("several", vec![Value::from(1), Value::from("x")])
            .with("inner", Object::new());
        let expected = "{\"none\":null,\"yes\":true,\"largest\":18446744073709551615,\
            \"least\":-9223372036854775808,\"half\":0.5,\"small\":1e-9,\"word\":\"a \\\"b\\\"\\u000a\",\
            \"several\":[1,\"x\"],\"inner\":{}}";
        assert_eq!(object.text().unwrap(), expected);
    }

    #[test]
    fn a_number_that_json_lacks_is_named() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let object = Object::new().with("response", Object::new().with("speed", number));
            let refusal = object.text().unwrap_err();
            assert_eq!(refusal.exit_code(), 1);
            assert!(refusal.to_string().starts_with("`speed` is "), "{refusal}");
        }
    }

    #[test]
    fn a_name_is_there_once_and_the_type_is_the_messages() {
        let content = Object::new().with("type", "mine").with("n", 1).with("n", 2);
        let text = Object::message("sample", content).text().unwrap();
        assert_eq!(text, "{\"type\":\"sample\",\"n\":2}");
    }
}
