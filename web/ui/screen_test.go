package ui

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

var instruction = regexp.MustCompile(`<hx-partial hx-target="#([^"]*)" hx-swap="([^"]*)">(.*?)</hx-partial>`)

var element = regexp.MustCompile(`<p id="([^"]*)">[^<]*</p>`)

// browse does with rows what a browser does with the instructions: it looks for all
// targets first.
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

func TestChangesBringAnyListToAnyOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		from, to := r.Perm(8)[:r.IntN(9)], r.Perm(8)[:r.IntN(9)]
		if r.IntN(2) == 0 { // mostly they are in order, as on the board
			slices.Sort(from)
			slices.Sort(to)
		}
		old := screenWithRows(from, func(int) int { return 0 })
		now := screenWithRows(to, func(int) int { return r.IntN(2) })
		if got := applyUpdates(t, "rows", rowsHTML(old), now.changesFrom(old)); !slices.Equal(got, rowsHTML(now)) {
			t.Fatalf("from %v to %v: got %v", from, rowsHTML(now), got)
		}
		if got := applyUpdates(t, "rows", rowsHTML(old), now.fullUpdate()); len(to) > 0 && !slices.Equal(got, rowsHTML(now)) {
			t.Fatalf("the whole of %v is %v", rowsHTML(now), got)
		}
	}
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	t.Parallel()
	old := newScreen("", []fragment{{"a", "", "<p>1</p>"}, {"b", "", "<p>2</p>"}})
	now := newScreen("", []fragment{{"a", "", "<p>1</p>"}, {"b", "", "<p>3</p>"}})
	if got := now.changesFrom(old); got != `<hx-partial hx-target="#b" hx-swap="outerMorph"><p>3</p></hx-partial>` {
		t.Errorf("got %s", got)
	}
	if old.version == now.version {
		t.Error("both have the same version")
	}
	if got := now.changesFrom(now); got != "" {
		t.Errorf("nothing changed, and %s is sent", got)
	}
}

func TestWorkerIsPausedWithItsHostAndWithEverything(t *testing.T) {
	t.Parallel()
	w := store.Worker{Host: "media-1", Connected: true, Lease: time.Minute}
	for name, c := range map[string]struct {
		paused     []store.Pause
		word       string
		hostPaused bool
	}{
		"nothing":      {nil, "idle", false},
		"a stage":      {[]store.Pause{{Stage: "ingest"}}, "idle", false},
		"another host": {[]store.Pause{{Host: "media-2"}}, "idle", false},
		"its host":     {[]store.Pause{{Host: "media-1"}}, "paused", true},
		"everything":   {[]store.Pause{{}}, "paused", false},
	} {
		if got := (&UI{}).worker(t.Context(), w, c.paused, true); got.Word != c.word || got.HostPaused != c.hostPaused {
			t.Errorf("%s is paused: it is %s, its host: %t", name, got.Word, got.HostPaused)
		}
	}
}
