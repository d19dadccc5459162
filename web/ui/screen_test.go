package ui

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var instruction = regexp.MustCompile(`<hx-partial hx-target="#([^"]*)" hx-swap="([^"]*)">(.*?)</hx-partial>`)

var element = regexp.MustCompile(`<p id="([^"]*)">[^<]*</p>`)

// applyUpdates changes rows as htmx does: it looks up all targets first.
func applyUpdates(t *testing.T, list string, rows []string, text string) []string {
	t.Helper()
	todo := instruction.FindAllStringSubmatch(text, -1)
	at := func(id string) int {
		return slices.IndexFunc(rows, func(html string) bool { return strings.Contains(html, `id="`+id+`"`) })
	}
	for _, do := range todo {
		if do[1] != list && at(do[1]) < 0 {
			t.Fatalf("%s has no target in %v", do[0], rows)
		}
	}
	for _, do := range todo {
		target, swap, html := do[1], do[2], do[3]
		var added []string
		added = append(added, element.FindAllString(html, -1)...)
		switch swap {
		case "delete":
			rows = slices.Delete(rows, at(target), at(target)+1)
		case "outerMorph":
			rows[at(target)] = html
		case "afterbegin":
			rows = slices.Insert(rows, 0, added...)
		case "afterend":
			rows = slices.Insert(rows, at(target)+1, added...)
		case "innerMorph":
			rows = added
		}
	}
	return rows
}

func screenWithRows(ids []int, version func(int) int) screen {
	var parts []fragment
	for _, id := range ids {
		name := fmt.Sprintf("r%d", id)
		parts = append(parts, fragment{name, "rows", fmt.Sprintf(`<p id="%s">%d</p>`, name, version(id))})
	}
	return newScreen("", parts)
}

func rowsHTML(s screen) []string {
	var out []string
	for _, p := range s.fragments {
		out = append(out, p.html)
	}
	return out
}

func TestScreen_ChangesLeadFromAnyListToAnyOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		from, to := r.Perm(8)[:r.IntN(9)], r.Perm(8)[:r.IntN(9)]
		if r.IntN(2) == 0 { // sorted half of the time, as on the board
			slices.Sort(from)
			slices.Sort(to)
		}
		old := screenWithRows(from, func(int) int { return 0 })
		now := screenWithRows(to, func(int) int { return r.IntN(2) })
		if got := applyUpdates(t, "rows", rowsHTML(old), now.changesFrom(old)); !slices.Equal(got, rowsHTML(now)) {
			t.Fatalf("from %v to %v: got %v", from, rowsHTML(now), got)
		}
		if got := applyUpdates(t, "rows", rowsHTML(old), now.fullUpdate()); len(to) > 0 && !slices.Equal(got, rowsHTML(now)) {
			t.Fatalf("the full update of %v gives %v", rowsHTML(now), got)
		}
	}
}

func TestScreen_SendsOnlyChangedFragments(t *testing.T) {
	t.Parallel()
	old := newScreen("", []fragment{{"a", "", "<p>1</p>"}, {"b", "", "<p>2</p>"}})
	now := newScreen("", []fragment{{"a", "", "<p>1</p>"}, {"b", "", "<p>3</p>"}})
	if got := now.changesFrom(old); got != `<hx-partial hx-target="#b" hx-swap="outerMorph"><p>3</p></hx-partial>` {
		t.Errorf("got %s", got)
	}
	if old.version == now.version {
		t.Error("different screens have the same version")
	}
	if got := now.changesFrom(now); got != "" {
		t.Errorf("without a change, %s is sent", got)
	}
}
