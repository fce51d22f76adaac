//! Retry strategies: the backoff after a failure, and when to give up.
//!
//! A strategy only computes the delay. The wait is durable state: the engine settles the delivery with the delay, and the store's
//! clock measures it.
//!
//! A delay is computed in this order: the strategy's backoff for this failure, then jitter, then the cap on a single delay, then the
//! check of the total. Every step saturates at a hundred years, so that no number of failures can lose a message to an overflow.

use crate::{Invalid, limits::FARTHEST_DUE};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// A failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// The number of failures including this one: 1 for the first.
    pub number: u32,
    /// The time since the first attempt ended, by the store's clock; zero for the first.
    pub elapsed: Duration,
    /// The error as it is stored with the message: its kind, unless the queue stores the whole text.
    pub error: &'a str,
}

/// The decision about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Retry after this delay.
    After(Duration),
    /// Give up: the message becomes a dead letter.
    GiveUp,
}

/// Decides whether and when to retry: a [`RetryStrategy`], or a closure for rules that no strategy covers.
///
/// ```
/// # use postrider_core::retry::{Attempt, Retry, RetryStrategy, Verdict};
/// # use std::time::Duration;
/// let patient = |attempt: &Attempt<'_>| match attempt.error {
///     "RateLimited" => Verdict::After(Duration::from_secs(60)),
///     _ => Verdict::GiveUp,
/// };
/// let either: [Box<dyn Retry>; 2] = [Box::new(patient), Box::new(RetryStrategy::default())];
/// ```
pub trait Retry: Send + Sync {
    /// Decides about `attempt`. Call it through [`decide`], which catches a panic.
    fn next(&self, attempt: &Attempt<'_>, random: &mut dyn Rng) -> Verdict;
}

impl<F: Fn(&Attempt<'_>) -> Verdict + Send + Sync> Retry for F {
    fn next(&self, attempt: &Attempt<'_>, _: &mut dyn Rng) -> Verdict {
        self(attempt)
    }
}

/// Decides about `attempt` safely: a strategy that panics gives up, so that the message becomes a dead letter instead of being
/// redelivered endlessly, and no delay exceeds a hundred years.
pub fn decide(retry: &dyn Retry, attempt: &Attempt<'_>, random: &mut dyn Rng) -> Verdict {
    // An interrupted random generator still yields numbers, and a strategy is never changed.
    match catch_unwind(AssertUnwindSafe(|| retry.next(attempt, random))) {
        Ok(Verdict::After(delay)) => Verdict::After(delay.min(FARTHEST_DUE)),
        Ok(Verdict::GiveUp) | Err(_) => Verdict::GiveUp,
    }
}

/// A backoff and its limits.
///
/// By default a strategy adds no jitter and gives up at the tenth failure; a schedule gives up at its end. The default strategy waits
/// 1, 2, 4, … seconds, at most five minutes, with equal jitter. In its serialised form an omitted cap means no cap;
/// [`check`](Self::check) a strategy after reading it.
///
/// ```
/// # use postrider_core::retry::{Attempt, Jitter, Retry, RetryStrategy, Verdict};
/// # use std::time::Duration;
/// let strategy = RetryStrategy::exponential(Duration::from_secs(1), 2.0)
///     .with_jitter(Jitter::Full)
///     .with_max_delay(Duration::from_secs(60))
///     .with_max_attempts(5);
/// strategy.check()?;
///
/// let third = Attempt { number: 3, elapsed: Duration::from_secs(4), error: "Timeout" };
/// let Verdict::After(delay) = strategy.next(&third, &mut rand::rng()) else { unreachable!() };
/// assert!(delay <= Duration::from_secs(4));
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryStrategy {
    backoff: BackoffCurve,
    #[serde(default)]
    jitter: Jitter,
    max_attempts: Option<u32>,
    max_delay: Option<Duration>,
    max_total: Option<Duration>,
}

/// The growth of the delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BackoffCurve {
    None,
    Constant { delay: Duration },
    Linear { initial: Duration, step: Duration },
    Exponential { initial: Duration, multiplier: f64 },
    Schedule { delays: Vec<Duration> },
}

/// Random variation of a delay, so that messages that failed together are not retried together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// No variation.
    #[default]
    None,
    /// Between half and all of the delay.
    Equal,
    /// Between zero and all of the delay.
    Full,
    /// The delay plus or minus up to this fraction, between 0 and 1.
    Fraction(f64),
}

impl Default for RetryStrategy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), 2.0)
            .with_max_delay(Duration::from_secs(5 * 60))
            .with_jitter(Jitter::Equal)
    }
}

impl RetryStrategy {
    const DEFAULT_MAX_ATTEMPTS: u32 = 10;

    fn new(backoff: BackoffCurve) -> Self {
        let max_attempts = Some(Self::DEFAULT_MAX_ATTEMPTS);
        Self { backoff, jitter: Jitter::None, max_attempts, max_delay: None, max_total: None }
    }

    /// No retries: gives up at the first failure.
    pub fn none() -> Self {
        Self::new(BackoffCurve::None)
    }

    /// The same delay each time.
    pub fn constant(delay: Duration) -> Self {
        Self::new(BackoffCurve::Constant { delay })
    }

    /// `initial`, and `step` longer each time.
    pub fn linear(initial: Duration, step: Duration) -> Self {
        Self::new(BackoffCurve::Linear { initial, step })
    }

    /// Exponential backoff: `initial`, and `multiplier` times as long each time.
    pub fn exponential(initial: Duration, multiplier: f64) -> Self {
        Self::new(BackoffCurve::Exponential { initial, multiplier })
    }

    /// The listed delays, then gives up.
    pub fn schedule(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self::new(BackoffCurve::Schedule { delays: delays.into_iter().collect() }).without_max_attempts()
    }

    /// The strategy of saga steps: 30 s, 60 s, … up to an hour, eight attempts, without jitter, so that the schedule is deterministic.
    pub fn saga() -> Self {
        Self::exponential(Duration::from_secs(30), 2.0)
            .with_max_delay(Duration::from_secs(60 * 60))
            .with_max_attempts(8)
    }

    /// Adds jitter to each delay, before the caps apply.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Gives up at failure number `max_attempts`.
    #[must_use]
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Never gives up because of the number of failures.
    #[must_use]
    pub fn without_max_attempts(mut self) -> Self {
        self.max_attempts = None;
        self
    }

    /// The number of the failure at which it gives up, if any.
    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// Caps a single delay.
    #[must_use]
    pub fn with_max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = Some(max_delay);
        self
    }

    /// Gives up when the next attempt would begin more than `max_total` after the first one failed.
    #[must_use]
    pub fn with_max_total(mut self, max_total: Duration) -> Self {
        self.max_total = Some(max_total);
        self
    }

    /// Checks the settings. An invalid strategy does not panic, but its decisions are not meaningful.
    ///
    /// # Errors
    /// Names the first invalid setting.
    pub fn check(&self) -> Result<(), Invalid> {
        let longest = match &self.backoff {
            BackoffCurve::None => Duration::ZERO,
            BackoffCurve::Constant { delay: longest } | BackoffCurve::Linear { initial: longest, .. } => {
                *longest
            }
            BackoffCurve::Exponential { initial, multiplier } => {
                if !multiplier.is_finite() || *multiplier < 1.0 {
                    let rule = format!("is {multiplier}; it must be a finite number of at least 1");
                    return Err(Invalid::rule("multiplier", rule));
                }
                if initial.is_zero() {
                    let rule = "is zero, which no multiplier makes grow; use a constant delay of zero to retry at once";
                    return Err(Invalid::rule("initial", rule));
                }
                *initial
            }
            BackoffCurve::Schedule { delays } => delays
                .iter()
                .max()
                .copied()
                .ok_or_else(|| Invalid::rule("schedule", "lists no delays; add at least one"))?,
        };
        if let Jitter::Fraction(fraction) = self.jitter
            && !(0.0..=1.0).contains(&fraction)
        {
            let rule = format!("changes a delay by {fraction} of it; the fraction must lie between 0 and 1");
            return Err(Invalid::rule("jitter", rule));
        }
        if self.max_attempts == Some(0) {
            return Err(Invalid::rule(
                "max_attempts",
                "is 0; it counts the first attempt too, so give at least 1",
            ));
        }
        if let Some(max_delay) = self.max_delay.filter(|max_delay| *max_delay < longest) {
            let rule = format!("is {max_delay:?}, shorter than the {longest:?} that the strategy asks for");
            return Err(Invalid::rule("max_delay", rule));
        }
        Ok(())
    }
}

impl Retry for RetryStrategy {
    fn next(&self, attempt: &Attempt<'_>, random: &mut dyn Rng) -> Verdict {
        if self.max_attempts.is_some_and(|max| attempt.number >= max) {
            return Verdict::GiveUp;
        }
        let Some(raw) = self.backoff.delay(attempt.number.saturating_sub(1)) else {
            return Verdict::GiveUp;
        };
        let cap = self.max_delay.map_or(FARTHEST_DUE, |max| max.min(FARTHEST_DUE));
        let delay = self.jitter.apply(raw.min(FARTHEST_DUE), random).min(cap);
        if self.max_total.is_some_and(|max| attempt.elapsed.saturating_add(delay) > max) {
            return Verdict::GiveUp;
        }
        Verdict::After(delay)
    }
}

impl BackoffCurve {
    /// The delay after `earlier` failures before this one.
    fn delay(&self, earlier: u32) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Constant { delay } => Some(*delay),
            Self::Linear { initial, step } => Some(initial.saturating_add(step.saturating_mul(earlier))),
            Self::Exponential { initial, multiplier } => {
                let power = multiplier.powi(i32::try_from(earlier).unwrap_or(i32::MAX));
                let seconds = initial.as_secs_f64() * power;
                Some(Duration::try_from_secs_f64(seconds).unwrap_or(FARTHEST_DUE))
            }
            Self::Schedule { delays } => delays.get(usize::try_from(earlier).ok()?).copied(),
        }
    }
}

impl Jitter {
    /// Whole nanoseconds, so that rounding stays in range: twice a hundred years fits.
    fn apply(self, raw: Duration, random: &mut dyn Rng) -> Duration {
        let nanos = u64::try_from(raw.as_nanos()).unwrap_or(u64::MAX);
        let range = match self {
            Self::None => return raw,
            Self::Equal => nanos.div_ceil(2)..=nanos,
            Self::Full => 0..=nanos,
            Self::Fraction(fraction) => {
                let most = ((nanos as f64 * fraction) as u64).min(nanos);
                nanos - most..=nanos.saturating_add(most)
            }
        };
        Duration::from_nanos(random.random_range(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{SeedableRng, rngs::StdRng};

    const SECOND: Duration = Duration::from_secs(1);

    fn nth(number: u32) -> Attempt<'static> {
        Attempt { number, elapsed: Duration::ZERO, error: "Timeout" }
    }

    fn verdict(strategy: &RetryStrategy, number: u32) -> Verdict {
        strategy.next(&nth(number), &mut StdRng::seed_from_u64(7))
    }

    /// The delays after the first failures, in seconds, until it gives up.
    fn delays(strategy: &RetryStrategy) -> Vec<f64> {
        (1..100)
            .map_while(|number| match verdict(strategy, number) {
                Verdict::After(delay) => Some(delay.as_secs_f64()),
                Verdict::GiveUp => None,
            })
            .collect()
    }

    #[test]
    fn each_backoff_yields_its_delays() {
        assert_eq!(delays(&RetryStrategy::none()), [0.0; 0]);
        assert_eq!(delays(&RetryStrategy::constant(SECOND * 3).with_max_attempts(3)), [3.0, 3.0]);
        assert_eq!(delays(&RetryStrategy::linear(SECOND, SECOND * 2).with_max_attempts(4)), [1.0, 3.0, 5.0]);
        assert_eq!(
            delays(&RetryStrategy::exponential(SECOND, 2.0)),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]
        );
        assert_eq!(delays(&RetryStrategy::schedule([SECOND * 5, SECOND])), [5.0, 1.0]);
        assert_eq!(delays(&RetryStrategy::schedule(vec![SECOND; 20])).len(), 20);
        assert_eq!(
            delays(&RetryStrategy::saga().with_max_attempts(10)),
            [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
        );
        assert_eq!(delays(&RetryStrategy::saga()).len(), 7, "eight attempts have seven delays between them");
    }

    #[test]
    fn default_strategy_gives_up_at_the_tenth_failure() {
        let strategy = RetryStrategy::default();
        strategy.check().unwrap();
        let delays = delays(&strategy);
        assert_eq!(delays.len(), 9);
        for (delay, raw) in delays.into_iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]) {
            assert!((raw / 2.0..=raw).contains(&delay), "{delay} of {raw}");
        }
    }

    #[test]
    fn attempt_1025_does_not_overflow() {
        let endless = RetryStrategy::exponential(SECOND, 2.0).without_max_attempts();
        assert_eq!(verdict(&endless, 1025), Verdict::After(FARTHEST_DUE));
        assert_eq!(verdict(&endless, u32::MAX), Verdict::After(FARTHEST_DUE));
        let linear = RetryStrategy::linear(Duration::MAX, Duration::MAX).without_max_attempts();
        assert_eq!(verdict(&linear, 2), Verdict::After(FARTHEST_DUE));
    }

    #[test]
    fn strategy_gives_up_when_the_next_attempt_exceeds_max_total() {
        let strategy = RetryStrategy::constant(SECOND * 10).with_max_total(SECOND * 60);
        let after = |elapsed| strategy.next(&Attempt { elapsed, ..nth(2) }, &mut rand::rng());
        assert_eq!(after(SECOND * 50), Verdict::After(SECOND * 10));
        assert_eq!(after(SECOND * 50 + Duration::from_nanos(1)), Verdict::GiveUp);
        assert_eq!(after(Duration::MAX), Verdict::GiveUp);
    }

    #[test]
    fn jitter_is_applied_before_the_cap() {
        let strategy =
            RetryStrategy::constant(SECOND).with_jitter(Jitter::Fraction(1.0)).with_max_delay(SECOND);
        let mut random = StdRng::seed_from_u64(7);
        let capped =
            (0..1000).filter(|_| strategy.next(&nth(1), &mut random) == Verdict::After(SECOND)).count();
        assert!((400..600).contains(&capped), "half of the delays would be longer, and are capped: {capped}");
    }

    #[test]
    fn decide_gives_up_on_panic_and_caps_the_delay() {
        let panics = |_: &Attempt<'_>| -> Verdict { panic!("a strategy's own mistake") };
        assert_eq!(decide(&panics, &nth(1), &mut rand::rng()), Verdict::GiveUp);
        let far = |_: &Attempt<'_>| Verdict::After(Duration::MAX);
        assert_eq!(decide(&far, &nth(1), &mut rand::rng()), Verdict::After(FARTHEST_DUE));
        let never = |_: &Attempt<'_>| Verdict::GiveUp;
        assert_eq!(decide(&never, &nth(1), &mut rand::rng()), Verdict::GiveUp);
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let constant = RetryStrategy::constant(SECOND);
        let problems = [
            RetryStrategy::exponential(SECOND, f64::NAN),
            RetryStrategy::exponential(SECOND, f64::INFINITY),
            RetryStrategy::exponential(SECOND, -2.0),
            RetryStrategy::exponential(Duration::ZERO, 2.0),
            RetryStrategy::schedule([]),
            RetryStrategy::schedule([SECOND, SECOND * 9]).with_max_delay(SECOND * 8),
            constant.clone().with_jitter(Jitter::Fraction(1.5)),
            constant.clone().with_jitter(Jitter::Fraction(f64::NAN)),
            constant.clone().with_max_attempts(0),
            constant.with_max_delay(SECOND / 2),
        ]
        .map(|strategy| strategy.check().unwrap_err().to_string());
        insta::assert_snapshot!(problems.join("\n"), @r#"
        multiplier: is NaN; it must be a finite number of at least 1
        multiplier: is inf; it must be a finite number of at least 1
        multiplier: is -2; it must be a finite number of at least 1
        initial: is zero, which no multiplier makes grow; use a constant delay of zero to retry at once
        schedule: lists no delays; add at least one
        max_delay: is 8s, shorter than the 9s that the strategy asks for
        jitter: changes a delay by 1.5 of it; the fraction must lie between 0 and 1
        jitter: changes a delay by NaN of it; the fraction must lie between 0 and 1
        max_attempts: is 0; it counts the first attempt too, so give at least 1
        max_delay: is 500ms, shorter than the 1s that the strategy asks for
        "#);
        for sound in [RetryStrategy::none(), RetryStrategy::saga(), RetryStrategy::constant(Duration::ZERO)] {
            sound.check().unwrap();
        }
    }

    #[test]
    fn strategy_round_trips_through_json() {
        let strategy = RetryStrategy::default().with_max_total(SECOND);
        let json = serde_json::to_string(&strategy).unwrap();
        assert_eq!(serde_json::from_str::<RetryStrategy>(&json).unwrap(), strategy);
        let misspelt = r#"{ "backoff": "none", "max_atempts": 3 }"#;
        assert!(serde_json::from_str::<RetryStrategy>(misspelt).is_err());
    }

    prop_compose! {
        /// Any strategy at all, sensible or not.
        fn strategies()(
            backoff in prop_oneof![
                Just(BackoffCurve::None),
                any::<Duration>().prop_map(|delay| BackoffCurve::Constant { delay }),
                any::<(Duration, Duration)>().prop_map(|(initial, step)| BackoffCurve::Linear { initial, step }),
                (any::<Duration>(), prop_oneof![prop::num::f64::ANY, 1.0..4.0])
                    .prop_map(|(initial, multiplier)| BackoffCurve::Exponential { initial, multiplier }),
                any::<Vec<Duration>>().prop_map(|delays| BackoffCurve::Schedule { delays }),
            ],
            jitter in prop_oneof![
                Just(Jitter::None), Just(Jitter::Equal), Just(Jitter::Full),
                prop_oneof![prop::num::f64::ANY, 0.0..=1.0].prop_map(Jitter::Fraction),
            ],
            max_attempts: Option<u32>, max_delay: Option<Duration>, max_total: Option<Duration>,
        ) -> RetryStrategy {
            RetryStrategy { backoff, jitter, max_attempts, max_delay, max_total }
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics_or_breaks_a_cap(
            strategy in strategies(), number in prop_oneof![any::<u32>(), 0..20_u32], elapsed: Duration, seed: u64,
        ) {
            let attempt = Attempt { number, elapsed, error: "" };
            let verdict = strategy.next(&attempt, &mut StdRng::seed_from_u64(seed));
            prop_assert_eq!(verdict, strategy.next(&attempt, &mut StdRng::seed_from_u64(seed)), "seedable");
            if let Verdict::After(delay) = verdict {
                prop_assert!(delay <= FARTHEST_DUE);
                prop_assert!(strategy.max_delay.is_none_or(|max| delay <= max));
                prop_assert!(strategy.max_attempts.is_none_or(|max| number < max));
                prop_assert!(strategy.max_total.is_none_or(|max| elapsed.saturating_add(delay) <= max));
            }
        }

        #[test]
        fn jitter_stays_within_its_bounds(nanos in 0..=FARTHEST_DUE.as_nanos() as u64, fraction in 0.0..=1.0, seed: u64) {
            let raw = Duration::from_nanos(nanos);
            let mut random = StdRng::seed_from_u64(seed);
            prop_assert_eq!(Jitter::None.apply(raw, &mut random), raw);
            let equal = Jitter::Equal.apply(raw, &mut random);
            prop_assert!(raw <= equal * 2 && equal <= raw);
            prop_assert!(Jitter::Full.apply(raw, &mut random) <= raw);
            let spread = Jitter::Fraction(fraction).apply(raw, &mut random);
            let most = raw.mul_f64(fraction) + Duration::from_micros(1); // doubles of a hundred years are that coarse
            prop_assert!(raw.abs_diff(spread) <= most);
        }

        #[test]
        fn without_jitter_delays_never_shrink(
            initial: Duration, step: Duration, multiplier in 1.0..100.0, max_delay: Option<Duration>, number in 0..u32::MAX,
        ) {
            for backoff in [BackoffCurve::Linear { initial, step }, BackoffCurve::Exponential { initial, multiplier }] {
                let strategy = RetryStrategy { max_delay, ..RetryStrategy::new(backoff).without_max_attempts() };
                let [Verdict::After(sooner), Verdict::After(later)] = [number, number + 1].map(|n| verdict(&strategy, n))
                else {
                    panic!("nothing makes it give up");
                };
                prop_assert!(sooner <= later);
            }
        }
    }
}
