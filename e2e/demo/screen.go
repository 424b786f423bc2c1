package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen is the output that the user sees. On a terminal a scene is drawn over the one before;
// elsewhere it becomes a line, if it has changed.
//
// Errors of writing are ignored: when the reader is gone, the process gets a signal.
type screen struct {
	out io.Writer
	ink ink
	// width of the terminal in cells; nil when there is none.
	width func() int

	drawn    int           // lines of the scene that stand above the cursor and may be drawn over
	hidden   bool          // the cursor
	lastLine string        // what was printed of a scene last
	lastAt   time.Duration // and when, since the wait began
}

// lineInterval is how often a line is printed at most while a scene changes.
const lineInterval = time.Second

// newScreen checks whether it writes to a terminal.
func newScreen(file *os.File, env func(string) string) *screen {
	s := &screen{out: file}
	fd := int(file.Fd())
	if !term.IsTerminal(fd) || env("TERM") == "dumb" {
		return s
	}
	s.ink = ink(env("NO_COLOR") == "")
	s.width = func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
	return s
}

// print prints lines, below a scene if there is one, which then stays as it is.
func (s *screen) print(lines ...string) {
	var text strings.Builder
	if s.hidden {
		text.WriteString("\r\x1b[K\x1b[?25h") // In place of a ^C that the terminal has echoed.
	}
	s.drawn, s.hidden, s.lastLine = 0, false, ""
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	_, _ = io.WriteString(s.out, text.String())
}

// title opens a step.
func (s *screen) title(number int, text string) {
	s.print("", fmt.Sprintf("%s  %s", s.ink.bold(s.ink.cyan(fmt.Sprintf("%2d", number))), s.ink.bold(text)))
}

// note prints an explanation.
func (s *screen) note(format string, args ...any) { s.print(margin + fmt.Sprintf(format, args...)) }

// command prints the command of a user.
func (s *screen) command(text string) { s.print(margin + s.ink.cyan("$ "+text)) }

// quote prints the output of another program.
func (s *screen) quote(text string) {
	for line := range strings.Lines(text) {
		s.print(margin + "  " + s.ink.dim(strings.TrimRight(line, "\r\n")))
	}
}

// log prints lines above a scene that is being shown. The scene has to be shown again.
func (s *screen) log(lines ...string) {
	if len(lines) == 0 {
		return
	}
	var text strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\r\x1b[J", s.drawn)
		s.drawn = 0
	}
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	_, _ = io.WriteString(s.out, text.String())
}

// show shows a scene, in place of the one before if nothing was printed between them.
func (s *screen) show(now scene) {
	if s.width == nil {
		s.showLine(now)
		return
	}
	var text strings.Builder
	if !s.hidden {
		text.WriteString("\x1b[?25l")
	}
	if s.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", s.drawn)
	}
	lines, width := frame(s.ink, now), s.width()
	for _, line := range lines {
		text.WriteString("\r" + clip(line, width-1) + "\x1b[K\n")
	}
	text.WriteString("\x1b[J")
	s.drawn, s.hidden = len(lines), true
	_, _ = io.WriteString(s.out, text.String())
	if now.outcome != waiting {
		s.print()
	}
}

func (s *screen) showLine(now scene) {
	text := line(now)
	if now.outcome == waiting && s.lastLine != "" && (text == s.lastLine || now.elapsed < s.lastAt+lineInterval) {
		return
	}
	s.print(fmt.Sprintf("%s%7s  %s", margin, seconds(now.elapsed), text))
	s.lastLine, s.lastAt = text, now.elapsed
	if now.outcome != waiting {
		s.lastLine = ""
	}
}
