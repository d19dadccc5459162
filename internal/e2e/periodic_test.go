package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The command of docs/deploy/cuelight-recording.service may run twice on a day.
func TestRecordingUnit_SubmitsARecordingOnce(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	pool := h.newDatabase()
	unit := readText(t, "../../docs/deploy/cuelight-recording.service")
	start := regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '(.*)'$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit has no command of the shell")
	}
	recordings := t.TempDir()
	script := strings.NewReplacer("$$", "$", "%%", "%", "/srv/recordings", recordings).Replace(start[1]) // as systemd unescapes it
	submit := func() ([]byte, error) {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(h.command().Env, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString(),
			"PATH="+filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"))
		return cmd.CombinedOutput()
	}
	if out, err := submit(); err == nil {
		t.Errorf("without a recording it printed %s", out)
	}
	name := time.Now().AddDate(0, 0, -1).Format(time.DateOnly) + ".mkv"
	if err := os.WriteFile(filepath.Join(recordings, name), []byte("recording"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := submit()
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	if second, err := submit(); err != nil || strings.Fields(string(second))[0] != strings.Fields(string(first))[0] {
		t.Errorf("it printed %q, and then %q: %v", first, second, err)
	}
	if n := count(t, pool, `select count(*) from tasks`); n != 1 {
		t.Errorf("there are %d tasks", n)
	}
}

func TestUnits_AreValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	dir, args := t.TempDir(), []string{"verify"}
	for _, name := range []string{"cuelight.service", "cuelight-periodic.timer", "cuelight-recording.service", "cuelight-recording.timer"} {
		path := filepath.Join(dir, name)
		text := strings.ReplaceAll(readText(t, "../../docs/deploy/"+name), "/usr/local/bin/cuelight", program)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
