package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
)

// settle waits until nothing is to be done with any video any more, or for too
// long.
func (s *studio) settle(ctx context.Context) error {
	const openSQL = `
select count(*) from tasks
 where 'dead' <> all(array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status])
   and publish_status <> 'completed'`
	for late := time.Now().Add(videosWithin); ; {
		var open int
		if err := s.pool.QueryRow(ctx, openSQL).Scan(&open); err != nil {
			return fmt.Errorf("count videos: %w", err)
		}
		if open == 0 || time.Now().After(late) {
			return nil
		}
		if err := pause(ctx, 100*ms); err != nil {
			return err
		}
	}
}

// judge lists what is wrong with the videos: all must be published, and can be
// played. It counts those that are.
func (s *studio) judge(ctx context.Context) (good int, wrong []string, err error) {
	violations, err := invariant.Check(ctx, s.pool, store.Video(), invariant.Options{Settled: true, NoRetries: true})
	if err != nil {
		return 0, nil, err
	}
	for _, v := range violations {
		wrong = append(wrong, v.String())
	}
	for request, id := range s.videos {
		task, err := s.store.Get(ctx, id)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", request, err))
			continue
		}
		problem := s.look(ctx, task)
		if problem == "" {
			good++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %s", request, problem))
	}
	left, err := invariant.Files([]string{"*.tmp", "*.tap", ".write-*", ".poster-*", "*.part"}, filepath.Join(s.data(), "tasks"), s.publish())
	for _, file := range left {
		wrong = append(wrong, "left over: "+file)
	}
	slices.Sort(wrong)
	return good, wrong, err
}

// look says what is wrong with one video.
func (s *studio) look(ctx context.Context, task store.Task) string {
	if task.Status != store.StatusCompleted {
		history, _ := s.store.History(ctx, task.ID) // without it, less is said
		var why []string
		for _, a := range history {
			if a.Error != "" {
				why = append(why, fmt.Sprintf("%s %d: %s", a.Stage, a.Attempt, strings.Join(strings.Fields(a.Error), " ")))
			}
		}
		return fmt.Sprintf("it is %s: %s", task.Status, strings.Join(why, "; "))
	}
	dir := filepath.Join(s.publish(), task.ID.String())
	playlists := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".m3u8" {
			return err
		}
		playlists++
		return s.probe(ctx, path)
	})
	switch {
	case err != nil:
		return err.Error()
	case playlists < 3: // the master's two copies, and a rendition at least
		return fmt.Sprintf("there are %d playlists in %s", playlists, dir)
	}
	return ""
}

// probe reads all of a playlist, about which ffprobe must have nothing to say.
func (s *studio) probe(ctx context.Context, playlist string) error {
	cmd := exec.CommandContext(ctx, "ffprobe", "-v", "warning", "-count_packets", "-show_entries", "stream=nb_read_packets", "-of", "csv=p=0", playlist)
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err == nil && words.Len() == 0 && len(strings.Fields(string(out))) > 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be played: %v: %s%s", playlist, err, words.String(), out)
}
