//! A relocation as it runs: on a terminal a block that is kept up to date, elsewhere a line for each change.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use lab::operator::Relocation;

use crate::clock::Clock;
use crate::moves::{Move, Moves, Now};
use crate::text;

/// Where the width of the terminal can't be had.
const WIDTH: usize = 120;

/// The view.
#[derive(Debug)]
pub(crate) struct Live {
    terminal: bool,
    /// Lines of the block on the screen.
    drawn: usize,
    /// Lines that were said, so that each is said once.
    headline: String,
    said: BTreeSet<String>,
}

impl Live {
    pub(crate) fn start() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            drawn: 0,
            headline: String::new(),
            said: BTreeSet::new(),
        }
    }

    pub(crate) fn show(&mut self, clock: &Clock, relocation: &Relocation, moves: &Moves) {
        let headline = headline(relocation);
        if !self.terminal {
            if self.headline != headline {
                clock.say(&headline);
                self.headline = headline;
            }
            for one in moves.all() {
                let done = elsewhere(one).filter(|_| is_moved(one));
                if let Some(line) = done.filter(|line| self.said.insert(line.clone())) {
                    clock.say(&format!("    {line}"));
                }
            }
            return;
        }
        let rows: Vec<[String; 2]> = moves
            .all()
            .iter()
            .map(|one| [format!("  {}", one.pod), place(one)])
            .collect();
        let mut lines = vec![headline];
        lines.extend(relocation.blockers.iter().map(|b| format!("  ! {b}")));
        lines.extend(text::columns(&rows));
        self.draw(&lines);
    }

    fn draw(&mut self, lines: &[String]) {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let width = size
            .map(|size| usize::from(size.ws_col))
            .filter(|width| *width > 0);
        let width = width.unwrap_or(WIDTH);
        let mut out = String::new();
        if self.drawn > 0 {
            let _ = write!(out, "\x1b[{}A", self.drawn);
        }
        for line in lines {
            let _ = writeln!(out, "\x1b[2K{}", text::cut(line, width));
        }
        // What is left of a longer block.
        out.push_str("\x1b[J");
        let mut terminal = io::stdout().lock();
        // A view that can't be shown does not end what is viewed.
        let _ = terminal.write_all(out.as_bytes());
        let _ = terminal.flush();
        self.drawn = lines.len();
    }
}

/// `Moving, nodes 1/3, pods 4/10: waits for ...`
pub(crate) fn headline(relocation: &Relocation) -> String {
    let Relocation {
        stage,
        message,
        nodes,
        pods,
        ..
    } = relocation;
    if stage.is_empty() {
        return "not seen by the operator yet".to_owned();
    }
    let progress = if nodes.is_empty() && pods.is_empty() {
        String::new()
    } else {
        format!(", nodes {nodes}, pods {pods}")
    };
    let colon = if message.is_empty() { "" } else { ": " };
    format!("{stage}{progress}{colon}{message}")
}

/// The old one is gone, the new one serves.
fn is_moved(one: &Move) -> bool {
    matches!(
        one.now,
        Now::Elsewhere {
            ready: true,
            beside: false,
            ..
        }
    )
}

/// `web-a: node-1 -> node-2`, once the new place is known.
fn elsewhere(one: &Move) -> Option<String> {
    let Move { pod, from, .. } = one;
    match &one.now {
        Now::Elsewhere {
            pod: new,
            node: Some(node),
            ..
        } => Some(if pod == new {
            format!("{pod}: {from} -> {node}")
        } else {
            format!("{pod}: {from} -> {node} as {new}")
        }),
        Now::Elsewhere { node: None, .. } | Now::There | Now::Leaving => None,
    }
}

/// Old place and new one, in words.
fn place(one: &Move) -> String {
    let from = &one.from;
    match &one.now {
        Now::There => from.clone(),
        Now::Leaving => format!("{from} ->"),
        Now::Elsewhere {
            pod,
            node,
            ready,
            beside,
        } => {
            let node = node.as_deref().unwrap_or("no place yet");
            let state = if *ready { "Ready" } else { "starting" };
            let old = if *beside {
                ", the old one is still there"
            } else {
                ""
            };
            let name = if *pod == one.pod {
                String::new()
            } else {
                format!(" as {pod}")
            };
            format!("{from} -> {node}, {state}{name}{old}")
        }
    }
}
