//! Variables as a call sends them. Reading them fails for nothing: serde's errors repeat what they refuse.

use std::{collections::BTreeMap, fmt};

use rollhook_core::{
    configuration::{VARIABLE_BYTES_MAX, VARIABLES_MAX, Variable, VariableName},
    request::{Field, Refusal},
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap,
};

/// The pattern of a variable's name, but for the names that the platform sets.
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_]{0,252}$";

/// The variables that a call sets.
#[derive(Clone, Default)]
pub struct PostedVariables(Vec<(String, PostedVariable)>);

/// A variable that a call sets, or what stands in its place.
#[derive(Clone)]
pub struct PostedVariable(Option<Variable>);

impl PostedVariables {
    /// Returns these variables.
    pub fn new(variables: impl IntoIterator<Item = (String, Variable)>) -> Self {
        Self(variables.into_iter().map(|(name, variable)| (name, PostedVariable(Some(variable)))).collect())
    }

    /// Returns the variables by their names.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub(super) fn parse(self) -> Result<BTreeMap<VariableName, Variable>, Refusal> {
        let mut variables = BTreeMap::new();
        for (text, PostedVariable(variable)) in self.0 {
            let name = super::name(Field::Set, &text)?;
            let refuse = |why| Err(Refusal::InvalidField(Field::Set, format!("{name} {why}.")));
            let Some(variable) = variable else {
                return refuse("must be a text, or an object with the text \"value\" and the flag \"plain\"");
            };
            if variables.contains_key(&name) {
                return refuse("is there more than once");
            }
            variables.insert(name, variable);
        }
        Ok(variables)
    }
}

impl fmt::Debug for PostedVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Serialize for PostedVariables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, variable)| (name, variable)))
    }
}

impl Serialize for PostedVariable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            None => serializer.serialize_unit(),
            Some(variable) if !variable.is_plain => serializer.serialize_str(variable.expose()),
            Some(variable) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("value", variable.expose())?;
                map.serialize_entry("plain", &true)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for PostedVariables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Names)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = PostedVariables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of variables")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PostedVariables, A::Error> {
        let mut variables = Vec::new();
        while let Some(entry) = map.next_entry()? {
            variables.push(entry);
        }
        Ok(PostedVariables(variables))
    }
}

impl<'de> Deserialize<'de> for PostedVariable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value { in_object: false }.deserialize(deserializer).map(Self)
    }
}

/// Reads the value of a variable, by itself or in an object.
#[derive(Clone, Copy)]
struct Value {
    in_object: bool,
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Option<Variable>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Variable>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Option<Variable>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_str<E>(self, value: &str) -> Result<Option<Variable>, E> {
        Ok(Some(Variable::new(value.to_owned(), false)))
    }

    fn visit_string<E>(self, value: String) -> Result<Option<Variable>, E> {
        Ok(Some(Variable::new(value, false)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<Variable>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<Variable>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<Variable>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<Variable>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<Variable>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Variable>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Variable>, A::Error> {
        let (mut value, mut plain, mut is_sound) = (None, None, true);
        while let Some(member) = map.next_key::<String>()? {
            match member.as_str() {
                "value" if value.is_none() && !self.in_object => {
                    value = Some(map.next_value_seed(Self { in_object: true })?);
                }
                "plain" if plain.is_none() => plain = Some(map.next_value::<Flag>()?.0),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    is_sound = false;
                }
            }
        }
        let (Some(Some(mut variable)), Some(is_plain), true) = (value, plain.unwrap_or(Some(false)), is_sound) else {
            return Ok(None);
        };
        variable.is_plain = is_plain;
        Ok(Some(variable))
    }
}

/// A flag, or what stands in its place.
struct Flag(Option<bool>);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Posted {
            Flag(bool),
            Other(IgnoredAny),
        }
        Ok(match Posted::deserialize(deserializer)? {
            Posted::Flag(flag) => Self(Some(flag)),
            Posted::Other(IgnoredAny) => Self(None),
        })
    }
}

/// Returns the schema of the variables that a call sets.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    let text = || {
        // Of characters, which have up to four bytes: the bound counts bytes.
        json_schema!({ "type": "string", "maxLength": VARIABLE_BYTES_MAX, "pattern": "^[^\\u0000]*$" }).to_value()
    };
    let members = serde_json::json!({ "value": text(), "plain": { "type": "boolean" } });
    let object = serde_json::json!({
        "type": "object", "required": ["value"], "additionalProperties": false, "properties": members
    });
    json_schema!({
        "type": "object",
        "maxProperties": VARIABLES_MAX,
        "propertyNames": { "pattern": NAME, "not": { "pattern": "^(ROLLHOOK|KUBERNETES)_" } },
        "additionalProperties": { "oneOf": [text(), object] }
    })
}

/// Returns the schema of the names that a call removes.
pub(super) fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string", "pattern": NAME }, "maxItems": VARIABLES_MAX })
}
