//! The condition list of a relocation. Pure: no client, and the time is a parameter.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message of a condition, in bytes: the limit of the schema, beyond which the API server refuses the status.
pub const MAX_MESSAGE_BYTES: usize = 8192;

/// The conditions that a relocation has. Together they are what kstatus, `kubectl wait` and Argo CD read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// True only when the relocation finished well; its reason is the stage.
    Ready,
    /// Present, and then True, while the relocation works towards its end.
    Reconciling,
    /// Present, and then True, while the relocation can't go on by itself: blocked or failed.
    Stalled,
    /// Unknown until the end, then True or False for good.
    Succeeded,
}

words!(ConditionType: Ready, Reconciling, Stalled, Succeeded);

/// The three values that a condition can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It can't be told yet.
    Unknown,
}

words!(ConditionStatus: True, False, Unknown);

/// The condition of that type, if there is one.
#[must_use]
pub fn find_condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == type_.as_str())
}

/// Sets the condition of that type, in place if there is one, so that the order on the wire never changes.
///
/// `lastTransitionTime` moves to `now` only when the status changes: a new reason or message is no transition. With
/// equal arguments the list stays as it is, whatever `now` says, so that a pass that finds nothing new writes nothing.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: ConditionType,
    status: ConditionStatus,
    reason: impl fmt::Display,
    message: impl Into<String>,
    now: Time,
    generation: i64,
) {
    let mut condition = Condition {
        last_transition_time: now,
        message: cut(message.into(), MAX_MESSAGE_BYTES),
        observed_generation: Some(generation),
        reason: reason.to_string(),
        status: status.as_str().to_owned(),
        type_: type_.as_str().to_owned(),
    };
    match conditions
        .iter_mut()
        .find(|there| there.type_ == condition.type_)
    {
        Some(there) => {
            if there.status == condition.status {
                condition.last_transition_time = there.last_transition_time.clone();
            }
            *there = condition;
        }
        None => conditions.push(condition),
    }
}

/// Removes the condition of that type, if there is one.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: ConditionType) {
    conditions.retain(|condition| condition.type_ != type_.as_str());
}

/// Cuts a text to that many bytes, at the border of a character, and shows that it was cut. Control characters become spaces: in JSON
/// each takes six bytes, and a person who reads the text in a terminal is not to be surprised.
pub(crate) fn cut(mut text: String, max_bytes: usize) -> String {
    const MARK: &str = "...";
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn set(
        list: &mut Vec<Condition>,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        second: i64,
    ) {
        set_condition(
            list,
            ConditionType::Ready,
            status,
            reason,
            message,
            at(second),
            3,
        );
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = vec![];
        set(
            &mut list,
            ConditionStatus::False,
            "Planning",
            "looks around",
            10,
        );
        set(
            &mut list,
            ConditionStatus::False,
            "Moving",
            "moves 7 pods",
            20,
        );
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].last_transition_time, at(10));
        assert_eq!(list[0].reason, "Moving");
        assert_eq!(list[0].observed_generation, Some(3));

        set(
            &mut list,
            ConditionStatus::True,
            "Succeeded",
            "moved 7 pods",
            30,
        );
        assert_eq!(list[0].last_transition_time, at(30));
    }

    #[test]
    fn setting_the_same_again_changes_nothing() {
        let mut list = vec![];
        set(
            &mut list,
            ConditionStatus::False,
            "Planning",
            "looks around",
            10,
        );
        let before = list.clone();
        set(
            &mut list,
            ConditionStatus::False,
            "Planning",
            "looks around",
            99,
        );
        assert_eq!(list, before);
    }

    #[test]
    fn others_keep_their_place() {
        let mut list = vec![];
        for type_ in [
            ConditionType::Ready,
            ConditionType::Reconciling,
            ConditionType::Succeeded,
        ] {
            set_condition(
                &mut list,
                type_,
                ConditionStatus::Unknown,
                "Pending",
                "",
                at(1),
                1,
            );
        }
        remove_condition(&mut list, ConditionType::Reconciling);
        remove_condition(&mut list, ConditionType::Stalled);
        set(&mut list, ConditionStatus::False, "Planning", "", 2);
        let types: Vec<&str> = list
            .iter()
            .map(|condition| condition.type_.as_str())
            .collect();
        assert_eq!(types, ["Ready", "Succeeded"]);
        assert!(find_condition(&list, ConditionType::Stalled).is_none());
    }

    #[test]
    fn a_message_is_cut_at_a_character() {
        let mut list = vec![];
        set(
            &mut list,
            ConditionStatus::False,
            "Planning",
            &"ä".repeat(MAX_MESSAGE_BYTES),
            1,
        );
        assert!(list[0].message.len() <= MAX_MESSAGE_BYTES);
        assert!(list[0].message.ends_with("ä..."));
    }
}
