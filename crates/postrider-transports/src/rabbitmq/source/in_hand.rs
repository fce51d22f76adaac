//! What was delivered on a channel and has no answer yet.

use lapin::types::DeliveryTag;
use postrider_core::Answer;
use std::collections::BTreeSet;

/// The tags of a channel that wait for their answer. They are numbers in the order of delivery.
#[derive(Debug, Default)]
pub(super) struct InHand(BTreeSet<DeliveryTag>);

/// What goes to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// This one is done.
    Done(DeliveryTag),
    /// This one is done, and so is every one before it that has no answer yet.
    DoneUpTo(DeliveryTag),
    /// Back into the queue.
    Again(DeliveryTag),
    /// To the dead-letter exchange, or nowhere.
    Refuse(DeliveryTag),
}

impl InHand {
    pub(super) fn add(&mut self, tag: DeliveryTag) {
        self.0.insert(tag);
    }

    pub(super) fn holds(&self, tag: DeliveryTag) -> bool {
        self.0.contains(&tag)
    }

    /// Takes out what is answered: for each answer whether it was still waited for, and what to say, in this order. A tag that the
    /// broker does not wait for would cost the channel, and everything that is in hand with it.
    ///
    /// What is done is said with one word as far as nothing in front of it is open.
    pub(super) fn answer(&mut self, answers: &[(DeliveryTag, Answer)]) -> (Vec<bool>, Vec<Word>) {
        let (mut words, mut done) = (Vec::new(), BTreeSet::new());
        let mut take = |(tag, answer): &(DeliveryTag, Answer)| {
            let is_ours = self.0.remove(tag);
            match answer {
                _ if !is_ours => {}
                Answer::Done => drop(done.insert(*tag)),
                Answer::Again { .. } => words.push(Word::Again(*tag)),
                Answer::Refuse => words.push(Word::Refuse(*tag)),
            }
            is_ours
        };
        let taken = answers.iter().map(&mut take).collect();
        // The others were said before it, so that they are not among those that are done.
        let behind = self.0.first().map_or_else(BTreeSet::new, |open| done.split_off(open));
        match (done.len(), done.last()) {
            (1, Some(only)) => words.push(Word::Done(*only)),
            (_, Some(last)) => words.push(Word::DoneUpTo(*last)),
            (_, None) => {}
        }
        words.extend(behind.into_iter().map(Word::Done));
        (taken, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(tags: impl IntoIterator<Item = DeliveryTag>) -> InHand {
        InHand(tags.into_iter().collect())
    }

    fn done(tags: impl IntoIterator<Item = DeliveryTag>) -> Vec<(DeliveryTag, Answer)> {
        tags.into_iter().map(|tag| (tag, Answer::Done)).collect()
    }

    #[test]
    fn what_is_done_from_the_first_on_is_one_word() {
        let mut hand = holding(1..=5);
        assert_eq!(hand.answer(&done([2, 1, 3])), (vec![true; 3], vec![Word::DoneUpTo(3)]));
        assert_eq!(hand.answer(&done([5, 4])), (vec![true; 2], vec![Word::DoneUpTo(5)]));
    }

    #[test]
    fn nothing_that_is_open_is_answered_along() {
        let mut hand = holding(1..=6);
        let (_, words) = hand.answer(&done([1, 2, 4, 6]));
        assert_eq!(words, [Word::DoneUpTo(2), Word::Done(4), Word::Done(6)]);
        assert_eq!(hand.answer(&done([3])).1, [Word::Done(3)]);
        assert!(hand.holds(5) && !hand.holds(3));
    }

    #[test]
    fn what_is_not_done_is_said_before_what_is() {
        let mut hand = holding(1..=4);
        let answers = [(1, Answer::Done), (2, Answer::AT_ONCE), (3, Answer::Refuse), (4, Answer::Done)];
        assert_eq!(hand.answer(&answers).1, [Word::Again(2), Word::Refuse(3), Word::DoneUpTo(4)]);
    }

    #[test]
    fn a_second_answer_says_nothing() {
        let mut hand = holding(1..=2);
        assert_eq!(
            hand.answer(&[(1, Answer::Done), (1, Answer::AT_ONCE)]),
            (vec![true, false], vec![Word::Done(1)])
        );
        assert_eq!(hand.answer(&done([1])), (vec![false], vec![]));
    }
}
