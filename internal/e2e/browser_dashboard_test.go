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
	"github.com/cuelight/cuelight/internal/waittest"
)

// dashboardDaemon is a daemon with a dashboard, which a script controls.
type dashboardDaemon struct {
	environment
	pool    *pgxpool.Pool
	daemon  *daemon
	env     []string
	address string // stays the same after a restart
	videos  string // a directory of sources
}

// newDashboardDaemon starts a daemon that may read a directory of sources.
func newDashboardDaemon(t *testing.T) *dashboardDaemon {
	t.Helper()
	h := newEnvironment(t)
	s := &dashboardDaemon{
		environment: h, pool: h.newDatabase(), address: "127.0.0.1:0", videos: filepath.Join(filepath.Dir(h.data), "videos"),
	}
	if err := os.Mkdir(s.videos, 0o755); err != nil {
		t.Fatal(err)
	}
	s.env = []string{
		"CUELIGHT_FFMPEG=" + s.writeThrottledFFmpeg(), "CUELIGHT_SANDBOX=off", "CUELIGHT_ALLOW_NETWORK=127.0.0.0/8",
		"CUELIGHT_GRACE=1s",
	}
	s.setSpeed("100")
	s.start()
	return s
}

// writeThrottledFFmpeg writes an ffmpeg script that transcodes at a speed, in seconds of
// video per second, so that progress is visible on any machine. See setSpeed.
func (s *dashboardDaemon) writeThrottledFFmpeg() string {
	s.t.Helper()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		s.t.Fatal(err)
	}
	dir := filepath.Dir(s.data)
	script := fmt.Sprintf("#!/bin/sh\ncase $* in *-stats_period*) "+
		"exec '%s' -readrate \"$(cat '%s/speed')\" \"$@\" ;; esac\nexec '%s' \"$@\"\n",
		real, dir, real)
	program := filepath.Join(dir, "ffmpeg")
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return program
}

func (s *dashboardDaemon) setSpeed(factor string) {
	s.t.Helper()
	file := filepath.Join(filepath.Dir(s.data), "speed")
	if err := os.WriteFile(file+".new", []byte(factor), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the daemon and returns when it listens.
func (s *dashboardDaemon) start() {
	s.t.Helper()
	s.daemon = s.serveWith(s.env, s.pool, "--listen", s.address)
	waittest.Until(s.t, "the daemon listens", func() bool {
		for _, l := range s.daemon.logged("info") {
			if address, ok := l["address"].(string); ok {
				s.address = strings.Trim(strings.TrimPrefix(address, "http://"), "/")
				return true
			}
		}
		return false
	})
}

// secret returns a secret that the daemon created.
func (s *dashboardDaemon) secret(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "secrets", name))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// createKey creates an API key with the scope submit.
func (s *dashboardDaemon) createKey() string {
	s.t.Helper()
	cmd := s.command("keys", "create", "--scope", "submit", "camera")
	cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+s.pool.Config().ConnString())
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("create a key: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// makeVideo creates a source with sound and with the picture of an ffmpeg filter.
func (s *dashboardDaemon) makeVideo(name, filter string, length time.Duration) string {
	s.t.Helper()
	file := filepath.Join(s.videos, name)
	cmd := exec.Command("ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", filter,
		"-f", "lavfi", "-i", "sine=frequency=220", "-t", fmt.Sprint(length.Seconds()),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("make %s: %v\n%s", name, err, out)
	}
	return file
}

// controls returns the commands of the script.
func (s *dashboardDaemon) controls() map[string]func(url.Values) (string, error) {
	inVideos := func(form url.Values, name string) string {
		return filepath.Join(s.videos, filepath.Base(form.Get(name)))
	}
	return map[string]func(url.Values) (string, error){
		"kill":  func(url.Values) (string, error) { s.daemon.kill(); return "", nil },
		"start": func(url.Values) (string, error) { s.start(); return "", nil },
		"speed": func(form url.Values) (string, error) { s.setSpeed(form.Get("factor")); return "", nil },
		"read": func(form url.Values) (string, error) {
			content, err := os.ReadFile(inVideos(form, "name"))
			return base64.StdEncoding.EncodeToString(content), err
		},
		"replace": func(form url.Values) (string, error) {
			content, err := os.ReadFile(inVideos(form, "by"))
			return "", errors.Join(err, os.WriteFile(inVideos(form, "name"), content, 0o644))
		},
	}
}

func TestDashboard_WorksWithARealDaemon(t *testing.T) {
	b := browsertest.Require(t)
	s := newDashboardDaemon(t)
	const picture = "testsrc2=rate=25:size=640x360"
	s.makeVideo("harbour-morning.mp4", picture, 8*time.Second)
	s.makeVideo("night-train.mp4", picture, time.Minute)
	for _, name := range []string{"minutes.mp4", "notes.mp4"} {
		err := os.WriteFile(filepath.Join(s.videos, name), []byte("These are the minutes of the meeting.\n"), 0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	b.Run(t, "dashboard.mjs", map[string]any{
		"url": "http://" + s.address, "control": browsertest.Control(t, s.controls()), "videos": s.videos,
		"admin": s.secret("admin"), "reader": s.secret("read"), "submitter": s.createKey(),
	})
	s.daemon.stop()
	expected := map[any]bool{
		"stage dead": true, "attempt failed": true, "worker lost": true, "claims of lost workers expired": true,
	}
	for _, l := range append(s.daemon.logged("error"), s.daemon.logged("warn")...) {
		if !expected[l["msg"]] {
			t.Errorf("logged: %v", l)
		}
	}
	n := count(t, s.pool,
		`select count(distinct action) from cuelight_audit where actor = 'admin'
		 and action in ('submit', 'retry', 'cancel', 'override')`)
	if n != 4 {
		t.Errorf("the audit log has %d of the four kinds of actions", n)
	}
}
