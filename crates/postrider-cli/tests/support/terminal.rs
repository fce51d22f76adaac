//! A pseudo-terminal that the program writes to.

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};
use std::{
    fs::File,
    io::Read,
    num::NonZeroU16,
    process::{Child, Command, ExitStatus},
};

const ROWS: u16 = 30;
const COLUMNS: u16 = 90;
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const END_OF_FRAME: &str = "\x1b[?2026l";

/// Runs the program on a terminal of 30 rows and 90 columns, and returns its output and exit status.
pub(crate) fn on_a_terminal(command: Command) -> (String, ExitStatus) {
    let (mut master, mut child) = start(command);
    let mut seen = Vec::new();
    // Linux reports the closing of the other end as an error.
    let _ = master.read_to_end(&mut seen);
    (String::from_utf8(seen).unwrap(), child.wait().unwrap())
}

/// Like `on_a_terminal`, and interrupts the program after its first frame. Asserts that Ctrl-C would have done so as well.
pub(crate) fn interrupted_on_a_terminal(command: Command) -> (String, ExitStatus) {
    let (mut master, mut child) = start(command);
    let mut seen = Vec::new();
    while !seen.windows(END_OF_FRAME.len()).any(|bytes| bytes == END_OF_FRAME.as_bytes()) {
        let mut byte = [0];
        master.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    let flags = tcgetattr(&master).unwrap().local_flags;
    assert!(flags.contains(LocalFlags::ISIG | LocalFlags::ICANON), "raw mode: {flags:?}");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let _ = master.read_to_end(&mut seen);
    (String::from_utf8(seen).unwrap(), child.wait().unwrap())
}

fn start(mut command: Command) -> (File, Child) {
    let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let error = terminal.slave.try_clone().unwrap();
    command.stdout(terminal.slave).stderr(error);
    if command.get_envs().all(|(name, _)| name != "TERM") {
        command.env("TERM", "xterm");
    }
    // The command is dropped, which closes this end of the terminal, so that reading ends with the program.
    (File::from(terminal.master), command.spawn().unwrap())
}

/// The output of a full-screen view.
pub(crate) struct FullScreenOutput {
    /// The text on the screen after each frame.
    pub(crate) frames: Vec<String>,
    /// The bytes written while the alternate screen is open.
    pub(crate) drawn: String,
    /// The bytes written afterwards.
    pub(crate) after: String,
}

/// Asserts that the alternate screen is opened without a cursor, and that the terminal is restored.
pub(crate) fn full_screen(seen: &str) -> FullScreenOutput {
    let (drawn, after) = seen.split_once(LEAVE).expect("the alternate screen is closed");
    assert!(drawn.starts_with(ENTER), "{seen:?}");
    let [rows, columns] = [ROWS, COLUMNS].map(|length| NonZeroU16::new(length).unwrap());
    let mut parser = vt100::Parser::new(rows, columns, 0);
    let mut frames = Vec::new();
    for frame in drawn.split_inclusive(END_OF_FRAME) {
        parser.process(frame.as_bytes());
        if frame.starts_with(ENTER) || frame.starts_with("\x1b[?2026h") {
            assert!(parser.screen().alternate_screen() && parser.screen().hide_cursor(), "{frame:?}");
            frames.push(parser.screen().contents());
        }
    }
    parser.process(LEAVE.as_bytes());
    assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor(), "{seen:?}");
    FullScreenOutput { frames, drawn: drawn.to_owned(), after: after.to_owned() }
}
