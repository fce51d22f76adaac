//! Sagas: together, or made good.

use super::{SagaFixture, helpers::*};
use async_trait::async_trait;
use postrider_core::{
    AuditKind, MessageId, Reference,
    audit::verify,
    follow_up::Status,
    inspect::{Action, Room},
    saga::{Call as To, Command, Plan, State},
};
use postrider_engine::{
    Failure, SagaRunner,
    saga::{Call, Completed, Ended, Resolved, Resolver, SagaRunnerBuilder, Unresolved},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
};

/// The five steps of a trip: three that can be undone, the one that decides, and one that must succeed.
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

/// What the world outside is like: who has what, and how each call is answered.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Facts>>);

#[derive(Default)]
struct Facts {
    /// Whether each step is reserved, by its name.
    reserved: BTreeMap<&'static str, bool>,
    /// The keys of calls that had their effect: a second one changes nothing.
    keys: HashSet<MessageId>,
    /// Every effect, in order: `+flight`, `-flight`.
    effects: Vec<String>,
    /// Every call, repeated or not.
    calls: Vec<String>,
    /// What is refused, by what it would do.
    refused: HashSet<String>,
    /// What has to wait for an hour.
    put_off: HashSet<String>,
    /// What answers nothing but errors: its effect is there or not.
    silent: BTreeMap<String, bool>,
    /// Who can tell whether something happened.
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

    fn happen(&self, name: &'static str, call: &Call) {
        let is_reserving = call.operation().as_str() == "reserve";
        let mut facts = self.facts();
        if !facts.keys.insert(call.idempotency_key()) {
            return;
        }
        // What is undone was done, and by the call that this one names.
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

/// The effect of undoing it.
fn undoing(step: usize) -> String {
    effect(STEPS[step], false)
}

/// One of those who are called.
struct Desk(&'static str, World);

#[async_trait]
impl Resolver for Desk {
    fn name(&self) -> &str {
        self.0
    }

    fn operations(&self) -> &[&str] {
        &["reserve", "cancel"]
    }

    async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
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
            None => Ok(Resolved::Done),
        }
    }

    async fn has_happened(&self, call: &Call) -> Result<Option<bool>, Failure> {
        let facts = self.1.facts();
        Ok(facts.telling.then(|| facts.keys.contains(&call.idempotency_key())))
    }
}

type Ends = Arc<Mutex<Vec<Completed>>>;

fn booking<F: SagaFixture>(fixture: &F, world: &World, ends: &Ends) -> SagaRunnerBuilder<F::Sagas> {
    let noted = Arc::clone(ends);
    let builder = STEPS.iter().fold(SagaRunner::builder(fixture.sagas()), |builder, name| {
        builder.resolver(Desk(name, world.clone()))
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

/// Runs until nothing happens any more, whatever the time.
async fn run_out<F: SagaFixture>(fixture: &F, runner: &SagaRunner<F::Sagas>) {
    loop {
        run::<F>(runner).await;
        fixture.advance(minutes(120)).await;
        if runner.run_once().await.unwrap() == 0 {
            return;
        }
    }
}

fn done(steps: usize) -> Vec<String> {
    STEPS[..steps].iter().map(|name| effect(name, true)).collect()
}

/// What was done up to a step that failed, and undone in reverse.
fn made_good(failed: usize) -> Vec<String> {
    let undone = STEPS[..failed].iter().rev().map(|name| effect(name, false));
    done(failed).into_iter().chain(undone).collect()
}

fn ended(ends: &Ends) -> Vec<Ended> {
    ends.lock().unwrap().iter().map(|completed| completed.ended).collect()
}

/// One step after the other, and then it is complete.
pub async fn every_step_in_turn_and_it_is_complete<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let (world, ends) = (World::default(), Ends::default());
    let runner = booking(&fixture, &world, &ends).complete_to("ended").build().unwrap();
    let saga = begin(&fixture).await;
    assert_eq!(runner.run_once().await.unwrap(), 1);
    assert_eq!(runner.saga_state(saga).await.unwrap(), Some(State::Forward { step: 0 }));
    run_out(&fixture, &runner).await;
    assert_eq!(world.effects(), done(5));
    let completed = ends.lock().unwrap().clone();
    assert_eq!((completed.len(), completed[0].ended, completed[0].saga), (1, Ended::Completed, Some(saga)));
    assert_eq!((completed[0].operation.as_str(), completed[0].subject.as_str()), ("book-trip", "customer-1"));
    assert_eq!(runner.saga_state(saga).await.unwrap(), None, "its log is gone");
    assert_eq!(statuses::<F>(&runner).await, [(Status::Succeeded, 6)]);
    let mut kinds = vec![AuditKind::Succeeded; 5];
    kinds.push(AuditKind::Completed);
    assert_eq!(told(&fixture, "customer-1").await, kinds);
    let message = &list(&fixture, "ended", Room::Ready).await[0].message;
    assert_eq!(message.event_type().unwrap().as_str(), "follow-ups.completed");
}

/// Each step refused in turn: before the point of no return what was done is undone, in reverse; after it the saga waits, and goes on when
/// somebody has put the step back.
pub async fn each_step_failed_in_turn<F: SagaFixture>(fixture: F) {
    for failed in 0..STEPS.len() {
        let (world, ends) = (World::default().refusing(&doing(failed)), Ends::default());
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        if failed <= PIVOT {
            assert_eq!(world.effects(), made_good(failed), "step {failed}");
            assert_eq!(
                (world.reserved().len(), ended(&ends)),
                (0, vec![Ended::Compensated]),
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
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(State::StuckForward { step: stuck }));
        assert_eq!((world.effects(), ended(&ends)), (done(failed), vec![]));
        world.facts().refused.clear();
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!((world.effects(), ended(&ends)), (done(5), vec![Ended::Completed]));
    }
    verify(&*fixture.chain(), None).await.unwrap();
}

async fn requeue_all<S: postrider_core::Follow>(runner: &SagaRunner<S>) {
    let ids: Vec<_> = runner.list_abandoned(10).await.unwrap().iter().map(|docket| docket.id).collect();
    let requeued = runner.requeue(&ids, &Action::new("ada", "they are back")).await.unwrap();
    assert_eq!(requeued.requeued, ids);
}

/// Each call, there and back, is made and then comes to nothing, because it could not be told. The same call is made again, and nothing
/// happens twice, nor out of order.
pub async fn each_call_repeated<F: SagaFixture>(fixture: F) {
    // What fails, and which of the calls is made twice, counted from the first.
    for failed in [None, Some(PIVOT), Some(1)] {
        let calls = failed.map_or(5, |failed| 2 * failed + 1);
        for repeated in 0..calls {
            let world =
                failed.map_or_else(World::default, |failed| World::default().refusing(&doing(failed)));
            let (sink, ends) = (Flaky::default(), Ends::default());
            let runner = booking(&fixture, &world, &ends).audit(sink.clone()).build().unwrap();
            begin(&fixture).await;
            runner.run_once().await.unwrap();
            for _ in 0..repeated {
                assert_eq!(runner.run_once().await.unwrap(), 1);
            }
            sink.outages.store(1, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(runner.run_once().await.unwrap(), 1);
            lapse(&fixture).await;
            run_out(&fixture, &runner).await;
            let case = format!("failed {failed:?}, repeated {repeated}");
            // A refusal that was repeated is no longer certain: nobody knows what became of the first attempt.
            if failed == Some(repeated) {
                assert_eq!((world.effects(), ended(&ends)), (done(repeated), vec![]), "{case}");
                let dead = runner.list_abandoned(10).await.unwrap();
                fixture
                    .operate()
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
            let end = if failed.is_some() { Ended::Compensated } else { Ended::Completed };
            assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]), "{case}");
            assert_eq!(world.facts().calls.len(), calls + 1, "{case}");
        }
    }
}

/// Nobody knows whether a step had its effect: nothing is undone, and nothing goes on, until somebody does.
pub async fn a_doubt_compensates_nothing_until_it_is_resolved<F: SagaFixture>(fixture: F) {
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
                Some(State::InDoubt { step: number }),
                "{case}"
            );
            let so_far = done(step + usize::from(happened));
            assert_eq!((world.effects(), ended(&ends)), (so_far, vec![]), "{case}");
            let abandoned = runner.list_abandoned(10).await.unwrap();
            assert_eq!((abandoned.len(), abandoned[0].error.as_deref()), (1, Some("Silence")), "{case}");

            let action = Action::new("ada", "looked it up");
            runner.resolve_doubt(saga, happened, &action).await.unwrap();
            run_out(&fixture, &runner).await;
            let (effects, end) =
                if happened { (done(5), Ended::Completed) } else { (made_good(step), Ended::Compensated) };
            assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]), "{case}");
            assert_eq!(runner.list_abandoned(10).await.unwrap().len(), 0, "{case}");
            assert!(matches!(
                runner.resolve_doubt(saga, happened, &action).await,
                Err(Unresolved::Unknown(_))
            ));
        }
    }
    assert!(told(&fixture, "customer-1").await.contains(&AuditKind::Resolved));
}

/// A resolver that can tell is asked, and no hand is needed.
pub async fn a_resolver_that_can_tell_ends_the_doubt<F: SagaFixture>(fixture: F) {
    for happened in [true, false] {
        let world = World::default().silent(&doing(1), happened).telling();
        let ends = Ends::default();
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        begin(&fixture).await;
        run_out(&fixture, &runner).await;
        let (effects, end) =
            if happened { (done(5), Ended::Completed) } else { (made_good(1), Ended::Compensated) };
        assert_eq!((world.effects(), ended(&ends)), (effects, vec![end]));
    }
}

/// A call in doubt may be put back: if it succeeds, there is no doubt.
pub async fn a_doubt_that_is_requeued_may_end_well<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default().silent(&doing(2), true), Ends::default());
    let runner = booking(&fixture, &world, &ends).build().unwrap();
    begin(&fixture).await;
    run_out(&fixture, &runner).await;
    world.facts().silent.clear();
    requeue_all(&runner).await;
    run_out(&fixture, &runner).await;
    assert_eq!((world.effects(), ended(&ends)), (done(5), vec![Ended::Completed]));
}

/// A call that was in doubt and is refused now had its effect before, or had not: the refusal proves nothing.
pub async fn a_refusal_after_a_doubt_proves_nothing<F: SagaFixture>(fixture: F) {
    for happened in [true, false] {
        let (world, ends) = (World::default().silent(&doing(1), happened), Ends::default());
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        world.facts().silent.clear();
        world.facts().refused.insert(doing(1));
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(State::InDoubt { step: 1 }));
        assert_eq!((world.effects(), ended(&ends)), (done(1 + usize::from(happened)), vec![]));
        let action = Action::new("ada", "looked it up");
        runner.resolve_doubt(saga, happened, &action).await.unwrap();
        run_out(&fixture, &runner).await;
        let end = if happened { Ended::Completed } else { Ended::Compensated };
        assert_eq!(ended(&ends), [end]);
    }
}

/// Nor does one after the other side has named a time: what came before that is not forgotten.
pub async fn a_time_that_is_named_in_between_hides_no_doubt<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default().silent(&doing(1), true), Ends::default());
    let runner = booking(&fixture, &world, &ends).build().unwrap();
    let saga = begin(&fixture).await;
    for _ in 0..3 {
        assert_eq!(runner.run_once().await.unwrap(), 1);
    }
    world.facts().silent.clear();
    world.facts().put_off.insert(doing(1));
    fixture.advance(minutes(5)).await;
    assert_eq!(runner.run_once().await.unwrap(), 1);
    world.facts().put_off.clear();
    world.facts().refused.insert(doing(1));
    run_out(&fixture, &runner).await;
    assert_eq!(runner.saga_state(saga).await.unwrap(), Some(State::InDoubt { step: 1 }));
    assert_eq!((world.effects(), ended(&ends)), (done(2), vec![]));
}

/// An undoing that is given up waits, and those before it wait with it; put back, all of it is undone, in its order.
pub async fn an_undoing_that_is_stuck_goes_on_when_it_is_put_back<F: SagaFixture>(fixture: F) {
    for stuck in 0..PIVOT {
        let world = World::default().refusing(&doing(PIVOT)).refusing(&undoing(stuck));
        let ends = Ends::default();
        let runner = booking(&fixture, &world, &ends).build().unwrap();
        let saga = begin(&fixture).await;
        run_out(&fixture, &runner).await;
        let (failed, step) = (u32::try_from(PIVOT).unwrap(), u32::try_from(stuck).unwrap());
        assert_eq!(runner.saga_state(saga).await.unwrap(), Some(State::StuckBackward { failed, step }));
        assert_eq!(ended(&ends), []);
        world.facts().refused.remove(&undoing(stuck));
        requeue_all(&runner).await;
        run_out(&fixture, &runner).await;
        assert_eq!((world.effects(), ended(&ends)), (made_good(PIVOT), vec![Ended::Compensated]));
    }
}

/// A saga is staged once, however often; its calls have keys that follow from its identity.
pub async fn a_saga_is_begun_once_and_its_keys_are_its_own<F: SagaFixture>(fixture: F) {
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

/// A plan that nobody declared is given up, and a plan for which somebody is missing is refused at once.
pub async fn a_plan_must_be_known_and_have_all_its_resolvers<F: SagaFixture>(fixture: F) {
    let (world, ends) = (World::default(), Ends::default());
    begin(&fixture).await;
    let without = runner(&fixture, &[&Scripted::done("payments")]);
    run::<F>(&without).await;
    assert_eq!(without.list_abandoned(10).await.unwrap()[0].error.as_deref(), Some("UnknownPlan"));
    let refused = builder(&fixture, &[&Scripted::done("payments")]).plan(trip()).build().unwrap_err();
    assert!(refused.to_string().contains("nobody is there to reserve at flight"), "{refused}");
    let twice = booking(&fixture, &world, &ends).plan(trip()).build().unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    let taken = builder(&fixture, &[&Scripted::done("saga")]).build().unwrap_err();
    assert!(taken.to_string().contains("choose another name"), "{taken}");
}

/// Many sagas side by side, two runners, some refused at each step: each ends for itself.
pub async fn sagas_do_not_disturb_each_other<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let worlds: Vec<_> = (0..3).map(|refused| World::default().refusing(&doing(refused))).collect();
    let ends = Ends::default();
    // One world for each subject's number by three.
    struct Routed(&'static str, Vec<World>);
    #[async_trait]
    impl Resolver for Routed {
        fn name(&self) -> &str {
            self.0
        }
        fn operations(&self) -> &[&str] {
            &["reserve", "cancel"]
        }
        async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
            let number: usize = call.subject().as_str().parse()?;
            Desk(self.0, self.1[number % 3].clone()).resolve(call).await
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
    while one.status_counts().await.unwrap().of(Status::Pending) > 0 {
        tokio::join!(run::<F>(&one), run::<F>(&other));
    }
    let mut sagas: Vec<_> = ends.lock().unwrap().iter().map(|completed| completed.saga.unwrap()).collect();
    sagas.sort();
    sagas.dedup();
    assert_eq!((sagas.len(), ended(&ends)), (30, vec![Ended::Compensated; 30]));
    for (refused, world) in worlds.iter().enumerate() {
        let effects = world.effects();
        let reserved = effects.iter().filter(|effect| effect.starts_with('+')).count();
        assert_eq!((reserved, effects.len()), (10 * refused, 20 * refused), "what was done was undone");
    }
}
