package ui

import (
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// listQuery is the filter and the position of a list, as in the address of its page.
type listQuery struct{ url.Values }

// readListQuery reads the named filters, and the position.
func readListQuery(v url.Values, names ...string) listQuery {
	q := listQuery{url.Values{}}
	for _, name := range names {
		q = q.with(name, cleanText(v.Get(name)))
	}
	if id, err := store.ParseID(v.Get("after")); err == nil && !id.IsZero() {
		q.Set("after", id.String())
	}
	return q
}

// with returns a copy with another value; the empty value removes it.
func (q listQuery) with(name, value string) listQuery {
	c := listQuery{url.Values{}}
	for k := range q.Values {
		c.Set(k, q.Get(k))
	}
	if c.Set(name, value); value == "" {
		c.Del(name)
	}
	return c
}

func (q listQuery) firstPage() listQuery { return q.with("after", "") }

// after returns the position of the page; the first one has the zero id.
func (q listQuery) after() (id store.ID) {
	id, _ = store.ParseID(q.Get("after"))
	return id
}

// IsFiltered reports whether the list has a filter.
func (q listQuery) IsFiltered() bool {
	for name := range q.Values {
		if name != "order" && name != "after" {
			return true
		}
	}
	return false
}

// link returns the address of the list on the page at path.
func (q listQuery) link(path string) string {
	if len(q.Values) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// pager is the data of the links to other pages of a list.
type pager struct {
	First, Next  string
	SearchedBack *time.Time // how far a slow search came
}

// pager returns the links of the list at path. The next page starts after an id, if any.
func (q listQuery) pager(path string, next store.ID) (p pager) {
	if q.Has("after") {
		p.First = q.firstPage().link(path)
	}
	if !next.IsZero() {
		p.Next = q.with("after", next.String()).link(path)
	}
	return p
}

// cleanText removes bytes that PostgreSQL does not accept, and outer spaces.
func cleanText(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", ""))
}
