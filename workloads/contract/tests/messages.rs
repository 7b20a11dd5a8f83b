//! The messages of `pagecage-workload` are JSON with the values that they were given. The test is
//! here because that crate has no dependencies.

use pagecage_workload::{Object, Value};
use proptest::prelude::*;

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|pairs| {
                let filled = pairs
                    .into_iter()
                    .fold(Object::new(), |object, (name, value)| object.with(&name, value));
                Value::from(filled)
            }),
        ]
    })
}

/// Whether every number can be expressed in JSON.
fn is_finite(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_finite(),
        Value::Array(values) => values.iter().all(is_finite),
        Value::Object(object) => object.clone().into_iter().all(|(_, value)| is_finite(&value)),
        _ => true,
    }
}

fn expected(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => value.into(),
        Value::Integer(value) => u64::try_from(value)
            .map_or_else(|_| i64::try_from(value).unwrap().into(), serde_json::Value::from),
        // serde_json may differ from the standard library in the last digit
        Value::Number(value) => serde_json::from_str(&format!("{value:?}")).unwrap(),
        Value::Text(value) => value.into(),
        Value::Array(values) => values.into_iter().map(expected).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(name, value)| (name, expected(value))).collect()
        }
    }
}

proptest! {
    #[test]
    fn a_message_is_one_line_with_what_it_was_given(name: String, value in values()) {
        let text = Object::new().with(&name, value.clone()).text();
        prop_assert_eq!(text.is_ok(), is_finite(&value));
        if let Ok(text) = text {
            prop_assert!(!text.contains('\n'));
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read[&name], &expected(value));
        }
    }
}
