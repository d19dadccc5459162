package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// identity names the directories that a process works in. All that take each
// other's tasks must work in the same, under whatever paths: else one would look
// in vain for what the other left, and publish where nobody expects it.
type identity struct {
	Data      string `json:"data_dir_id"`
	Published string `json:"publish_dir_id"`
	Some      bool   `json:"only_some_tasks,omitempty"` // it takes nobody else's tasks
}

// silentAfter is how long a process may be silent and still be reckoned with.
const silentAfter = 30 * time.Second

// idFile holds a directory's name for itself, drawn when it is first used.
const idFile = ".cuelight-id"

func identify(c video.Config) (identity, error) {
	var mine identity
	for dir, id := range map[string]*string{c.DataDir: &mine.Data, c.PublishDir: &mine.Published} {
		var err error
		if *id, err = dirID(dir); err != nil {
			return identity{}, fmt.Errorf("identify %s: %w", usererr.Printable(dir), err)
		}
	}
	return mine, nil
}

func dirID(dir string) (string, error) {
	file := filepath.Join(dir, idFile)
	for {
		text, err := os.ReadFile(file)
		if id := strings.TrimSpace(string(text)); err == nil && id != "" {
			return id, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		// Linked into place whole, so that of two processes one wins.
		own := fmt.Sprintf("%s.%s.tmp", file, rand.Text())
		if err := os.WriteFile(own, []byte(rand.Text()+"\n"), 0o644); err != nil {
			return "", err
		}
		err = os.Link(own, file)
		_ = os.Remove(own)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

func (i identity) capabilities(some bool) json.RawMessage {
	i.Some = some
	raw, err := json.Marshal(i)
	if err != nil {
		panic(err) // three fields of text and truth
	}
	return raw
}

// agrees looks for processes on the same database that work in other
// directories and that would take this one's tasks, or whose tasks it would.
func (i identity) agrees(ctx context.Context, st *store.Store, some bool) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	for _, w := range workers {
		var theirs identity
		if err := json.Unmarshal(w.Capabilities, &theirs); err != nil || theirs.Data == "" || some && theirs.Some {
			continue
		}
		if w.HeartbeatAge > silentAfter {
			continue // it was killed, and nobody has given it up yet
		}
		what := ""
		switch {
		case theirs.Data != i.Data:
			what = "data"
		case theirs.Published != i.Published:
			what = "publish"
		default:
			continue
		}
		return &usererr.Error{
			Kind: usererr.Usage,
			Text: fmt.Sprintf("process %d on %s works on the same database with another %s directory", w.PID, w.Host, what),
			Hint: "processes on one database take each other's tasks: give all of them the same directories, or another database",
		}
	}
	return nil
}
