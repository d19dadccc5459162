package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/stages/video"
)

func TestCleanup_LogsAFailureOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	dir := filepath.Join(t.TempDir(), "data")
	c := newCleanup(video.Cleaner{Config: video.Config{DataDir: dir, PublishDir: t.TempDir()}}, zap.New(core))
	c.runOnce(t.Context())
	c.runOnce(t.Context())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.runOnce(t.Context())
	c.runOnce(t.Context())
	var logged []string
	for _, entry := range logs.All() {
		logged = append(logged, entry.Message)
	}
	if want := []string{"disk cleanup is incomplete", "disk cleanup is complete again"}; !slices.Equal(logged, want) {
		t.Errorf("it logged %q", logged)
	}
}
