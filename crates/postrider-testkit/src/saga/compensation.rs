//! Sagas: all steps succeed, or the earlier ones are compensated.

use super::{SagaFixture, helpers::*};
use async_trait::async_trait;
use postrider_core::{
    AuditKind, MessageId, Reference,
    audit::verify,
    follow_up::FollowUpStatus,
    inspect::{Action, StateFilter},
    saga::{Command, Plan, SagaState, StepCall as To},
};
use postrider_engine::{
    Failure, SagaRunner,
    saga::{
        Completion, CompletionOutcome, Resolution, ResolveError, Resolver, ResolverCall, SagaRunnerBuilder,
    },
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
};

/// The five steps of a trip: three that can be compensated, the pivot, and one that must succeed.
const STEPS: [&str; 5] = ["flight", "room", "car", "payment", "tickets"];
const PIVOT: usize = 3;

fn trip() -> Plan {
    let undoable = |name: &str| To::to(name, "reserve").undone_by("cancel");
    Plan::builder("book-trip")
        .compensatable(STEPS[0], undoable(STEPS[0]))
        .compensatable(STEPS[1], undoable(STEPS[1]))
        .compensatable(STEPS[2], undoable(STEPS[2]))
        .pivot(STEPS[3], To::to(STEPS[3], "reserve"))
        .retryable(STEPS[4], To::to(STEPS[4], "reserve"))
        .build()
        .unwrap()
}

/// The external systems: their reservations, and the result of each call.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Facts>>);

#[derive(Default)]
struct Facts {
    /// Whether each step is reserved, by its name.
    reserved: BTreeMap<&'static str, bool>,
    /// The idempotency keys of calls that had their effect: a second call changes nothing.
    keys: HashSet<MessageId>,
    /// Every effect, in order: `+flight`, `-flight`.
    effects: Vec<String>,
    /// Every call, including repeated ones.
    calls: Vec<String>,
    /// The effects that are rejected.
    refused: HashSet<String>,
    /// The effects that must wait for an hour.
    put_off: HashSet<String>,
    /// The effects whose calls return errors only, and whether they happen.
    silent: BTreeMap<String, bool>,
    /// The resolvers that can look up an outcome.
    telling: bool,
}

impl World {
    fn facts(&self) -> std::sync::MutexGuard<'_, Facts> {
        self.0.lock().unwrap()
    }

    fn refusing(self, what: &str) -> Self {
        self.facts().refused.insert(what.to_owned());
        self
    }

    fn silent(self, what: &str, happens: bool) -> Self {
        self.facts().silent.insert(what.to_owned(), happens);
        self
    }

    fn telling(self) -> Self {
        self.facts().telling = true;
        self
    }

    fn effects(&self) -> Vec<String> {
        self.facts().effects.clone()
    }

    fn reserved(&self) -> Vec<&'static str> {
        self.facts().reserved.iter().filter(|(_, is)| **is).map(|(name, _)| *name).collect()
    }

    fn happen(&self, name: &'static str, call: &ResolverCall) {
        let is_reserving = call.operation().as_str() == "reserve";
        let mut facts = self.facts();
        if !facts.keys.insert(call.idempotency_key()) {
            return;
        }
        // A compensated step was done before, by the call that this one names.
        if let Some(undone) = call.undoes() {
            assert!(facts.keys.contains(&undone), "{name} is undone, and was never done");
        }
        facts.reserved.insert(name, is_reserving);
        facts.effects.push(effect(name, is_reserving));
    }
}

fn effect(name: &str, is_reserving: bool) -> String {
    format!("{}{name}", if is_reserving { '+' } else { '-' })
}

/// The effect of a step.
fn doing(step: usize) -> String {
    effect(STEPS[step], true)
}

/// The effect of compensating a step.
fn undoing(step: usize) -> String {
    effect(STEPS[step], false)
}

/// One of the resolvers.
struct TravelAgency(&'static str, World);

#[async_trait]
impl Resolver for TravelAgency {
    fn name(&self) -> &str {
        self.0
    }

    fn operations(&self) -> &[&str] {
        &["reserve", "cancel"]
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        let Self(name, world) = self;
        let what = effect(name, call.operation().as_str() == "reserve");
        world.facts().calls.push(what.clone());
        if world.facts().refused.contains(&what) {
            return Err(Failure::reject("no").named("SoldOut"));
        }
        if world.facts().put_off.contains(&what) {
            return Err(Failure::snooze(minutes(60)));
        }
        let silent = world.facts().silent.get(&what).copied();
        if silent != Some(false) {
            world.happen(name, call);
        }
        match silent {
            Some(_) => Err(Failure::retry("no answer").named("Silence")),
            None => Ok(Resolution::Done),
        }
    }

    async fn has_happened(&self, call: &ResolverCall) -> Result<Option<bool>, Failure> {
        let facts = self.1.facts();
        Ok(facts.telling.then(|| facts.keys.contains(&call.idempotency_key())))
    }
}

type Ends = Arc<Mutex<Vec<Completion>>>;

fn booking<F: SagaFixture>(fixture: &F, world: &World, ends: &Ends) -> SagaRunnerBuilder<F::Sagas> {
    let noted = Arc::clone(ends);
    let builder = STEPS.iter().fold(SagaRunner::builder(fixture.sagas()), |builder, name| {
        builder.resolver(TravelAgency(name, world.clone()))
    });
    builder.plan(trip()).max_attempts(3).on_complete(move |_, completed| {
        noted.lock().unwrap().push(completed);
        async { Ok(()) }
    })
}

async fn begin<F: SagaFixture>(fixture: &F) -> MessageId {
    let reference = Reference::new("trip", "t-1").with("seats", "2");
    follow_up(fixture, [trip().begin("customer-1", reference).unwrap()]).await[0]
}

/// Runs until nothing happens any more, however far the clock moves.
async fn run_out<F: SagaFixture>(fixture: &F, runner: &SagaRunner<F::Sagas>) {
    loop {
        run::<F>(runner).await;
        fixture.advance(minutes(120)).await;
        if runner.run_batch().await.unwrap().claimed == 0 {
            return;
        }
    }
}

fn done(steps: usize) -> Vec<String> {
    STEPS[..steps].iter().map(|name| effect(name, true)).collect()
}

/// The effects up to a failed step, and their compensations in reverse.
fn made_good(failed: usize) -> Vec<String> {
    let undone = STEPS[..failed].iter().rev().map(|name| effect(name, false));
    done(failed).into_iter().chain(undone).collect()
}

fn ended(ends: &Ends) -> Vec<CompletionOutcome> {
    ends.lock().unwrap().iter().map(|completed| completed.ended).collect()
}

/// One step after the other, and then the saga is complete.
pub async fn a_saga_whose_steps_all_succeed_completes<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let (world, ends) = (World::default(), Ends::default());
    let runner = booking(&fixture, &world, &ends).complete_to("ended").build().unwrap();
    let saga = begin(&fixture).await;
    assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
    assert_eq!(runner.saga_state(saga).await.unwrap(), Some(SagaState::Forward { step: 0 }));
    run_out(&fixture, &runner).await;
    assert_eq!(world.effects(), done(5));
    let completed = ends.lock().unwrap().clone();
    assert_eq!(
        (completed.len(), completed[0].ended, completed[0].saga),
        (1, CompletionOutcome::Completed, Some(saga))
    );
    assert_eq!((completed[0].operation.as_str(), completed[0].subject.as_str()), ("book-trip", "customer-1"));
    assert_eq!(runner.saga_state(saga).await.unwrap(), None, "its log is gone");
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Succeeded, 6)]);
    let mut kinds = vec![AuditKind::Succeeded; 5];
    kinds.push(AuditKind::Completed);
    assert_eq!(audited(&fixture, "customer-1").await, kinds);
    let message = &list(&fixture, "ended", StateFilter::Ready).await[0].message;
    assert_eq!(message.event_type().unwrap().as_str(), "follow-ups.completed");
}

/// Each step is rejected in turn: before the pivot the earlier steps are compensated in reverse; after it the saga waits, and
/// continues when an operator has requeued the step.
pub async fn a_rejected_step_compensates_the_earlier_steps<F: SagaFixture>(fixture: F) {
    for failed in 0..STEPS.len() {
        let (world, ends) = (World::default().refusing(&doing(failed)), Ends::default());
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        if failed <= PIVOT {
            assert_eq!(world.effects(), made_good(failed), "step {failed}");
            assert_eq!(
                (world.reserved().len(), ended(&ends)),
                (0, vec![CompletionOutcome::Compensated]),
                "step {failed}"
            );
            assert_eq!(
                runner.list_abandoned(10).await.unwrap().len(),
                0,
                "a failure that was made good is none"
            );
            continue;
        }
        let stuck = u32::try_from(failed).unwrap();
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(SagaState::StuckForward { step: stuck }));
        assert_eq!((world.effects(), ended(&ends)), (done(failed), vec![]));
        world.facts().refused.clear();
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!((world.effects(), ended(&ends)), (done(5), vec![CompletionOutcome::Completed]));
    }
    verify(&*fixture.chain(), None).await.unwrap();
}

async fn requeue_all<S: postrider_core::TxBackend>(runner: &SagaRunner<S>) {
    let ids: Vec<_> = runner.list_abandoned(10).await.unwrap().iter().map(|row| row.id).collect();
    let requeued = runner.requeue(&ids, &Action::new("ada", "they are back")).await.unwrap();
    assert_eq!(requeued.requeued, ids);
}

/// Each call, forward and compensating, is made but its result is not recorded. The same call is repeated, and no effect happens
/// twice or out of order.
pub async fn a_repeated_call_has_no_second_effect<F: SagaFixture>(fixture: F) {
    // The step that fails, and the index of the call that is repeated.
    for failed in [None, Some(PIVOT), Some(1)] {
        let calls = failed.map_or(5, |failed| 2 * failed + 1);
        for repeated in 0..calls {
            let world =
                failed.map_or_else(World::default, |failed| World::default().refusing(&doing(failed)));
            let (sink, ends) = (Flaky::default(), Ends::default());
            let runner = booking(&fixture, &world, &ends).audit(sink.clone()).build().unwrap();
            begin(&fixture).await;
            runner.run_batch().await.unwrap();
            for _ in 0..repeated {
                assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
            }
            sink.outages.store(1, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
            expire_leases(&fixture).await;
            run_out(&fixture, &runner).await;
            let case = format!("failed {failed:?}, repeated {repeated}");
            // A repeated rejection is no longer certain: the result of the first attempt is unknown.
            if failed == Some(repeated) {
                assert_eq!((world.effects(), ended(&ends)), (done(repeated), vec![]), "{case}");
                let dead = runner.list_abandoned(10).await.unwrap();
                fixture
                    .store()
                    .discard(
                        &queue(postrider_core::follow_up::QUEUE),
                        &[dead[0].id],
                        &Action::new("ada", "seen"),
                    )
                    .await
                    .unwrap();
                continue;
            }
            let effects = failed.map_or_else(|| done(5), made_good);
            let end =
                if failed.is_some() { CompletionOutcome::Compensated } else { CompletionOutcome::Completed };
            assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]), "{case}");
            assert_eq!(world.facts().calls.len(), calls + 1, "{case}");
        }
    }
}

/// It is unknown whether a step had its effect: nothing is compensated, and nothing continues, until the doubt is resolved.
pub async fn a_step_in_doubt_compensates_nothing_until_resolved<F: SagaFixture>(fixture: F) {
    for step in 0..=PIVOT {
        for happened in [true, false] {
            let world = World::default().silent(&doing(step), happened);
            let ends = Ends::default();
            let runner = booking(&fixture, &world, &ends).build().unwrap();
            let saga = begin(&fixture).await;
            run_out(&fixture, &runner).await;
            let case = format!("step {step}, happened: {happened}");
            let number = u32::try_from(step).unwrap();
            assert_eq!(
                runner.saga_state(saga).await.unwrap(),
                Some(SagaState::InDoubt { step: number }),
                "{case}"
            );
            let so_far = done(step + usize::from(happened));
            assert_eq!((world.effects(), ended(&ends)), (so_far, vec![]), "{case}");
            let abandoned = runner.list_abandoned(10).await.unwrap();
            assert_eq!((abandoned.len(), abandoned[0].error.as_deref()), (1, Some("Silence")), "{case}");

            let action = Action::new("ada", "looked it up");
            runner.resolve_doubt(saga, happened, &action).await.unwrap();
            run_out(&fixture, &runner).await;
            let (effects, end) = if happened {
                (done(5), CompletionOutcome::Completed)
            } else {
                (made_good(step), CompletionOutcome::Compensated)
            };
            assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]), "{case}");
            assert_eq!(runner.list_abandoned(10).await.unwrap().len(), 0, "{case}");
            assert!(matches!(
                runner.resolve_doubt(saga, happened, &action).await,
                Err(ResolveError::Unknown(_))
            ));
        }
    }
    assert!(audited(&fixture, "customer-1").await.contains(&AuditKind::Resolved));
}

/// A resolver that can look up the outcome is asked, and no operator is needed.
pub async fn a_resolver_that_knows_the_outcome_resolves_the_doubt<F: SagaFixture>(fixture: F) {
    for happened in [true, false] {
        let world = World::default().silent(&doing(1), happened).telling();
        let ends = Ends::default();
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        begin(&fixture).await;
        run_out(&fixture, &runner).await;
        let (effects, end) = if happened {
            (done(5), CompletionOutcome::Completed)
        } else {
            (made_good(1), CompletionOutcome::Compensated)
        };
        assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]));
    }
}

/// A step in doubt can be requeued: if it succeeds, the doubt is resolved.
pub async fn a_requeued_step_in_doubt_can_succeed<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default().silent(&doing(2), true), Ends::default());
    let runner = booking(&fixture, &world, &ends).build().unwrap();
    begin(&fixture).await;
    run_out(&fixture, &runner).await;
    world.facts().silent.clear();
    requeue_all(&runner).await;
    run_out(&fixture, &runner).await;
    assert_eq!((world.effects(), ended(&ends)), (done(5), vec![CompletionOutcome::Completed]));
}

/// A call in doubt that is rejected now may have had its effect before: the rejection does not resolve the doubt.
pub async fn a_rejection_after_a_doubt_does_not_resolve_it<F: SagaFixture>(fixture: F) {
    for happened in [true, false] {
        let (world, ends) = (World::default().silent(&doing(1), happened), Ends::default());
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        world.facts().silent.clear();
        world.facts().refused.insert(doing(1));
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(SagaState::InDoubt { step: 1 }));
        assert_eq!((world.effects(), ended(&ends)), (done(1 + usize::from(happened)), vec![]));
        let action = Action::new("ada", "looked it up");
        runner.resolve_doubt(saga, happened, &action).await.unwrap();
        run_out(&fixture, &runner).await;
        let end = if happened { CompletionOutcome::Completed } else { CompletionOutcome::Compensated };
        assert_eq!(ended(&ends), [end]);
    }
}

/// Neither does a rejection after a reschedule: the earlier attempts still count.
pub async fn a_reschedule_does_not_hide_a_doubt<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default().silent(&doing(1), true), Ends::default());
    let runner = booking(&fixture, &world, &ends).build().unwrap();
    let saga = begin(&fixture).await;
    for _ in 0..3 {
        assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
    }
    world.facts().silent.clear();
    world.facts().put_off.insert(doing(1));
    fixture.advance(minutes(5)).await;
    assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
    world.facts().put_off.clear();
    world.facts().refused.insert(doing(1));
    run_out(&fixture, &runner).await;
    assert_eq!(runner.saga_state(saga).await.unwrap(), Some(SagaState::InDoubt { step: 1 }));
    assert_eq!((world.effects(), ended(&ends)), (done(2), vec![]));
}

/// An abandoned compensation waits, and so do those of earlier steps; requeued, all are run, in order.
pub async fn a_stuck_compensation_continues_after_a_requeue<F: SagaFixture>(fixture: F) {
    for stuck in 0..PIVOT {
        let world = World::default().refusing(&doing(PIVOT)).refusing(&undoing(stuck));
        let ends = Ends::default();
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        let (failed, step) = (u32::try_from(PIVOT).unwrap(), u32::try_from(stuck).unwrap());
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(SagaState::StuckBackward { failed, step }));
        assert_eq!(ended(&ends), []);
        world.facts().refused.remove(&undoing(stuck));
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!((world.effects(), ended(&ends)), (made_good(PIVOT), vec![CompletionOutcome::Compensated]));
    }
}

/// A saga is staged once, however often it is begun; the idempotency keys of its calls derive from its identity.
pub async fn a_saga_begins_once_with_its_own_idempotency_keys<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let (world, ends) = (World::default(), Ends::default());
    let runner = booking(&fixture, &world, &ends).build().unwrap();
    let id = fresh_id();
    let again = || trip().begin("customer-1", Reference::new("trip", "t-1")).unwrap().with_id(id);
    stage_again(&fixture, again()).await;
    stage_again(&fixture, again()).await;
    run_out(&fixture, &runner).await;
    stage_again(&fixture, again()).await;
    run_out(&fixture, &runner).await;
    assert_eq!(world.effects(), done(5));
    let expected: HashSet<_> = (0..5).map(|step| Command::perform(step).follow_up_id(id)).collect();
    assert_eq!(world.facts().keys, expected);
}

/// A saga with an unregistered plan is abandoned, and a plan with a missing resolver is rejected at build time.
pub async fn a_plan_must_be_registered_with_all_its_resolvers<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default(), Ends::default());
    begin(&fixture).await;
    let without = runner(&fixture, &[&Scripted::done("payments")]);
    run::<F>(&without).await;
    assert_eq!(without.list_abandoned(10).await.unwrap()[0].error.as_deref(), Some("UnknownPlan"));
    let refused = builder(&fixture, &[&Scripted::done("payments")]).plan(trip()).build().unwrap_err();
    assert!(refused.to_string().contains("no resolver flight with the operation reserve"), "{refused}");
    let twice = booking(&fixture, &world, &ends).plan(trip()).build().unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    let taken = builder(&fixture, &[&Scripted::done("saga")]).build().unwrap_err();
    assert!(taken.to_string().contains("choose another name"), "{taken}");
}

/// Many concurrent sagas, two runners, some rejected at each step: each ends independently.
pub async fn sagas_do_not_affect_each_other<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let worlds: Vec<_> = (0..3).map(|refused| World::default().refusing(&doing(refused))).collect();
    let ends = Ends::default();
    // One set of systems for each remainder of the subject's number by three.
    struct Routed(&'static str, Vec<World>);
    #[async_trait]
    impl Resolver for Routed {
        fn name(&self) -> &str {
            self.0
        }
        fn operations(&self) -> &[&str] {
            &["reserve", "cancel"]
        }
        async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
            let number: usize = call.subject().as_str().parse()?;
            TravelAgency(self.0, self.1[number % 3].clone()).resolve(call).await
        }
    }
    let build = || {
        let noted = Arc::clone(&ends);
        let builder = STEPS.iter().fold(SagaRunner::builder(fixture.sagas()), |builder, name| {
            builder.resolver(Routed(name, worlds.clone()))
        });
        builder
            .plan(trip())
            .on_complete(move |_, completed| {
                noted.lock().unwrap().push(completed);
                async { Ok(()) }
            })
            .build()
            .unwrap()
    };
    let all: Vec<_> = (0..30)
        .map(|number| trip().begin(number.to_string(), Reference::new("trip", "t")).unwrap())
        .collect();
    follow_up(&fixture, all).await;
    let (one, other) = (build(), build());
    while one.status_counts().await.unwrap().of(FollowUpStatus::Pending) > 0 {
        tokio::join!(run::<F>(&one), run::<F>(&other));
    }
    let mut sagas: Vec<_> = ends.lock().unwrap().iter().map(|completed| completed.saga.unwrap()).collect();
    sagas.sort();
    sagas.dedup();
    assert_eq!((sagas.len(), ended(&ends)), (30, vec![CompletionOutcome::Compensated; 30]));
    for (refused, world) in worlds.iter().enumerate() {
        let effects = world.effects();
        let reserved = effects.iter().filter(|effect| effect.starts_with('+')).count();
        assert_eq!((reserved, effects.len()), (10 * refused, 20 * refused), "what was done was undone");
    }
}
