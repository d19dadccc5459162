package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// publishResult is the result of the publish stage with where that was: the
// process that published a task may have another directory than the one that
// asks.
type publishResult struct {
	video.Publish
	Dir string `json:"publish_dir"`
}

// withDir makes the publish stage say where it published to.
func withDir(s stages.Stage, dir string) stages.Stage {
	work := s.Work
	s.Work = func(ctx context.Context, job *stages.Job) (any, error) {
		result, err := work(ctx, job)
		if p, ok := result.(video.Publish); ok && err == nil {
			return publishResult{p, dir}, nil
		}
		return result, err
	}
	return s
}

// masterPath is the stable address of a published video in the file system, or
// nil for a task that was declared completed without a video.
func masterPath(ctx context.Context, st *store.Store, task store.ID, publishDir string) (*string, error) {
	raw, err := st.Result(ctx, task, publishStage)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	var result publishResult
	if err == nil && json.Unmarshal(raw, &result) == nil && result.Master != "" {
		path := filepath.Join(cmp.Or(result.Dir, publishDir), filepath.FromSlash(result.Master))
		return &path, nil
	}
	path := filepath.Join(publishDir, task.String(), "master.m3u8")
	if _, err := os.Stat(path); err != nil {
		return nil, nil
	}
	return &path, nil
}
