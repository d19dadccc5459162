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
		r, err := st.Submit(ctx, store.Submission{
			Source: u.Path, Params: text, Priority: u.Priority, RequestID: orElse(u.RequestID, "upload:"+u.ID),
			UserID: u.Principal, Traceparent: trace.Traceparent(ctx),
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
		for _, s := range t.Stages {
			if s.Name == "ingest" && s.Status == store.StatusCompleted {
				return upload.Taken, nil
			}
		}
		return upload.Needed, nil
	}
}
