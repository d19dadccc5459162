package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Submission describes a new task. Only Source must be set.
type Submission struct {
	// Source is what to work on: for the video pipeline a path or an http(s) URL, for other
	// pipelines what their first stage accepts.
	Source string
	// Params are the task's parameters, a JSON object of at most [MaxParams] bytes. Default {}.
	Params json.RawMessage
	// Priority orders ready tasks, higher first. Default 0.
	Priority int16
	// RequestID, at most 2048 bytes, makes the submission idempotent: a second one with the same RequestID and
	// SubmittedBy returns the first task, or [ErrRequestIDTaken] if that has another Source.
	// Default: none.
	RequestID string
	// SubmittedBy is the submitter, at most 512 bytes; each has RequestIDs of its own. The HTTP API sets it to
	// the API key. Default: empty, which is one submitter.
	SubmittedBy string
	// UserID is the user that the task belongs to, at most 2048 bytes. Default: none.
	UserID string
	// UserContext is an object of the submitter, at most [MaxUserContext] bytes of JSON, without \u0000. The task and
	// its events return it as it was given. Default: none.
	UserContext json.RawMessage
	// Traceparent is the W3C Trace Context header of the submitting request, so that the
	// work appears in its trace. An invalid one is ignored. Default: none.
	Traceparent string
	// Placement says, by stage, which workers may do the work. Default: all.
	Placement map[string]Placement
	// NotBefore is the scheduled time, before the year 9999: the task does not start before it, by the
	// database's clock. Default: at once.
	NotBefore time.Time
}

// MaxParams is the maximum size of Params, in bytes: each claim reads them.
const MaxParams = 1 << 20

// MaxUserContext is the maximum size of a UserContext, in bytes.
const MaxUserContext = 10 << 10

// Receipt answers a [Submission].
type Receipt struct {
	ID      ID
	Existed bool // the RequestID was submitted before
}

// Submit adds a task. It is durable, and workers are notified, once the transaction
// commits: the caller's, see [Store.WithTx], or else one of its own.
func (s *Store) Submit(ctx context.Context, sub Submission) (Receipt, error) {
	given, err := s.columnsOf([]Submission{sub})
	if err != nil {
		return Receipt{}, fmt.Errorf("submit: %w", err)
	}
	var r Receipt
	err = s.queryRow(ctx, submitOneSQL, given.first()...).Scan(&r.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		receipts := []Receipt{{Existed: true}}
		err := s.findSubmitted(ctx, []Submission{sub}, receipts)
		return receipts[0], err
	}
	if err != nil {
		return Receipt{}, s.explain(actSubmit, err)
	}
	return r, nil
}

// submitOneSQL submits one task, for a tenth less of the server's time than submitSQL.
const submitOneSQL = `
/* submit a task */
insert into {tasks} (id, source, params, priority, request_id, user_id, scheduled_at, traceparent, submitted_by,
                     placement, user_context)
values (cuelight_id(), $1, $2::text::jsonb, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10::text::json)
    on conflict (request_id, (coalesce(submitted_by, ''))) where request_id is not null do nothing
returning id`

// submitSQL allocates ids in the given order, so that tasks are claimed in it, and inserts
// rows in the order of request ids, so that two callers cannot wait for each other.
const submitSQL = `
/* submit tasks */
with given as materialized (
  select cuelight_id() as id, *
    from unnest($1::text[], $2::text[], $3::int2[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[],
                $9::text[], $10::text[]) with ordinality
         as g (source, params, priority, request_id, user_id, scheduled_at, traceparent, submitted_by, placement,
               user_context, n)
), added as (
  insert into {tasks} (id, source, params, priority, request_id, user_id, scheduled_at, traceparent, submitted_by,
                       placement, user_context)
  select id, source, params::jsonb, priority, request_id, user_id, scheduled_at, traceparent, submitted_by,
         placement::jsonb, user_context::json
    from given
   order by request_id, submitted_by, n
      on conflict (request_id, (coalesce(submitted_by, ''))) where request_id is not null do nothing
  returning id
)
select n, given.id, added.id is null as existed
  from given left join added on added.id = given.id
 order by n`

const submittedSQL = `
/* find submitted tasks */
select request_id, coalesce(submitted_by, ''), id, source from {tasks}
 where (request_id, coalesce(submitted_by, '')) in (select * from unnest($1::text[], $2::text[]))`

// SubmitAll adds tasks in one round trip, all or none. The receipts are in the order of
// subs. Where RequestIDs were submitted before, a second round trip finds their tasks; an
// error of that, such as [ErrRequestIDTaken], does not remove the new tasks unless the caller
// rolls its transaction back. Submitting again is always right.
func (s *Store) SubmitAll(ctx context.Context, subs []Submission) ([]Receipt, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	given, err := s.columnsOf(subs)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	rows, err := s.db.Query(ctx, s.sql.fill(submitSQL), given.all()...)
	if err != nil {
		return nil, s.explain(actSubmit, err)
	}
	defer rows.Close()
	receipts := make([]Receipt, len(subs))
	repeated := false
	for rows.Next() {
		var n int
		var r Receipt
		if err := rows.Scan(&n, &r.ID, &r.Existed); err != nil {
			return nil, s.explain(actSubmit, err)
		}
		receipts[n-1] = r
		repeated = repeated || r.Existed
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain(actSubmit, err)
	}
	if repeated {
		return receipts, s.findSubmitted(ctx, subs, receipts)
	}
	return receipts, nil
}

// findSubmitted finds the tasks of earlier submissions. The first statement cannot: its
// snapshot does not have what was committed at the same time.
func (s *Store) findSubmitted(ctx context.Context, subs []Submission, receipts []Receipt) error {
	var ids, by []string
	for i := range receipts {
		if receipts[i].Existed {
			ids, by = append(ids, subs[i].RequestID), append(by, subs[i].SubmittedBy)
		}
	}
	found, err := s.findRequests(ctx, ids, by)
	if err != nil {
		return s.explain("find submitted", err)
	}
	var taken error
	for i := range receipts {
		if !receipts[i].Existed {
			continue
		}
		t, ok := found[request{subs[i].RequestID, subs[i].SubmittedBy}]
		if !ok {
			return fmt.Errorf("find submitted: request %q: %w: it was deleted meanwhile", subs[i].RequestID, ErrNotFound)
		}
		receipts[i].ID = t.id
		if t.source != subs[i].Source && taken == nil {
			taken = fmt.Errorf("submit: %w: %q is task %s; use another request id", ErrRequestIDTaken, subs[i].RequestID, t.id)
		}
	}
	return taken
}

// request is a request id and its submitter.
type request struct{ id, by string }

// submitted is the task of a request.
type submitted struct {
	id     ID
	source string
}

// findRequests finds the tasks of requests, given by their ids and submitters.
func (s *Store) findRequests(ctx context.Context, ids, by []string) (map[request]submitted, error) {
	rows, err := s.db.Query(ctx, s.sql.fill(submittedSQL), ids, by)
	if err != nil {
		return nil, err
	}
	found := make(map[request]submitted, len(ids))
	var r request
	var t submitted
	_, err = pgx.ForEachRow(rows, []any{&r.id, &r.by, &t.id, &t.source}, func() error {
		found[r] = t
		return nil
	})
	return found, err
}

// columns are the arguments of the statements, by column.
type columns struct {
	sources, params               []string
	priorities                    []int16
	requests, users, traceparents []*string
	submitters, placements        []*string
	userContexts                  []*string
	notBefore                     []*time.Time
}

// columnsOf checks submissions and returns their columns.
func (s *Store) columnsOf(subs []Submission) (*columns, error) {
	n := len(subs)
	c := &columns{
		sources: make([]string, n), params: make([]string, n), priorities: make([]int16, n),
		requests: make([]*string, n), users: make([]*string, n), traceparents: make([]*string, n),
		submitters: make([]*string, n), placements: make([]*string, n), notBefore: make([]*time.Time, n),
		userContexts: make([]*string, n),
	}
	for i := range subs {
		sub := &subs[i]
		if err := sub.check(); err != nil {
			return nil, err
		}
		c.sources[i], c.priorities[i], c.params[i] = sub.Source, sub.Priority, "{}"
		if len(sub.Params) > 0 {
			c.params[i] = string(sub.Params)
		}
		if sub.RequestID != "" {
			c.requests[i] = &sub.RequestID
		}
		if sub.UserID != "" {
			c.users[i] = &sub.UserID
		}
		if len(sub.UserContext) > 0 {
			text := string(sub.UserContext)
			c.userContexts[i] = &text
		}
		if sub.SubmittedBy != "" {
			c.submitters[i] = &sub.SubmittedBy
		}
		var err error
		if c.placements[i], err = s.graph.placementText(sub.Placement); err != nil {
			return nil, err
		}
		if isTraceparent(sub.Traceparent) {
			c.traceparents[i] = &sub.Traceparent
		}
		if !sub.NotBefore.IsZero() {
			c.notBefore[i] = &sub.NotBefore
		}
	}
	return c, nil
}

// all returns the arguments of submitSQL.
func (c *columns) all() []any {
	return []any{
		c.sources, c.params, c.priorities, c.requests, c.users, c.notBefore, c.traceparents, c.submitters, c.placements,
		c.userContexts,
	}
}

// first returns the arguments of submitOneSQL.
func (c *columns) first() []any {
	return []any{
		c.sources[0], c.params[0], c.priorities[0], c.requests[0], c.users[0],
		c.notBefore[0], c.traceparents[0], c.submitters[0], c.placements[0], c.userContexts[0],
	}
}

// traceparent is the form of the header in version 00 of W3C Trace Context. Later versions
// start with it.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,200})?$`)

// isTraceparent also checks that the version is not ff, that no id is 0, and that version 00
// has nothing more.
func isTraceparent(s string) bool {
	return traceparent.MatchString(s) && s[:2] != "ff" && (s[:2] != "00" || len(s) == 55) &&
		strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

func (sub *Submission) check() error {
	for _, given := range []struct {
		name, text string
		maxBytes   int // so that an entry of an index has room; it has the request id and the submitter
	}{
		{"source", sub.Source, math.MaxInt}, {"request id", sub.RequestID, 2048}, {"user id", sub.UserID, 2048},
		{"submitter", sub.SubmittedBy, 512},
	} {
		// The text is not in the error: a source may contain a secret.
		if !utf8.ValidString(given.text) || strings.ContainsRune(given.text, 0) {
			return fmt.Errorf("%w: the %s must be UTF-8 text without NUL", ErrInvalid, given.name)
		}
		if len(given.text) > given.maxBytes {
			return fmt.Errorf("%w: the %s has %d bytes, at most %d are allowed", ErrInvalid, given.name, len(given.text), given.maxBytes)
		}
	}
	if sub.Source == "" {
		return fmt.Errorf("%w: no source", ErrInvalid)
	}
	if year := sub.NotBefore.UTC().Year(); year < 1 || year >= 9999 {
		return fmt.Errorf("%w: the scheduled time must be in the years 1 to 9998", ErrInvalid)
	}
	if len(sub.Params) > MaxParams {
		return fmt.Errorf("%w: the params have %d bytes, at most %d are allowed; refer to a file instead", ErrInvalid, len(sub.Params), MaxParams)
	}
	if err := checkObject("params are", sub.Params); err != nil {
		return err
	}
	if len(sub.UserContext) > MaxUserContext {
		return fmt.Errorf("%w: the user context has %d bytes, at most %d are allowed", ErrInvalid, len(sub.UserContext), MaxUserContext)
	}
	if !utf8.Valid(sub.UserContext) {
		return fmt.Errorf("%w: the user context must be UTF-8 text", ErrInvalid)
	}
	return checkObject("the user context is", sub.UserContext)
}

// checkObject checks that a member of a submission is a JSON object or missing.
func checkObject(subject string, text json.RawMessage) error {
	switch t := bytes.TrimSpace(text); {
	case len(text) == 0:
		return nil
	case !json.Valid(text):
		return fmt.Errorf("%w: %s not JSON", ErrInvalid, subject)
	case t[0] != '{':
		return fmt.Errorf("%w: %s not a JSON object", ErrInvalid, subject)
	}
	return nil
}
