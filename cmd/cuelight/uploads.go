package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/store"
)

// submitUpload makes a task of a file that was uploaded, and the same one however
// often it is asked. The file's name is a number, so what it was called is kept as
// the task's title.
func submitUpload(st *store.Store) func(context.Context, upload.Upload) (string, error) {
	return func(ctx context.Context, u upload.Upload) (string, error) {
		params := map[string]json.RawMessage{}
		if len(u.Params) > 0 {
			if err := json.Unmarshal(u.Params, &params); err != nil {
				return "", fmt.Errorf("%w: params: %w", upload.ErrRefused, err)
			}
		}
		if _, titled := params["title"]; !titled && u.Name != "" {
			title, err := json.Marshal(u.Name)
			if err != nil {
				return "", err
			}
			params["title"] = title
		}
		text, err := json.Marshal(params)
		if err != nil {
			return "", err
		}
		var r store.Receipt
		err = st.Audited(ctx, func(in *store.Store) (e store.AuditEntry, err error) {
			r, err = in.Submit(ctx, store.Submission{
				Source: u.Path, Params: text, Priority: u.Priority, RequestID: orElse(u.RequestID, "upload:"+u.ID),
				UserID: orElse(u.UserID, u.Principal), Traceparent: trace.Traceparent(ctx),
			})
			if err != nil || r.Existed {
				return e, err
			}
			e = store.AuditEntry{Actor: u.Principal, Action: "submit", Target: r.ID.String()}
			e.Detail, err = json.Marshal(map[string]any{"upload": u.ID, "name": u.Name, "bytes": u.Size})
			return e, err
		})
		if errors.Is(err, store.ErrInvalid) || store.Refuses(err) {
			return "", fmt.Errorf("%w: %w", upload.ErrRefused, err)
		}
		return r.ID.String(), err
	}
}

// mayUpload refuses those who may not submit.
func mayUpload(ctx context.Context, _ upload.Upload) error {
	if err := access.Check(ctx, access.Submit); err != nil {
		return fmt.Errorf("%w: %w", upload.ErrRefused, err)
	}
	return nil
}

// fateOfUpload says whether the task of an upload still needs the file: until it has
// been ingested, which takes a copy.
func fateOfUpload(st *store.Store) func(context.Context, upload.Upload) (upload.Fate, error) {
	return func(ctx context.Context, u upload.Upload) (upload.Fate, error) {
		id, err := store.ParseID(u.Task)
		if err != nil {
			return upload.Needed, err
		}
		t, err := st.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return upload.Gone, nil
		case err != nil:
			return upload.Needed, err
		case t.Source != u.Path: // the request had a task already
			return upload.Taken, nil
		}
		switch t.Stages[0].Status { // ingest
		case store.StatusCompleted:
			return upload.Taken, nil
		case store.StatusDead, store.StatusCancelled:
			return upload.Gone, nil // somebody has some days to begin it again
		}
		return upload.Needed, nil
	}
}
