//! Scorecards side by side, in the shape of the table of design.md 1. Pure.
use std::collections::{BTreeMap, BTreeSet};

use super::scorecard::Scorecard;

/// With more owners than this a column each would not fit a terminal.
const OWNERS_BY_NAME: usize = 4;
/// So many sorts of what was left behind are named, the rest is counted.
const NAMED: usize = 2;

impl Scorecard {
    /// Plain text, a row for each run and a line at its end.
    #[must_use]
    pub fn table(runs: &[(&str, &Self)]) -> String {
        let owners: BTreeSet<&str> = runs
            .iter()
            .flat_map(|(_, card)| card.owners.keys())
            .map(String::as_str)
            .collect();
        let owners: Vec<&str> = owners.into_iter().collect();
        let largest = largest(runs);
        let pods = runs.iter().map(|(_, c)| c.pods).max().unwrap_or_default();
        let unavailable = if owners.len() <= OWNERS_BY_NAME {
            owners
                .iter()
                .map(|o| short(o))
                .collect::<Vec<_>>()
                .join(" / ")
        } else {
            format!("{} workloads", owners.len())
        };
        let header = [
            "way".to_owned(),
            "finished".to_owned(),
            "s".to_owned(),
            format!("moves for {pods}"),
            "double, needless".to_owned(),
            format!("unavailable {unavailable}"),
            largest.map_or_else(
                || "most down".to_owned(),
                |o| format!("most of {} down", short(o)),
            ),
            "nodes +, -".to_owned(),
            "requests a move".to_owned(),
            "left behind".to_owned(),
            "broken".to_owned(),
        ];
        let rows = runs.iter().map(|(name, card)| {
            [
                (*name).to_owned(),
                if card.finished { "yes" } else { "never" }.to_owned(),
                format!("{:.0}", card.wall_seconds),
                card.moves.to_string(),
                format!("{}, {}", card.double_moves, card.needless_moves),
                card.unavailable(&owners),
                card.most_down(largest),
                format!("{}, {}", card.nodes.made, card.nodes.removed),
                card.requests_per_move
                    .map_or_else(|| "-".to_owned(), |r| format!("{r:.1}")),
                named(&card.left_behind),
                if card.broken_invariants.is_empty() {
                    "-".to_owned()
                } else {
                    card.broken_invariants.len().to_string()
                },
            ]
        });
        align(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
    }

    fn unavailable(&self, owners: &[&str]) -> String {
        if owners.len() > OWNERS_BY_NAME {
            let sum: f64 = self
                .owners
                .values()
                .map(|o| o.unavailable_pod_seconds)
                .sum();
            return format!("{sum:.0}");
        }
        owners
            .iter()
            .map(|o| {
                self.owners.get(*o).map_or_else(
                    || "-".to_owned(),
                    |s| format!("{:.0}", s.unavailable_pod_seconds),
                )
            })
            .collect::<Vec<_>>()
            .join(" / ")
    }

    fn most_down(&self, owner: Option<&str>) -> String {
        owner.and_then(|o| self.owners.get(o)).map_or_else(
            || "-".to_owned(),
            |s| {
                if s.most_unavailable > 0 && s.most_unavailable == s.replicas {
                    format!("{} of {}", s.most_unavailable, s.replicas)
                } else {
                    s.most_unavailable.to_string()
                }
            },
        )
    }
}

/// The owner with the most replicas.
fn largest<'a>(runs: &[(&str, &'a Scorecard)]) -> Option<&'a str> {
    runs.iter()
        .flat_map(|(_, card)| &card.owners)
        .max_by_key(|(name, score)| (score.replicas, std::cmp::Reverse(*name)))
        .map(|(name, _)| name.as_str())
}

/// `default/Deployment/web` as `web`.
fn short(owner: &str) -> &str {
    owner.rsplit('/').next().unwrap_or(owner)
}

/// `Node a: cordon`, `Node b: cordon` as `2 x cordon`: the names are in the scorecard, and would not fit here.
fn named(things: &[String]) -> String {
    let mut sorts: BTreeMap<&str, u32> = BTreeMap::new();
    for thing in things {
        let sort = thing
            .split_once(": ")
            .map_or(thing.as_str(), |(_, what)| what);
        *sorts.entry(sort).or_default() += 1;
    }
    let mut out: Vec<String> = sorts
        .iter()
        .take(NAMED)
        .map(|(sort, count)| match count {
            1 => (*sort).to_owned(),
            n => format!("{n} x {sort}"),
        })
        .collect();
    let more: u32 = sorts.values().skip(NAMED).sum();
    if more > 0 {
        out.push(format!("{more} more"));
    }
    if out.is_empty() {
        "-".to_owned()
    } else {
        out.join(", ")
    }
}

fn align<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in rows {
        let line: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
