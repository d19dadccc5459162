package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

// page is Markdown that grows.
type page struct{ bytes.Buffer }

func (p *page) say(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n\n", args...) }

// table writes rows below a head; a head that ends with a colon is of numbers.
// Columns that have nothing in them are left out.
func (p *page) table(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var names, rules []string
	var columns []int
	for i, name := range head {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			continue
		}
		rule := "---"
		if n, ok := strings.CutSuffix(name, ":"); ok {
			name, rule = n, "--:"
		}
		names, rules, columns = append(names, name), append(rules, rule), append(columns, i)
	}
	p.line(names)
	p.line(rules)
	for _, row := range rows {
		var cells []string
		for _, i := range columns {
			cells = append(cells, row[i])
		}
		p.line(cells)
	}
	p.WriteByte('\n')
}

func (p *page) line(cells []string) {
	for _, c := range cells {
		p.WriteString("| " + cell(c) + " ")
	}
	p.WriteString("|\n")
}

// cell is text that does not end the cell, nor begin an element.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

// markdown is the report; its plots are beside it, named after it.
func markdown(r *result.Result, drawn []drawing, name string) []byte {
	p := &page{}
	p.say("# Cuelight's benchmark, %s, %s", r.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"), r.Mode)
	p.say("Made from [%s.json](%[1]s.json), which has the raw figures; [%[1]s.txt](%[1]s.txt) is for benchstat. "+
		"What is said is the median over the rounds; in brackets is their range. Percentiles are taken round by round.", r.Name())
	p.machine(r)
	p.targets(r)
	p.missing(r)
	if len(drawn) > 0 {
		p.say("## Plots")
	}
	for _, d := range drawn {
		p.say("![%s](%s-%s.svg)", d.title, name, d.name)
	}
	p.groups(r)
	p.settings(r)
	return p.Bytes()
}

func (p *page) machine(r *result.Result) {
	m := r.Machine
	var versions []string
	for _, program := range sortedKeys(m.Versions) {
		versions = append(versions, program+" "+strings.TrimPrefix(m.Versions[program], program))
	}
	took := ""
	if r.DurationSeconds > 0 {
		took = (time.Duration(r.DurationSeconds) * time.Second).String()
	}
	rows := [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", formatNumber(float64(m.MemoryMiB)) + " MiB"},
		{"system", m.Kernel + ", " + m.Arch},
		{"database on", m.Filesystem},
		{"versions", strings.Join(versions, ", ")},
		{"commit", r.Commit},
	}
	if took != "" {
		rows = append(rows, []string{"took", took})
	}
	p.table([]string{"machine", "what"}, rows)
}

// targets are not judged by a run that has each of their figures from a few
// samples, if that.
func (p *page) targets(r *result.Result) {
	if !HasTargets(r) {
		return
	}
	p.say("## What it must reach")
	var rows [][]string
	for _, v := range CheckTargets(r) {
		state := string(v.Status)
		if v.Status == Missed {
			state = "**no**"
		}
		rows = append(rows, []string{v.Figure, v.Bound, v.Measured, state, v.Note})
	}
	p.table([]string{"figure", "to reach:", "reached:", "?", ""}, rows)
}

// missing says what went wrong, or could not be measured here.
func (p *page) missing(r *result.Result) {
	if len(r.Skipped) == 0 {
		return
	}
	p.say("## What is missing")
	var rows [][]string
	for _, what := range sortedKeys(r.Skipped) {
		rows = append(rows, []string{what, r.Skipped[what]})
	}
	p.table([]string{"what", "why"}, rows)
}

func (p *page) settings(r *result.Result) {
	if len(r.Settings) == 0 {
		return
	}
	p.say("## Settings")
	var rows [][]string
	for _, who := range sortedKeys(r.Settings) {
		name := label(who)
		switch {
		case who == "postgres":
			name = "PostgreSQL"
		case name == who:
			name = scenario(who)
		}
		rows = append(rows, []string{name, r.Settings[who]})
	}
	p.table([]string{"of", "what"}, rows)
}
