package dbconn

import "testing"

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
