package video

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// FailedRendition is a rendition that could not be made, and without which the video is published.
type FailedRendition struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// The values of Settings.FailedRendition.
const (
	failedWaits     = "wait"
	failedIsSkipped = "skip"
)

// makeRungs makes rungs in dir by a function that makes some in an empty directory. If that fails in the last attempt
// and the settings ask for it, makeRungs makes each video rung alone, in the end the audio, and
// returns those that failed again. Where all did, it returns the first error.
func makeRungs[T any](
	ctx context.Context, job *stages.Job, in Ingest, rungs []media.Rung, dir string,
	do func(rungs []media.Rung, dir string) (T, error),
) (made []T, failed []FailedRendition, err error) {
	all, err := do(rungs, dir)
	audio := slices.DeleteFunc(slices.Clone(rungs), func(r media.Rung) bool { return !r.IsAudio() })
	video := slices.DeleteFunc(slices.Clone(rungs), media.Rung.IsAudio)
	isLast := job.MaxAttempts > 0 && job.Attempt >= job.MaxAttempts
	if err == nil || !isLast || in.Settings.FailedRendition != failedIsSkipped || len(video) < 2 || !isOfRendition(ctx, job, err) {
		return []T{all}, nil, err
	}
	if err := emptyDir(dir); err != nil {
		return nil, nil, err
	}
	first := err
	for _, r := range video {
		one, err := makeInside(dir, func(alone string) (T, error) { return do([]media.Rung{r}, alone) })
		switch {
		case err == nil:
			made = append(made, one)
		case isOfRendition(ctx, job, err):
			failed = append(failed, FailedRendition{r.Name, err.Error()})
		default:
			return nil, nil, err
		}
	}
	if len(made) == 0 {
		return nil, nil, first
	}
	if len(audio) > 0 {
		sound, err := makeInside(dir, func(alone string) (T, error) { return do(audio, alone) })
		if err != nil {
			return nil, nil, err
		}
		made = append(made, sound)
	}
	return made, failed, nil
}

// isOfRendition reports whether a rendition may be to blame for an error, and neither the source nor the host.
func isOfRendition(ctx context.Context, job *stages.Job, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, media.ErrNotDivisible) && classify(ctx, err, job.Attempt) == err
}

// makeInside makes files in a new directory inside dir, and moves them to dir, except what is there already.
func makeInside[T any](dir string, do func(dir string) (T, error)) (made T, err error) {
	alone, err := os.MkdirTemp(dir, "alone-")
	if err != nil {
		return made, fmt.Errorf("create directory of rendition: %w", err)
	}
	defer os.RemoveAll(alone)
	if made, err = do(alone); err != nil {
		return made, err
	}
	entries, err := os.ReadDir(alone)
	if err != nil {
		return made, fmt.Errorf("list renditions: %w", err)
	}
	for _, e := range entries {
		to := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(to); err == nil {
			continue // each has made a storyboard
		}
		if err := os.Rename(filepath.Join(alone, e.Name()), to); err != nil {
			return made, fmt.Errorf("move rendition: %w", err)
		}
	}
	return made, nil
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return fmt.Errorf("remove files of failed transcode: %w", err)
	}
	return nil
}

// failedRenditions are those of all parts, each once.
func failedRenditions(made []Chunk) (all []FailedRendition) {
	for _, chunk := range made {
		for _, f := range chunk.Failed {
			if !slices.ContainsFunc(all, func(other FailedRendition) bool { return other.Name == f.Name }) {
				all = append(all, f)
			}
		}
	}
	return all
}

// partsWithFailed are the indexes of the parts that failed renditions.
func partsWithFailed(made []Chunk) (list []int) {
	for i, chunk := range made {
		if len(chunk.Failed) > 0 {
			list = append(list, i)
		}
	}
	return list
}

// setFailed removes renditions that failed from the rungs.
func (t *Transcode) setFailed(failed []FailedRendition) {
	t.Failed, t.Rungs = failed, withoutFailed(t.Rungs, failed)
}

// withoutFailed returns the rungs that did not fail.
func withoutFailed(rungs []media.Rung, failed []FailedRendition) []media.Rung {
	return slices.DeleteFunc(slices.Clone(rungs), func(r media.Rung) bool {
		return slices.ContainsFunc(failed, func(f FailedRendition) bool { return f.Name == r.Name })
	})
}

// warnings are those of the output, and say which renditions failed.
func (t Transcode) warnings() []string {
	list := slices.Clone(t.Output.Warnings)
	for _, f := range t.Failed {
		state := "is missing"
		if slices.Contains(t.Kept, f.Name) {
			state = "is that of the last transcode"
		}
		list = append(list, fmt.Sprintf("the rendition %s %s, because it could not be made: %s", f.Name, state, f.Error))
	}
	return list
}
