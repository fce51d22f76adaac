//! What a plan may be.

use super::*;

/// Declares a shape that may be none.
fn declared(shape: &str) -> Result<Plan, crate::Invalid> {
    let mut plan = Plan::builder("p");
    for (index, kind) in shape.chars().enumerate() {
        let (name, call) = (format!("{kind}{index}"), StepCall::to("somebody", "do"));
        plan = match kind {
            'C' => plan.compensatable(name, call.undone_by("undo")),
            'P' => plan.pivot(name, call),
            _ => plan.retryable(name, call),
        };
    }
    plan.build()
}

/// Every row of kinds of this length.
fn rows(steps: usize) -> Vec<String> {
    (0..steps).fold(vec![String::new()], |rows, _| {
        rows.iter().flat_map(|row| ['C', 'P', 'R'].map(|kind| format!("{row}{kind}"))).collect()
    })
}

#[test]
fn plan_accepts_only_valid_orders_of_step_kinds() {
    for steps in 1..=5 {
        let mut right: Vec<_> = rows(steps).into_iter().filter(|row| declared(row).is_ok()).collect();
        let mut expected = shapes(steps);
        right.sort();
        expected.sort();
        assert_eq!(right, expected);
        assert_eq!(right.len(), 2 * steps + 1);
    }
}

#[test]
fn point_of_no_return_is_behind_the_last_step_that_may_fail() {
    for (shape, point) in
        [("C", 1), ("P", 1), ("R", 0), ("CCP", 3), ("CCRR", 2), ("CPR", 2), ("PRR", 1), ("RR", 0)]
    {
        assert_eq!(plan(shape).point_of_no_return(), point, "{shape}");
    }
}

#[test]
fn plan_with_a_mistake_is_rejected_with_its_name() {
    let call = || StepCall::to("somebody", "do");
    let long =
        (0..=MOST_STEPS).fold(Plan::builder("p"), |plan, step| plan.retryable(step.to_string(), call()));
    let twice = Plan::builder("p").pivot("pay", call()).retryable("pay", call());
    let blank = Plan::builder("p").pivot("pay", StepCall::to("the bank", "charge"));
    let no_undo = Plan::builder("p").compensatable("room", call().undone_by(""));
    let errors = [
        declared("PC"),
        declared("PP"),
        declared("CRP"),
        declared("RC"),
        declared(""),
        long.build(),
        twice.build(),
        blank.build(),
        no_undo.build(),
        Plan::builder("").pivot("pay", call()).build(),
        Plan::builder("p").pivot("", call()).build(),
    ]
    .map(|plan| plan.unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"), @r#"
    step "C1": cannot come as compensatable after "P0" (pivot): the saga cannot be compensated behind the pivot, so no step that may fail can follow it; the order is compensatable steps, at most one pivot, retryable steps
    step "P1": cannot come as pivot after "P0" (pivot): a plan has at most one pivot; the order is compensatable steps, at most one pivot, retryable steps
    step "P2": cannot come as pivot after "R1" (retryable): a retryable step must succeed, so no step that may fail can follow it; the order is compensatable steps, at most one pivot, retryable steps
    step "C1": cannot come as compensatable after "R0" (retryable): the saga cannot be compensated behind the pivot, so no step that may fail can follow it; the order is compensatable steps, at most one pivot, retryable steps
    steps: must not be empty
    steps: has 101 entries; at most 100 are allowed
    step "pay": is used twice; each step needs a unique name
    step "pay": resolver: contains ' ' at byte 3; neither white space nor control characters are allowed
    step "room": operation that undoes it: must not be empty
    plan: must not be empty
    step: must not be empty
    "#);
    assert_eq!(declared(&"R".repeat(MOST_STEPS)).unwrap().len(), 100);
}

#[test]
fn fingerprint_depends_on_names_order_and_kinds_only() {
    let call = || StepCall::to("a", "b");
    let two = |plan: &str, one: &str, two: &str| {
        let plan = Plan::builder(plan).compensatable(one, call().undone_by("c"));
        plan.compensatable(two, call().undone_by("c")).build().unwrap().fingerprint()
    };
    let pivot =
        Plan::builder("p").compensatable("x", call().undone_by("c")).pivot("y", call()).build().unwrap();
    let same = two("p", "x", "y");
    for other in [two("q", "x", "y"), two("p", "y", "x"), two("p", "x", "z"), pivot.fingerprint()] {
        assert_ne!(same, other);
    }
    let elsewhere = StepCall::to("another", "op").undone_by("undo");
    let moved = Plan::builder("p").compensatable("x", elsewhere.clone()).compensatable("y", elsewhere);
    assert_eq!(moved.build().unwrap().fingerprint(), same);
    // It is in logs: it never changes.
    insta::assert_snapshot!(same, @r#"02ee7a4a-aec1-5569-a374-5620e923495d"#);
}
