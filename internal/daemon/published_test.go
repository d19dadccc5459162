package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/stages/video"
)

func TestNewPlayback_HasKeysWhereVideosAreServedOrAFileIsGiven(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		http    HTTPOptions
		hasKeys bool
		url     string
	}{
		"it serves":          {HTTPOptions{Listen: "127.0.0.1:0", BasePath: "/cue"}, true, "/cue"},
		"behind a proxy":     {HTTPOptions{Listen: "127.0.0.1:0", BasePath: "/cue", PublicURL: "https://m.example"}, true, "https://m.example"},
		"it serves nothing":  {HTTPOptions{}, false, ""},
		"it is given a file": {HTTPOptions{PlaybackKeys: filepath.Join(t.TempDir(), "keys")}, true, ""},
	} {
		dir := t.TempDir()
		d := &Daemon{Options: Options{HTTP: c.http, Config: video.Config{DataDir: dir, PublishDir: dir}}}
		a, err := d.newPlayback()
		if err != nil || (a.Keys != nil) != c.hasKeys || a.URL != c.url {
			t.Errorf("%s: %+v, %v", name, a, err)
			continue
		}
		if !c.hasKeys {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "master.m3u8"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]bool{"master.m3u8": true, "a/master.m3u8": false} {
			if got, err := a.IsThere(t.Context(), file); err != nil || got != want {
				t.Errorf("%s: %s: %v, %v", name, file, got, err)
			}
		}
	}
}
