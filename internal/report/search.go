package report

import (
	"context"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// searchTime is how long one page searches when no index finds all matches.
const searchTime = 2 * time.Second

// Pager reads pages of tasks. A [store.Store] is one.
type Pager interface {
	Page(ctx context.Context, q store.ListQuery) (store.Page, error)
}

// Search returns a page of tasks and, if there may be more, after which task the next page starts. With q.PublicSourceOnly the
// reader sees only the public form of sources, and must not learn the rest by searching for parts of it. So a match in
// the hidden part is no match, in this page and in the decision whether there is a next one. The database skips most of
// these tasks; the public form decides.
func Search(ctx context.Context, from Pager, q store.ListQuery) (found []store.Task, next store.ID, err error) {
	limit := q.Limit
	q.Limit++ // one more, to know whether there is a next page
	for started := time.Now(); ; {
		page, err := from.Page(ctx, q)
		if err != nil {
			return nil, next, err
		}
		for _, t := range page.Tasks {
			if q.PublicSourceOnly && !strings.Contains(redact.Source(t.Source), q.Source) && !strings.Contains(t.Title(), q.Source) {
				continue
			}
			if len(found) == limit {
				return found, found[limit-1].ID, nil
			}
			found = append(found, t)
		}
		if page.Next.IsZero() || time.Since(started) >= searchTime {
			return found, page.Next, nil
		}
		q.After = page.Next
	}
}
