package e2e

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// stage is a daemon that listens, with what a script does to it.
type stage struct {
	home
	pool    *pgxpool.Pool
	daemon  *daemon
	env     []string
	address string // the same from the first start on
	films   string // a directory of sources
}

// newStage starts a daemon that takes videos from a directory.
func newStage(t *testing.T) *stage {
	t.Helper()
	h := newHome(t)
	s := &stage{home: h, pool: h.migrated(), address: "127.0.0.1:0", films: filepath.Join(filepath.Dir(h.data), "films")}
	if err := os.Mkdir(s.films, 0o755); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"CUELIGHT_FFMPEG=" + s.paced(), "CUELIGHT_SANDBOX=off", "CUELIGHT_ALLOW_NETWORK=127.0.0.0/8", "CUELIGHT_GRACE=1s"}
	s.pace("100")
	s.start()
	return s
}

// paced is an ffmpeg that transcodes so many seconds of video in a second as the
// file beside it says, so that there is something to see on any machine.
func (s *stage) paced() string {
	s.t.Helper()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		s.t.Fatal(err)
	}
	dir := filepath.Dir(s.data)
	script := fmt.Sprintf("#!/bin/sh\ncase $* in *-stats_period*) exec '%s' -readrate \"$(cat '%s/pace')\" \"$@\" ;; esac\nexec '%s' \"$@\"\n", real, dir, real)
	program := filepath.Join(dir, "ffmpeg")
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return program
}

func (s *stage) pace(factor string) {
	s.t.Helper()
	file := filepath.Join(filepath.Dir(s.data), "pace")
	if err := os.WriteFile(file+".new", []byte(factor), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the daemon, and returns when it listens.
func (s *stage) start() {
	s.t.Helper()
	s.daemon = s.serveWith(s.env, s.pool, "--listen", s.address)
	for late := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // between two looks
		for _, l := range s.daemon.logged("info") {
			if at, ok := l["address"].(string); ok {
				s.address = strings.Trim(strings.TrimPrefix(at, "http://"), "/")
				return
			}
		}
		if time.Now().After(late) {
			s.t.Fatalf("the daemon does not listen: %v", s.daemon.logged("error"))
		}
	}
}

// secret is one of those that the daemon made.
func (s *stage) secret(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "secrets", name))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// key makes one for programs that may submit.
func (s *stage) key() string {
	s.t.Helper()
	cmd := s.command("keys", "create", "--scope", "submit", "camera")
	cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+s.pool.Config().ConnString())
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("make a key: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// film makes a source with sound, of the look that ffmpeg's filters give it.
func (s *stage) film(name, look string, length time.Duration) string {
	s.t.Helper()
	file := filepath.Join(s.films, name)
	cmd := exec.Command("ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", look, "-f", "lavfi", "-i", "sine=frequency=220",
		"-t", fmt.Sprint(length.Seconds()), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("make %s: %v\n%s", name, err, out)
	}
	return file
}

// controls are what a script asks for.
func (s *stage) controls() map[string]func(url.Values) (string, error) {
	inFilms := func(form url.Values, name string) string {
		return filepath.Join(s.films, filepath.Base(form.Get(name)))
	}
	return map[string]func(url.Values) (string, error){
		"kill":  func(url.Values) (string, error) { s.daemon.kill(); return "", nil },
		"start": func(url.Values) (string, error) { s.start(); return "", nil },
		"pace":  func(form url.Values) (string, error) { s.pace(form.Get("factor")); return "", nil },
		"read": func(form url.Values) (string, error) {
			content, err := os.ReadFile(inFilms(form, "name"))
			return base64.StdEncoding.EncodeToString(content), err
		},
		"replace": func(form url.Values) (string, error) {
			content, err := os.ReadFile(inFilms(form, "by"))
			return "", errors.Join(err, os.WriteFile(inFilms(form, "name"), content, 0o644))
		},
	}
}

func TestDashboardOfADaemonThatDoesTheWork(t *testing.T) {
	b := browsertest.Need(t)
	s := newStage(t)
	const picture = "testsrc2=rate=25:size=640x360"
	s.film("harbour-morning.mp4", picture, 8*time.Second)
	s.film("night-train.mp4", picture, time.Minute)
	for _, name := range []string{"minutes.mp4", "notes.mp4"} {
		if err := os.WriteFile(filepath.Join(s.films, name), []byte("These are the minutes of the meeting.\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.Run(t, "board.mjs", map[string]any{
		"url": "http://" + s.address, "control": browsertest.Control(t, s.controls()), "films": s.films, "admin": s.secret("admin"), "reader": s.secret("read"), "submitter": s.key(),
	})
	s.daemon.stop()
	expected := map[any]bool{"stage dead": true, "stage failed": true, "worker lost": true, "claims of lost workers freed": true}
	for _, l := range append(s.daemon.logged("error"), s.daemon.logged("warn")...) {
		if !expected[l["msg"]] {
			t.Errorf("logged: %v", l)
		}
	}
	if n := count(t, s.pool, `select count(distinct action) from cuelight_audit where actor = 'admin' and action in ('submit', 'retry', 'cancel', 'override')`); n != 4 {
		t.Errorf("%d of the four kinds of things that were done are in the audit", n)
	}
}
