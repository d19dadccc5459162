package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

// markdown returns the report. Its plots are files next to it whose names start with name.
func markdown(r *result.Result, drawn []drawing, name string) []byte {
	p := &page{}
	p.paragraph("# Cuelight's benchmark, %s, %s", r.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"), r.Mode)
	p.paragraph("Made from [%s.json](%[1]s.json), which has the raw figures; [%[1]s.txt](%[1]s.txt) is for benchstat. "+
		"Values are medians over the rounds, with their range in brackets. Percentiles are taken round by round.", r.Name())
	p.writeMachine(r)
	p.writeTargets(r)
	p.writeMap("## Not measured", []string{"what", "why"}, r.Skipped, func(key string) string { return key })
	if len(drawn) > 0 {
		p.paragraph("## Plots")
	}
	for _, d := range drawn {
		p.paragraph("![%s](%s-%s.svg)", d.title, name, d.name)
	}
	p.writeSections(r)
	p.writeMap("## Settings", []string{"of", "settings"}, r.Settings, func(key string) string {
		if key == "postgres" {
			return "PostgreSQL"
		}
		return label(scenarioLabel(key))
	})
	return p.Bytes()
}

func (p *page) writeMachine(r *result.Result) {
	m := r.Machine
	var versions []string
	for _, program := range sortedKeys(m.Versions) {
		versions = append(versions, program+" "+strings.TrimPrefix(m.Versions[program], program))
	}
	rows := [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"memory", formatNumber(float64(m.MemoryMiB)) + " MiB"},
		{"system", m.Kernel + ", " + m.Arch},
		{"database on", m.Filesystem},
		{"versions", strings.Join(versions, ", ")},
		{"commit", r.Commit},
	}
	if r.DurationSeconds > 0 {
		rows = append(rows, []string{"duration", (time.Duration(r.DurationSeconds) * time.Second).String()})
	}
	p.table([]string{"machine", ""}, rows)
}

func (p *page) writeTargets(r *result.Result) {
	if !HasTargets(r) {
		return
	}
	p.paragraph("## Targets")
	var rows [][]string
	for _, t := range checkTargets(r) {
		status := t.status
		if status == missed {
			status = "**no**"
		}
		rows = append(rows, []string{t.figure, t.bound, t.measured, status, t.note})
	}
	p.table([]string{"figure", "target:", "measured:", "reached", ""}, rows)
}

// writeMap writes a table of a map, or nothing.
func (p *page) writeMap(title string, heads []string, m map[string]string, label func(string) string) {
	if len(m) == 0 {
		return
	}
	p.paragraph("%s", title)
	var rows [][]string
	for _, key := range sortedKeys(m) {
		rows = append(rows, []string{label(key), m[key]})
	}
	p.table(heads, rows)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// page is a Markdown text.
type page struct{ bytes.Buffer }

// paragraph writes a paragraph or a heading.
func (p *page) paragraph(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n\n", args...) }

// table writes rows below heads. A head that ends with a colon is of numbers. Empty columns
// are omitted.
func (p *page) table(heads []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var names, rules []string
	var columns []int
	for i, name := range heads {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			continue
		}
		rule := "---"
		if n, ok := strings.CutSuffix(name, ":"); ok {
			name, rule = n, "--:"
		}
		names, rules, columns = append(names, name), append(rules, rule), append(columns, i)
	}
	p.row(names)
	p.row(rules)
	for _, row := range rows {
		var cells []string
		for _, i := range columns {
			cells = append(cells, row[i])
		}
		p.row(cells)
	}
	p.WriteByte('\n')
}

// escapeCell prevents text from ending the cell or starting an element.
var escapeCell = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace

func (p *page) row(cells []string) {
	for _, c := range cells {
		p.WriteString("| " + escapeCell(c) + " ")
	}
	p.WriteString("|\n")
}
