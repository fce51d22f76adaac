//! Whom a command calls, and under which identity.

use super::*;
use crate::MessageId;
use std::collections::HashSet;

fn saga() -> MessageId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

#[test]
fn follow_up_id_is_stable() {
    let ids = [Command::perform(0), Command::undo(0), Command::perform(1), Command::undo(99)]
        .map(|command| format!("{command}: {}", command.follow_up_id(saga())));
    insta::assert_snapshot!(ids.join("\n"), @r#"
    do step 0: 01890a5d-ac96-838a-8bfb-2df0f18a0348
    undo step 0: 01890a5d-ac96-8341-b30a-28e9a33dc9b5
    do step 1: 01890a5d-ac96-8340-bcf8-0d7cabb92984
    undo step 99: 01890a5d-ac96-8d9f-a6e8-57f3f5d7d1b1
    "#);
}

#[test]
fn follow_up_ids_are_distinct_for_each_call_and_saga() {
    let other = MessageId::from_uuid("01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap());
    let sagas = [saga(), other];
    let all: HashSet<_> = (0..100)
        .flat_map(|step| [Command::perform(step), Command::undo(step)])
        .flat_map(|command| sagas.map(|saga| command.follow_up_id(saga)))
        .chain(sagas)
        .collect();
    assert_eq!(all.len(), 402);
    for id in all.into_iter().filter(|id| !sagas.contains(id)) {
        let uuid = id.as_uuid();
        assert_eq!((uuid.get_version_num(), uuid.get_variant()), (8, uuid::Variant::RFC4122));
        assert_eq!(uuid.as_bytes()[..6], saga().as_uuid().as_bytes()[..6], "it lies beside its saga");
    }
}

#[test]
fn command_maps_to_resolver_and_operation_of_its_step() {
    let plan = plan("CPR");
    let called = |command| plan.call(command).map(|(who, what)| (who.as_str(), what.as_str()));
    assert_eq!(called(Command::perform(0)), Some(("resolver-0", "do-it")));
    assert_eq!(called(Command::undo(0)), Some(("resolver-0", "undo-it")));
    assert_eq!(called(Command::perform(2)), Some(("resolver-2", "do-it")));
    for nobody in [Command::undo(1), Command::undo(2), Command::perform(3), Command::undo(u32::MAX)] {
        assert_eq!(called(nobody), None);
    }
}
