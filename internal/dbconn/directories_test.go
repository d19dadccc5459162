package dbconn

import (
	"strings"
	"testing"
)

func TestDefaultDataDir_DependsOnTheUserAndTheSystem(t *testing.T) {
	t.Parallel()
	got := DefaultDataDir(Environment{"HOME=/h", "XDG_DATA_HOME=/x"})
	if got != "/x/cuelight" && got != "/var/lib/cuelight" &&
		got != "/h/Library/Application Support/cuelight" {
		t.Errorf("got %s", got)
	}
	if got := DefaultDataDir(Environment{"XDG_DATA_HOME=relative"}); got != "" && got != "/var/lib/cuelight" {
		t.Errorf("got %s", got)
	}
}

func TestDataPath_RefusesWhatIsMeantAsAnAddress(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"s3:/videos/data", "S3://videos/data", "https://videos.s3.amazonaws.com/data"} {
		o := Options{DataDir: dir}
		if path, err := o.DataPath(); err == nil || !strings.Contains(Explain(err).Hint, "s3://BUCKET/PREFIX") {
			t.Errorf("%s: %q, %v", dir, path, err)
		}
	}
}

func TestDefaultDataDir_IsTheStateDirectoryOfASystemdUnit(t *testing.T) {
	t.Parallel()
	without := DefaultDataDir(Environment{"HOME=/h"})
	for list, want := range map[string]string{
		"/srv/cuelight": "/srv/cuelight", "/srv/cuelight-2:/srv/b": "/srv/cuelight-2", "/srv/shop": without, "cuelight": without,
	} {
		if got := DefaultDataDir(Environment{"HOME=/h", "STATE_DIRECTORY=" + list}); got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
}
