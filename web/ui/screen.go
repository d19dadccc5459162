package ui

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"net/url"
	"slices"
	"strings"
)

// viewKey names a view. Pages with the same key share its reads and its rendering.
type viewKey struct {
	page       string
	query      string // encoded in canonical order
	canOperate bool   // shows buttons
	canUpload  bool   // accepts dropped files
}

func (k viewKey) values() url.Values {
	v, _ := url.ParseQuery(k.query) // it was encoded from values
	return v
}

// fragment is a piece of a page that is replaced as a whole: an element with an id,
// alone or in a list.
type fragment struct {
	id, list, html string
}

// screen is the changing content of a page. The fragments of a list are in order.
type screen struct {
	title     string
	fragments []fragment
	version   string
}

func newScreen(title string, fragments []fragment) screen {
	h := fnv.New64a()
	for _, f := range fragments {
		fmt.Fprintf(h, "%s %s %d\n%s", f.id, f.list, len(f.html), f.html)
	}
	return screen{title: title, fragments: fragments, version: fmt.Sprintf("%016x", h.Sum64())}
}

// Fragment returns the HTML of a fragment outside of lists.
func (s screen) Fragment(id string) template.HTML {
	for _, f := range s.fragments {
		if f.id == id && f.list == "" {
			return template.HTML(f.html) // rendered by a template
		}
	}
	return ""
}

// List returns the HTML of a list.
func (s screen) List(name string) template.HTML {
	var b strings.Builder
	for _, f := range s.items(name) {
		b.WriteString(f.html)
	}
	return template.HTML(b.String()) // rendered by templates
}

// items returns the fragments of a list, or with "" those outside of lists.
func (s screen) items(list string) []fragment {
	var items []fragment
	for _, f := range s.fragments {
		if f.list == list {
			items = append(items, f)
		}
	}
	return items
}

// lists returns the names of the lists.
func (s screen) lists() []string {
	var names []string
	for _, f := range s.fragments {
		if f.list != "" && !slices.Contains(names, f.list) {
			names = append(names, f.list)
		}
	}
	return names
}

// writePartial writes an instruction for htmx: how to change an element.
func writePartial(b *strings.Builder, target, swap, html string) {
	fmt.Fprintf(b, `<hx-partial hx-target="#%s" hx-swap="%s">%s</hx-partial>`, target, swap, html)
}

// fullUpdate returns the instructions that bring a page from any version to this one.
func (s screen) fullUpdate() string {
	var b strings.Builder
	for _, f := range s.items("") {
		writePartial(&b, f.id, "outerMorph", f.html)
	}
	for _, list := range s.lists() {
		writePartial(&b, list, "innerMorph", string(s.List(list)))
	}
	return b.String()
}

// changesFrom returns the instructions that bring a page from an older screen to this
// one.
func (s screen) changesFrom(old screen) string {
	var b strings.Builder
	for _, f := range s.items("") {
		if string(old.Fragment(f.id)) != f.html {
			writePartial(&b, f.id, "outerMorph", f.html)
		}
	}
	lists := s.lists()
	for _, list := range old.lists() {
		if !slices.Contains(lists, list) {
			lists = append(lists, list)
		}
	}
	for _, list := range lists {
		writeListChanges(&b, list, old.items(list), s.items(list))
	}
	return b.String()
}

// writeListChanges writes the changes of a list. The browser looks up all targets
// before it changes anything, so consecutive new items are added in one instruction,
// after an item that stays.
func writeListChanges(b *strings.Builder, list string, old, next []fragment) {
	stays := stayingItems(old, next)
	before := make(map[string]string, len(old)) // the HTML by id
	for _, f := range old {
		before[f.id] = f.html
		if !stays[f.id] {
			writePartial(b, f.id, "delete", "")
		}
	}
	target, swap, added := list, "afterbegin", ""
	flush := func() {
		if added != "" {
			writePartial(b, target, swap, added)
		}
	}
	for _, f := range next {
		if !stays[f.id] {
			added += f.html
			continue
		}
		flush()
		target, swap, added = f.id, "afterend", ""
		if before[f.id] != f.html {
			writePartial(b, f.id, "outerMorph", f.html)
		}
	}
	flush()
}

// stayingItems returns the items that are in the same order in both lists. Others are
// deleted and added again.
func stayingItems(old, next []fragment) map[string]bool {
	index := make(map[string]int, len(old))
	for i, f := range old {
		index[f.id] = i
	}
	stays := make(map[string]bool, len(next))
	last := -1
	for _, f := range next {
		if i, ok := index[f.id]; ok && i > last {
			stays[f.id], last = true, i
		}
	}
	return stays
}
