//! The values that a configuration may hold, each refusing what is outside its range as it is read.
//!
//! A refusal is a message of the form `reason, expected remedy`, as serde's own are: the path of the
//! key is added where the text is read. Ranges live in the types, so the schema states them too.

use core::fmt;
use core::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

pub use super::text_value::*;

/// A key that may be left out. `null` is not a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Given<T>(pub Option<T>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(|value| Self(Some(value)))
    }
}

/// A struct written as a JSON object; serde alone would also take a list of its fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<T>(pub T);

/// An object that may be left out.
pub type Section<T> = Given<Object<T>>;

impl<T: Clone + Default> Section<T> {
    /// The section as written; its default when the text does not name it.
    pub fn fields(&self) -> T {
        self.0
            .as_ref()
            .map(|object| object.0.clone())
            .unwrap_or_default()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// One of an enum's words; serde alone would also take an object with the word as its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Word<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Name<T> {
            type Value = T;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
                T::deserialize(StrDeserializer::new(word))
            }
        }
        from.deserialize_str(Name(PhantomData)).map(Self)
    }
}

/// A list with `MIN` to `MAX` entries.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T, const MIN: usize, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for List<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T, const MIN: usize, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Visitor<'de>
            for Entries<T, MIN, MAX>
        {
            type Value = Vec<T>;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                write!(out, "a list of {MIN} to {MAX} entries")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    entries.push(entry);
                    if entries.len() > MAX {
                        break;
                    }
                }
                if (MIN..=MAX).contains(&entries.len()) {
                    return Ok(entries);
                }
                let wrong = if entries.len() < MIN {
                    "too few entries"
                } else {
                    "too many entries"
                };
                Err(A::Error::custom(format_args!(
                    "{wrong}, expected a list of {MIN} to {MAX} entries"
                )))
            }
        }
        from.deserialize_seq(Entries::<T, MIN, MAX>(PhantomData))
            .map(Self)
    }
}

/// A whole number from `MIN` to `MAX`. `32.0` is one: control planes that keep numbers as doubles
/// may spell it so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number where `MAX` is below 2^32.
    pub fn get_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        whole(from, MIN, MAX).map(Self)
    }
}

/// Never inlined, as its like below: one copy serves all ranges.
#[inline(never)]
fn whole<'de, D: Deserializer<'de>>(from: D, min: u64, max: u64) -> Result<u64, D::Error> {
    from.deserialize_u64(WholeVisitor { min, max })
}

struct WholeVisitor {
    min: u64,
    max: u64,
}

impl WholeVisitor {
    fn refuse<E: Error>(&self, reason: &str) -> E {
        E::custom(format_args!(
            "{reason}, expected a whole number from {} to {}",
            self.min, self.max
        ))
    }
}

impl Visitor<'_> for WholeVisitor {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "a whole number from {} to {}", self.min, self.max)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if (self.min..=self.max).contains(&value) {
            Ok(value)
        } else {
            Err(self.refuse("out of range"))
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(self.refuse("out of range")),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked just above the cast
    fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
        if value.fract() != 0.0 {
            Err(self.refuse("not a whole number"))
        } else if (0.0..=9e15).contains(&value) {
            self.visit_u64(value as u64)
        } else {
            Err(self.refuse("out of range"))
        }
    }
}

#[inline(never)]
fn number<'de, D: Deserializer<'de>>(
    from: D,
    expected: &'static str,
    allowed: fn(f64) -> bool,
) -> Result<f64, D::Error> {
    from.deserialize_f64(NumberVisitor { expected, allowed })
}

struct NumberVisitor {
    expected: &'static str,
    allowed: fn(f64) -> bool,
}

impl Visitor<'_> for NumberVisitor {
    type Value = f64;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        if (self.allowed)(value) {
            Ok(value)
        } else {
            let expected = self.expected;
            Err(E::custom(format_args!("out of range, expected {expected}")))
        }
    }

    #[allow(clippy::cast_precision_loss)] // a weight or share keeps 53 bits
    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }

    #[allow(clippy::cast_precision_loss)]
    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }
}

macro_rules! number_value {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name(pub f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                number(from, $expected, $allowed).map(Self)
            }
        }
    };
}

number_value!(
    /// A share of a whole: 0 to 1.
    Share, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value)
);
number_value!(
    /// A smoothing factor: over 0, up to 1.
    Alpha, "a number over 0 and up to 1", |value| value > 0.0 && value <= 1.0
);
number_value!(
    /// A weight. The bound keeps the sum of all weights finite.
    Weight, "a number from 0 to 1e300", |value| (0.0..=1e300).contains(&value)
);

/// One name, or a list of names.
#[derive(Clone, Debug, PartialEq)]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Vec<String>;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a name or a list of names")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
                Name::deserialize(StrDeserializer::new(text)).map(|name| vec![name.0])
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
                let mut names = Vec::new();
                while let Some(Name(name)) = seq.next_element()? {
                    names.push(name);
                }
                if names.is_empty() {
                    return Err(A::Error::custom(
                        "empty, expected a name or a list of names",
                    ));
                }
                Ok(names)
            }
        }
        from.deserialize_any(OneOrMore).map(Self)
    }
}

/// `true`, `false`, `"on"` or `"off"`: YAML readers disagree on what a bare `on` is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch(pub bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OnOff;
        impl Visitor<'_> for OnOff {
            type Value = bool;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("on or off")
            }
            fn visit_bool<E>(self, on: bool) -> Result<bool, E> {
                Ok(on)
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<bool, E> {
                match word {
                    "on" => Ok(true),
                    "off" => Ok(false),
                    _ => Err(E::custom("not allowed, expected on or off")),
                }
            }
        }
        from.deserialize_any(OnOff).map(Self)
    }
}
