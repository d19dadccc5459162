package console

import (
	"fmt"
	"strings"
	"time"
)

// Screen draws lines at the bottom of a terminal, and redraws them in place below the text
// that is printed. It does not change the terminal's settings, so that there is nothing
// to restore but the lines.
type Screen struct {
	Out       *Stream
	lines     int    // that are drawn now
	lastDrawn string // the output that drew them; empty if other output followed
}

// Draw replaces the lines, in one write so that no incomplete drawing is seen.
func (s *Screen) Draw(lines []string) {
	if len(lines) == 0 && s.lines == 0 {
		return
	}
	width, height := s.Out.Size()
	if most := max(height-1, 1); len(lines) > most {
		lines = append(lines[:most-1:most-1], fmt.Sprintf("... and %d more", len(lines)-most+1))
	}
	var out strings.Builder
	s.moveHome(&out)
	for _, line := range lines {
		// Some terminals move the cursor to the next line after a line of full width.
		out.WriteString(Clip(line, width-1))
		out.WriteString("\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	if out.String() == s.lastDrawn {
		return
	}
	s.lines, s.lastDrawn = len(lines), out.String()
	fmt.Fprint(s.Out, s.lastDrawn)
}

// moveHome moves the cursor to the first line.
func (s *Screen) moveHome(out *strings.Builder) {
	if s.lines > 0 {
		fmt.Fprintf(out, "\x1b[%dA", s.lines)
	}
	out.WriteString("\r")
}

// Print prints text above the lines, which must be drawn again.
func (s *Screen) Print(text string) {
	var out strings.Builder
	if s.lines > 0 {
		s.moveHome(&out)
		out.WriteString("\x1b[J")
		s.lines, s.lastDrawn = 0, ""
	}
	fmt.Fprint(s.Out, out.String(), text, "\n")
}

// Clear removes the lines.
func (s *Screen) Clear() {
	if s.lines > 0 {
		s.Draw(nil)
	}
}

// ProgressRow is the state of a running stage.
type ProgressRow struct {
	Label     string
	Stage     string
	Percent   float64 // negative if unknown
	Counts    string  // of its parts, such as "41/121 parts"
	Others    string  // more of them, where there is room
	Speed     float64
	Remaining time.Duration
	Note      string
	Elapsed   time.Duration // 0 if unknown
}

const (
	barWidth = 20 // columns
	minLabel = 8
)

// Rows lays out running stages in columns for a terminal of the given width.
func (s *Stream) Rows(all []ProgressRow, width int) []string {
	// A minimum for the numbers keeps the columns in place when they grow.
	label, stage, rest, shortRest := 0, 0, 24, 24
	for _, r := range all {
		label = max(label, Width(r.Label))
		stage = max(stage, Width(r.Stage))
		rest = max(rest, Width(r.numbers(true)))
		shortRest = max(shortRest, Width(r.numbers(false)))
	}
	hasRoom := width-1-stage-rest-4 >= min(label, minLabel)
	if !hasRoom {
		rest = shortRest
	}
	bar, left := barWidth, width-1-stage-rest-4
	if left -= bar + 1; left < min(label, minLabel) {
		bar, left = 0, left+bar+1
	}
	label = min(label, max(left, minLabel))
	var lines []string
	for _, r := range all {
		line := Fit(r.Label, label) + "  " + Fit(r.Stage, stage) + "  "
		if bar > 0 {
			line += s.bar(r.Percent, bar) + " "
		}
		lines = append(lines, Clip(strings.TrimRight(line+r.numbers(hasRoom), " "), width-1))
	}
	return lines
}

// numbers returns " 42%  1.8x  0:31 left", or the parts that are known. With others it says all of the parts of a stage.
func (r ProgressRow) numbers(others bool) string {
	if r.Percent < 0 {
		if r.Elapsed >= time.Second {
			return fmt.Sprintf("%s  %s", r.Note, remaining(r.Elapsed))
		}
		return r.Note
	}
	text := fmt.Sprintf("%3.0f%%", min(r.Percent, 100))
	if r.Counts != "" {
		text += "  " + r.Counts
		if others {
			text += ", " + r.Others
		}
	}
	if r.Speed > 0 {
		text += fmt.Sprintf("  %.2fx", r.Speed)
	}
	if r.Remaining > 0 {
		text += "  " + remaining(r.Remaining) + " left"
	}
	return text
}

// String returns the numbers for a line of text: "42% 1.8x 0:31 left".
func (r ProgressRow) String() string { return strings.Join(strings.Fields(r.numbers(true)), " ") }

func (s *Stream) bar(percent float64, n int) string {
	full, empty := "#", "."
	if s.unicode {
		full, empty = "█", "░"
	}
	done := 0
	if percent > 0 {
		done = min(int(percent/100*float64(n)+0.5), n)
	}
	return strings.Repeat(full, done) + strings.Repeat(empty, n-done)
}
