package ui

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"net/url"
	"slices"
	"strings"
)

// key names what a page looks at. Pages with the same key share what is read and
// rendered for them.
type key struct {
	page  string
	query string // encoded, so in one order
	acts  bool   // with buttons
	adds  bool   // files can be dropped on it
}

func (k key) values() url.Values {
	v, _ := url.ParseQuery(k.query) // it was encoded from values
	return v
}

// part is a piece of a page that changes as a whole: an element with an id, alone or
// in a list of such.
type part struct {
	id, list, html string
}

// screen is what can change of a page. Its parts of one list are in its order.
type screen struct {
	title   string
	parts   []part
	version string
}

func newScreen(title string, parts []part) screen {
	h := fnv.New64a()
	for _, p := range parts {
		fmt.Fprintf(h, "%s %s %d\n%s", p.id, p.list, len(p.html), p.html)
	}
	return screen{title: title, parts: parts, version: fmt.Sprintf("%016x", h.Sum64())}
}

// part is the HTML of one piece.
func (s screen) part(id string) template.HTML {
	for _, p := range s.parts {
		if p.id == id && p.list == "" {
			return template.HTML(p.html) // rendered by a template
		}
	}
	return ""
}

// all is the HTML of a list.
func (s screen) all(list string) template.HTML {
	var b strings.Builder
	for _, p := range s.parts {
		if p.list == list {
			b.WriteString(p.html)
		}
	}
	return template.HTML(b.String()) // rendered by templates
}

// lists are the names of the lists that a screen has.
func (s screen) lists() []string {
	var names []string
	for _, p := range s.parts {
		if p.list != "" && !slices.Contains(names, p.list) {
			names = append(names, p.list)
		}
	}
	return names
}

// partial is an instruction for the browser: what is to be done with an element.
func partial(b *strings.Builder, target, swap, html string) {
	fmt.Fprintf(b, `<hx-partial hx-target="#%s" hx-swap="%s">%s</hx-partial>`, target, swap, html)
}

// whole are the instructions that bring any older state of the page to this one.
func (s screen) whole() string {
	var b strings.Builder
	for _, p := range s.parts {
		if p.list == "" {
			partial(&b, p.id, "outerMorph", p.html)
		}
	}
	for _, list := range s.lists() {
		partial(&b, list, "innerMorph", string(s.all(list)))
	}
	return b.String()
}

// since are the instructions that bring the page from one state to the next. The
// browser finds all targets before it does anything, so rows that are new are put
// in together, behind one that was there.
func (s screen) since(old screen) string {
	var b strings.Builder
	for _, p := range s.parts {
		if p.list != "" {
			continue
		}
		if string(old.part(p.id)) != p.html {
			partial(&b, p.id, "outerMorph", p.html)
		}
	}
	lists := s.lists()
	for _, list := range old.lists() {
		if !slices.Contains(lists, list) {
			lists = append(lists, list)
		}
	}
	for _, list := range lists {
		changeList(&b, list, old.rows(list), s.rows(list))
	}
	return b.String()
}

func (s screen) rows(list string) []part {
	var rows []part
	for _, p := range s.parts {
		if p.list == list {
			rows = append(rows, p)
		}
	}
	return rows
}

func changeList(b *strings.Builder, list string, old, now []part) {
	was := make(map[string]int, len(old))
	for i, p := range old {
		was[p.id] = i
	}
	// What stays is what is in both in the same order; what moved is taken away
	// and put in anew.
	stays := make(map[string]bool, len(now))
	last := -1
	for _, p := range now {
		if i, ok := was[p.id]; ok && i > last {
			stays[p.id], last = true, i
		}
	}
	for _, p := range old {
		if !stays[p.id] {
			partial(b, p.id, "delete", "")
		}
	}
	behind, added := "", ""
	flush := func() {
		switch {
		case added == "":
		case behind == "":
			partial(b, list, "afterbegin", added)
		default:
			partial(b, behind, "afterend", added)
		}
		added = ""
	}
	for _, p := range now {
		if !stays[p.id] {
			added += p.html
			continue
		}
		flush()
		behind = p.id
		if old[was[p.id]].html != p.html {
			partial(b, p.id, "outerMorph", p.html)
		}
	}
	flush()
}
