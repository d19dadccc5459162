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
type viewKey struct {
	page       string
	query      string // encoded, so in one order
	canOperate bool   // with buttons
	canUpload  bool   // files can be dropped on it
}

func (k viewKey) values() url.Values {
	v, _ := url.ParseQuery(k.query) // it was encoded from values
	return v
}

// part is a piece of a page that changes as a whole: an element with an id, alone or
// in a list of such.
type fragment struct {
	id, list, html string
}

// screen is what can change of a page. Its parts of one list are in its order.
type screen struct {
	title     string
	fragments []fragment
	version   string
}

func newScreen(title string, parts []fragment) screen {
	h := fnv.New64a()
	for _, p := range parts {
		fmt.Fprintf(h, "%s %s %d\n%s", p.id, p.list, len(p.html), p.html)
	}
	return screen{title: title, fragments: parts, version: fmt.Sprintf("%016x", h.Sum64())}
}

// part is the HTML of one piece.
func (s screen) fragment(id string) template.HTML {
	for _, p := range s.fragments {
		if p.id == id && p.list == "" {
			return template.HTML(p.html) // rendered by a template
		}
	}
	return ""
}

// all is the HTML of a list.
func (s screen) list(list string) template.HTML {
	var b strings.Builder
	for _, p := range s.fragments {
		if p.list == list {
			b.WriteString(p.html)
		}
	}
	return template.HTML(b.String()) // rendered by templates
}

// lists are the names of the lists that a screen has.
func (s screen) lists() []string {
	var names []string
	for _, p := range s.fragments {
		if p.list != "" && !slices.Contains(names, p.list) {
			names = append(names, p.list)
		}
	}
	return names
}

// partial is an instruction for the browser: what is to be done with an element.
func writePartial(b *strings.Builder, target, swap, html string) {
	fmt.Fprintf(b, `<hx-partial hx-target="#%s" hx-swap="%s">%s</hx-partial>`, target, swap, html)
}

// whole are the instructions that bring any older state of the page to this one.
func (s screen) fullUpdate() string {
	var b strings.Builder
	for _, p := range s.fragments {
		if p.list == "" {
			writePartial(&b, p.id, "outerMorph", p.html)
		}
	}
	for _, list := range s.lists() {
		writePartial(&b, list, "innerMorph", string(s.list(list)))
	}
	return b.String()
}

// since are the instructions that bring the page from one state to the next. The
// browser finds all targets before it does anything, so rows that are new are put
// in together, behind one that was there.
func (s screen) changesFrom(old screen) string {
	var b strings.Builder
	for _, p := range s.fragments {
		if p.list != "" {
			continue
		}
		if string(old.fragment(p.id)) != p.html {
			writePartial(&b, p.id, "outerMorph", p.html)
		}
	}
	lists := s.lists()
	for _, list := range old.lists() {
		if !slices.Contains(lists, list) {
			lists = append(lists, list)
		}
	}
	for _, list := range lists {
		writeListChanges(&b, list, old.rows(list), s.rows(list))
	}
	return b.String()
}

func (s screen) rows(list string) []fragment {
	var rows []fragment
	for _, p := range s.fragments {
		if p.list == list {
			rows = append(rows, p)
		}
	}
	return rows
}

func writeListChanges(b *strings.Builder, list string, old, now []fragment) {
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
			writePartial(b, p.id, "delete", "")
		}
	}
	behind, added := "", ""
	flush := func() {
		switch {
		case added == "":
		case behind == "":
			writePartial(b, list, "afterbegin", added)
		default:
			writePartial(b, behind, "afterend", added)
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
			writePartial(b, p.id, "outerMorph", p.html)
		}
	}
	flush()
}
