//! Where the lines go: under a first line that stands, or one after the other into a pipe.
//!
//! On a terminal the rows below the first are a scroll region (DECSTBM) that lines are written into; the first is drawn over and over. A
//! size that cannot be asked for, or is too small for two rows, is a pipe's. Whatever ends the command gives the terminal its whole size back.

use std::io::Write;

/// Fewer rows or columns have no place for a first line.
const ROWS_MIN: u16 = 4;
const COLUMNS_MIN: u16 = 20;

pub struct Screen {
    wanted: bool,
    /// Rows and columns of the region that was set; `None` while there is none.
    set: Option<(u16, u16)>,
    drawn: String,
}

impl Screen {
    pub fn new(wanted: bool) -> Screen {
        Screen { wanted, set: None, drawn: String::new() }
    }

    pub fn is_terminal(&self) -> bool {
        self.wanted
    }

    /// Sets the first line apart.
    pub fn enter(&mut self) {
        if !self.wanted {
            return;
        }
        let Some((rows, columns)) = size() else { return };
        if self.set == Some((rows, columns)) {
            return;
        }
        self.set = Some((rows, columns));
        self.drawn.clear();
        // The region, then to its last row: lines come in from below.
        write(&format!("\x1b[2;{rows}r\x1b[{rows};1H"));
    }

    /// One line, which others cannot have put anything into that a terminal obeys. Returns whether anybody reads on.
    pub fn print(&mut self, line: &str) -> bool {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_ok()
    }

    /// The first line, where it has a place and is another than before. `status` is plain text.
    pub fn draw(&mut self, status: &str) {
        if !self.wanted {
            return;
        }
        self.enter();
        let Some((_, columns)) = self.set else { return };
        let text = cut(status, usize::from(columns));
        if text != self.drawn {
            // Save, go there, reversed and empty to its end, back.
            write(&format!("\x1b7\x1b[1;1H\x1b[7m{text}\x1b[K\x1b[0m\x1b8"));
            self.drawn = text;
        }
    }

    /// The whole terminal again, the cursor under what was printed.
    pub fn leave(&mut self) {
        if let Some((rows, _)) = self.set.take() {
            write(&format!("\x1b[r\x1b[{rows};1H\x1b[0m\n"));
        }
    }
}

fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_row >= ROWS_MIN && size.ws_col >= COLUMNS_MIN).then_some((size.ws_row, size.ws_col))
}

/// At most so many characters. Wide ones take two columns, so they are counted twice: a line that is too short is better than one that
/// wraps into the region.
fn cut(text: &str, columns: usize) -> String {
    let mut left = columns;
    let mut out = String::new();
    for c in text.chars() {
        let width = if c.is_ascii() { 1 } else { 2 };
        if width > left {
            break;
        }
        left -= width;
        out.push(c);
    }
    out
}

fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    // Who does not read the lines does not miss this; `print` notices.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_first_line_never_wraps() {
        assert_eq!(cut("derby 2-1", 20), "derby 2-1");
        assert_eq!(cut("derby 2-1", 5), "derby");
        assert_eq!(cut("日本語", 5), "日本");
    }
}
