package main

import (
	"fmt"
	"strings"
	"time"
)

// block is some lines at the bottom of a terminal that are drawn again and
// again in place, below whatever is printed for good. It leaves the terminal's
// settings alone, so there is nothing to restore but the lines themselves.
type block struct {
	to    *stream
	lines int    // how many there are
	last  string // what drew them; empty after anything else was printed
}

// draw replaces the block, in one write so that nothing half drawn is seen.
func (b *block) draw(lines []string) {
	if len(lines) == 0 && b.lines == 0 {
		return
	}
	width, height := b.to.size()
	if most := max(height-1, 1); len(lines) > most {
		lines = append(lines[:most-1:most-1], fmt.Sprintf("... and %d more", len(lines)-most+1))
	}
	var out strings.Builder
	b.home(&out)
	for _, line := range lines {
		// A line of the full width would move the cursor to the next one on
		// some terminals and not on others.
		out.WriteString(clip(line, width-1))
		out.WriteString("\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	if out.String() == b.last {
		return
	}
	b.lines, b.last = len(lines), out.String()
	fmt.Fprint(b.to, b.last)
}

// home moves to the block's first line.
func (b *block) home(out *strings.Builder) {
	if b.lines > 0 {
		fmt.Fprintf(out, "\x1b[%dA", b.lines)
	}
	out.WriteString("\r")
}

// print puts text above the block, which must be drawn again.
func (b *block) print(text string) {
	var out strings.Builder
	if b.lines > 0 {
		b.home(&out)
		out.WriteString("\x1b[J")
		b.lines, b.last = 0, ""
	}
	fmt.Fprint(b.to, out.String(), text, "\n")
}

// clear removes the block.
func (b *block) clear() {
	if b.lines > 0 {
		b.draw(nil)
	}
}

// row is one running stage, for people.
type row struct {
	label   string
	stage   string
	percent float64 // negative where the end is not known
	speed   float64
	left    time.Duration
	note    string
	since   time.Duration // 0 where it is not known
}

const (
	barWidth   = 20 // columns
	leastLabel = 8
)

// rows lays out running stages in columns, for a terminal of the width.
func (s *stream) rows(all []row, width int) []string {
	// At least so much for the numbers, so that nothing moves when they grow.
	label, stage, rest := 0, 0, 24
	for _, r := range all {
		label = max(label, textWidth(r.label))
		stage = max(stage, textWidth(r.stage))
		rest = max(rest, textWidth(r.numbers()))
	}
	bar, left := barWidth, width-1-stage-rest-4
	if left -= bar + 1; left < min(label, leastLabel) {
		bar, left = 0, left+bar+1
	}
	label = min(label, max(left, leastLabel))
	var lines []string
	for _, r := range all {
		line := fit(r.label, label) + "  " + fit(r.stage, stage) + "  "
		if bar > 0 {
			line += s.bar(r.percent, bar) + " "
		}
		lines = append(lines, clip(strings.TrimRight(line+r.numbers(), " "), width-1))
	}
	return lines
}

// numbers is " 42%  1.8x  0:31 left", or what is known of it.
func (r row) numbers() string {
	if r.percent < 0 {
		if r.since >= time.Second {
			return fmt.Sprintf("%s  %s", r.note, clock(r.since))
		}
		return r.note
	}
	text := fmt.Sprintf("%3.0f%%", min(r.percent, 100))
	if r.speed > 0 {
		text += fmt.Sprintf("  %.2fx", r.speed)
	}
	if r.left > 0 {
		text += "  " + clock(r.left) + " left"
	}
	return text
}

// words is a line for a file: "42%, 1.8x, 0:31 left".
func (r row) words() string { return strings.Join(strings.Fields(r.numbers()), " ") }

func (s *stream) bar(percent float64, n int) string {
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
