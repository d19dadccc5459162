package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// publishStage is the name of the last stage of the video pipeline.
const publishStage = "publish"

// publishResult is the result of the publish stage with its directory: a process that
// reads the result may publish elsewhere.
type publishResult struct {
	video.Publish
	Dir string `json:"publish_dir"`
}

// recordPublishDir makes the publish stage add its directory to its result.
func recordPublishDir(s stages.Stage, dir string) stages.Stage {
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

// MasterPlaylist returns the path of a published video's master playlist; nil if there
// is none, as for a task that was completed by hand. Without a recorded result it looks for the file where the
// daemons publish, or in publishDir.
func MasterPlaylist(ctx context.Context, st *store.Store, task store.ID, publishDir string) (*string, error) {
	raw, err := st.Result(ctx, task, publishStage)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	var result publishResult
	if err == nil && json.Unmarshal(raw, &result) == nil && result.Master != "" {
		if video.IsBucketAddress(result.Dir) {
			path := result.Dir + "/" + result.Master
			return &path, nil
		}
		path := filepath.Join(cmp.Or(result.Dir, publishDir), filepath.FromSlash(result.Master))
		return &path, nil
	}
	recorded, err := readRecordedLocation(ctx, st, video.PublishContent)
	if err != nil {
		return nil, fmt.Errorf("read where videos are published: %w", err)
	}
	path := filepath.Join(cmp.Or(recorded.address, publishDir), task.String(), "master.m3u8")
	if _, err := os.Stat(path); err != nil {
		return nil, nil
	}
	return &path, nil
}
