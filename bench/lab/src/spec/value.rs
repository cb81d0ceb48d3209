//! Values as they stand in an experiment's file: text or number, the same for every scale or one
//! for each.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// How much of an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Under two minutes.
    Quick,
    /// What the published measurement did, as far as the machine allows.
    Full,
}

impl Scale {
    /// As it is spelled.
    pub fn as_str(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Full => "full",
        }
    }
}

/// Text, or a number taken as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(pub String);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Value, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a number")
            }
            fn visit_str<E>(self, v: &str) -> Result<Value, E> {
                Ok(Value(v.to_string()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
                Ok(Value(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
                Ok(Value(v.to_string()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
                Ok(Value(u8::from(v).to_string()))
            }
        }
        d.deserialize_any(V)
    }
}

/// One thing for every scale, or `{ quick = ..., full = ... }`.
#[derive(Debug, Clone, PartialEq)]
pub struct PerScale<T> {
    quick: T,
    full: T,
}

impl<T: Clone> PerScale<T> {
    /// The same for both.
    pub fn both(v: T) -> PerScale<T> {
        PerScale { quick: v.clone(), full: v }
    }
}

impl<T> PerScale<T> {
    /// Of that scale.
    pub fn at(&self, scale: Scale) -> &T {
        match scale {
            Scale::Quick => &self.quick,
            Scale::Full => &self.full,
        }
    }
}

/// What may stand for both scales at once.
pub trait Plain: Clone {
    /// What an error calls it.
    const WHAT: &'static str;
    /// From text or a number; `None` if it cannot be one.
    fn single(v: Value) -> Option<Self>;
    /// From a list.
    fn list(v: Vec<Value>) -> Option<Self>;
}

impl Plain for Value {
    const WHAT: &'static str = "a value";
    fn single(v: Value) -> Option<Value> {
        Some(v)
    }
    fn list(_: Vec<Value>) -> Option<Value> {
        None
    }
}

impl Plain for Vec<Value> {
    const WHAT: &'static str = "a list";
    fn single(_: Value) -> Option<Vec<Value>> {
        None
    }
    fn list(v: Vec<Value>) -> Option<Vec<Value>> {
        (!v.is_empty()).then_some(v)
    }
}

impl Plain for f64 {
    const WHAT: &'static str = "a positive number";
    fn single(v: Value) -> Option<f64> {
        v.0.parse().ok().filter(|x| *x > 0.0)
    }
    fn list(_: Vec<Value>) -> Option<f64> {
        None
    }
}

impl Plain for usize {
    const WHAT: &'static str = "a whole number from 1";
    fn single(v: Value) -> Option<usize> {
        v.0.parse().ok().filter(|x| *x > 0)
    }
    fn list(_: Vec<Value>) -> Option<usize> {
        None
    }
}

/// What stands for one scale.
struct Same<T>(T);

impl<'de, T: Plain> Deserialize<'de> for Same<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Same<T>, D::Error> {
        PerScale::<T>::deserialize(d).map(|both| Same(both.quick))
    }
}

impl<'de, T: Plain> Deserialize<'de> for PerScale<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<PerScale<T>, D::Error> {
        struct V<T>(PhantomData<T>);
        fn one<T: Plain, E: de::Error>(v: Value) -> Result<PerScale<T>, E> {
            let shown = v.0.clone();
            T::single(v).map(PerScale::both).ok_or_else(|| {
                E::custom(format!("{} or {{ quick, full }} is expected, not {shown}", T::WHAT))
            })
        }
        impl<'de, T: Plain> Visitor<'de> for V<T> {
            type Value = PerScale<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} or {{ quick, full }}", T::WHAT)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<PerScale<T>, E> {
                one(Value(v.into()))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<PerScale<T>, E> {
                one(Value(v.to_string()))
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<PerScale<T>, E> {
                one(Value(v.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PerScale<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(v) = seq.next_element()? {
                    all.push(v);
                }
                T::list(all).map(PerScale::both).ok_or_else(|| {
                    de::Error::custom(format!("{} is expected, not such a list", T::WHAT))
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PerScale<T>, A::Error> {
                let (mut quick, mut full) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "quick" => quick = Some(map.next_value::<Same<T>>()?.0),
                        "full" => full = Some(map.next_value::<Same<T>>()?.0),
                        _ => return Err(de::Error::unknown_field(&key, &["quick", "full"])),
                    }
                }
                let quick = quick.ok_or_else(|| de::Error::missing_field("quick"))?;
                let full = full.ok_or_else(|| de::Error::missing_field("full"))?;
                Ok(PerScale { quick, full })
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}

/// Bytes, as `512m`; powers of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
