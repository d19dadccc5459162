package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	cuelight "github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func TestWatchedFiles_TakeTheCaptionsNextToThemAlong(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	dir := t.TempDir()
	film := filepath.Join(dir, "film.mp4")
	const srt = "1\n00:00:01,000 --> 00:00:02,000\nHallo\n"
	for name, text := range map[string]string{
		"film.mp4": "x", "film.de.srt": srt, "film.en.srt": strings.Replace(srt, "02,000", "0x,000", 1), "other.fr.srt": srt,
		"film.chapters.txt": "00:00 Intro\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	core, logged := observer.New(zapcore.WarnLevel)
	w := watchedFiles{store: st, log: zap.New(core)}
	for range 2 { // after a restart
		if err := w.submit(t.Context(), []inbox.File{{Path: film, Size: 1, ModTime: time.Unix(1, 0)}}); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := st.List(t.Context(), store.ListQuery{})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	all, err := attached.New(st).List(t.Context(), tasks[0].ID)
	if err != nil || len(all) != 2 || !all[0].Chapters || all[1].Language != "de" {
		t.Errorf("%+v, %v", all, err)
	}
	if entries := logged.All(); len(entries) != 1 || !strings.HasSuffix(entries[0].ContextMap()["path"].(string), "film.en.srt") ||
		!strings.Contains(entries[0].ContextMap()["error"].(string), "line 2") {
		t.Errorf("logged %+v", entries)
	}
}
