//! Conditions on a value, such as `< 0.01`.

use std::fmt;

use rollhook_core::text::words;

/// A comparison of a value with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equal,
    NotEqual,
}

words! { Operator:
    Below = "<",
    AtMost = "<=",
    Above = ">",
    AtLeast = ">=",
    Equal = "==",
    NotEqual = "!=",
}

/// The operators; of two that begin alike, the longer one is first.
const OPERATORS: [Operator; 6] =
    [Operator::AtMost, Operator::AtLeast, Operator::Equal, Operator::NotEqual, Operator::Below, Operator::Above];

impl Operator {
    /// Returns the operator at the beginning of a text, and the rest.
    pub(crate) fn parse(text: &str) -> Option<(Self, &str)> {
        let text = text.trim();
        OPERATORS.into_iter().find_map(|operator| Some((operator, text.strip_prefix(operator.as_str())?.trim())))
    }

    #[expect(clippy::float_cmp, reason = "the person has asked for just this value")]
    pub(crate) fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
            Self::Equal => value == bound,
            Self::NotEqual => value != bound,
        }
    }
}

/// What a value is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// A number.
    Number(f64),
    /// The value before the deploy, times a factor.
    Before(f64),
}

/// A condition on a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) operator: Operator,
    pub(crate) bound: Bound,
}

impl Condition {
    /// Reads a condition and what it is relative to.
    ///
    /// # Errors
    /// What is wrong with them, as a sentence.
    pub(crate) fn parse(condition: &str, than: Option<&str>, factor: Option<&str>) -> Result<Self, String> {
        let (operator, number) = Operator::parse(condition)
            .ok_or("condition must be <, <=, >, >=, == or != with a number, such as < 0.01.")?;
        let bound = match (than, factor) {
            (None, None) => Bound::Number(
                finite(number)
                    .ok_or_else(|| format!("condition must be {operator} with a number, such as {operator} 0.01."))?,
            ),
            (None, Some(_)) => return Err("factor is for than before only.".to_owned()),
            (Some("before"), _) if !number.is_empty() => {
                return Err(format!(
                    "condition must be {operator} alone: than before compares with the value before the deploy; its factor \
                     is a setting of its own."
                ));
            }
            (Some("before"), None) => Bound::Before(1.0),
            (Some("before"), Some(factor)) => {
                let factor = finite(factor).filter(|factor| *factor > 0.0);
                Bound::Before(factor.ok_or("factor must be a number above 0, such as 1.5.")?)
            }
            (Some(_), _) => return Err("than must be before.".to_owned()),
        };
        Ok(Self { operator, bound })
    }

    /// Returns the condition as its setting has it.
    pub(crate) fn written(&self) -> String {
        match self.bound {
            Bound::Number(_) => self.to_string(),
            Bound::Before(_) => self.operator.to_string(),
        }
    }
}

/// Reads a finite number.
pub(crate) fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::Number(number) => write!(f, "{} {number}", self.operator),
            Bound::Before(factor) => write!(f, "{} {factor} × the value before the deploy", self.operator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare() {
        for (text, holds, fails) in [
            ("< 0.01", 0.009, 0.01),
            ("<=0.01", 0.01, 0.011),
            (" > 5 ", 5.5, 5.0),
            (">= 5", 5.0, 4.9),
            ("== 1", 1.0, 0.0),
            ("!= -1e3", 0.0, -1000.0),
        ] {
            let condition = Condition::parse(text, None, None).unwrap();
            let Bound::Number(bound) = condition.bound else { unreachable!() };
            assert!(condition.operator.holds(holds, bound) && !condition.operator.holds(fails, bound), "{text}");
            assert_eq!(Condition::parse(&condition.written(), None, None), Ok(condition));
        }
        for text in ["", "0.01", "=< 1", "< ", "< x", "< NaN", "< inf", "< 1 2", "~ 3"] {
            assert!(Condition::parse(text, None, None).is_err(), "{text}");
        }
    }

    #[test]
    fn conditions_are_relative_to_before() {
        let parse = |condition, than, factor| Condition::parse(condition, Some(than), factor);
        let before = parse("<=", "before", Some("1.50")).unwrap();
        assert_eq!(before, Condition { operator: Operator::AtMost, bound: Bound::Before(1.5) });
        assert_eq!(
            (before.written().as_str(), before.to_string().as_str()),
            ("<=", "<= 1.5 × the value before the deploy")
        );
        assert_eq!(parse("<", "before", None).unwrap().bound, Bound::Before(1.0));
        for (condition, than, factor) in
            [("< 1", "before", None), ("<", "after", None), ("<", "before", Some("0")), ("<", "before", Some("-1"))]
        {
            assert!(parse(condition, than, factor).is_err(), "{condition} {than} {factor:?}");
        }
        assert!(Condition::parse("< 1", None, Some("2")).is_err());
    }
}
