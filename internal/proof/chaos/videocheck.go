package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

const unfinishedVideosSQL = `
select count(*) from tasks where state in ('pending', 'inprogress')`

// waitUntilSettled waits until every video is finished, or until the timeout.
func (d *videoDaemon) waitUntilSettled(ctx context.Context) error {
	_, err := proofkit.Poll(ctx, videoTimeout, 100*ms, func() (bool, error) {
		var unfinished int
		err := d.pool.QueryRow(ctx, unfinishedVideosSQL).Scan(&unfinished)
		return unfinished == 0, err
	})
	if err != nil {
		return fmt.Errorf("count unfinished videos: %w", err)
	}
	return nil
}

// check lists what is wrong with the videos, and counts those that can be played. All must be
// published.
func (d *videoDaemon) check(ctx context.Context) (playable int, violations []string, err error) {
	broken, err := invariant.Check(ctx, d.pool, store.Video(), invariant.Options{Settled: true, NoRetries: true})
	if err != nil {
		return 0, nil, err
	}
	for _, v := range broken {
		violations = append(violations, v.String())
	}
	for request, id := range d.videos {
		if err := d.checkVideo(ctx, id); err != nil {
			violations = append(violations, fmt.Sprintf("%s: %v", request, err))
			continue
		}
		playable++
	}
	temporary := []string{"*.tmp", "*.tap", ".write-*", ".poster-*", "*.part"}
	leftovers, err := invariant.Files(temporary, filepath.Join(d.dataDir(), "tasks"), d.publishDir())
	for _, file := range leftovers {
		violations = append(violations, "temporary file left over: "+file)
	}
	slices.Sort(violations)
	return playable, violations, err
}

// checkVideo returns an error if the video is not published or cannot be played.
func (d *videoDaemon) checkVideo(ctx context.Context, id store.ID) error {
	task, err := d.store.Get(ctx, id)
	if err != nil {
		return err
	}
	if task.Status != store.StatusCompleted {
		history, _ := d.store.History(ctx, id) // only adds detail
		var causes []string
		for _, a := range history {
			if a.Error != "" {
				text := strings.Join(strings.Fields(a.Error), " ")
				causes = append(causes, fmt.Sprintf("%s %d: %s", a.Stage, a.Attempt, text))
			}
		}
		return fmt.Errorf("the task is %s: %s", task.Status, strings.Join(causes, "; "))
	}
	dir := filepath.Join(d.publishDir(), id.String())
	playlists := 0
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".m3u8" {
			return err
		}
		playlists++
		return checkPlaylist(ctx, path)
	})
	if err == nil && playlists < 3 { // the two copies of the master playlist, and a rendition
		return fmt.Errorf("%s has %d playlists, want at least 3", dir, playlists)
	}
	return err
}

// checkPlaylist reads all packets of a playlist. ffprobe must print no warning.
func checkPlaylist(ctx context.Context, playlist string) error {
	cmd := exec.CommandContext(ctx, "ffprobe", "-v", "warning", "-count_packets",
		"-show_entries", "stream=nb_read_packets", "-of", "csv=p=0", playlist)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err == nil && warnings.Len() == 0 && len(strings.Fields(string(out))) > 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be played: %v: %s%s", playlist, err, warnings.String(), out)
}
