package browser_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui/internal/uitest"
)

func TestDashboardInARealBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of a browser")
	}
	chromium, node, dir := need(t)
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	st := store.New(pool, g)
	seeded := uitest.Seed(t, pool)
	site, err := uitest.NewSite(st, seeded.Published, media(t))
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, site: site, st: st, pool: pool, seeded: seeded}
	d.takeUploads()
	d.start()

	ctx, cancel := context.WithCancel(t.Context())
	var crew errgroup.Group
	crew.Go(func() error { return uitest.Crew(ctx, pool, seeded.Workers) })
	defer func() {
		cancel()
		if err := crew.Wait(); err != nil {
			t.Error(err)
		}
		d.stop()
	}()

	pictures := os.Getenv("CUELIGHT_TEST_PICTURES")
	if pictures == "" {
		pictures = t.TempDir()
	}
	script, err := filepath.Abs("dashboard.mjs")
	if err != nil {
		t.Fatal(err)
	}
	given, err := json.Marshal(map[string]any{
		"url": "http://" + d.address, "control": "http://" + d.control(t), "chromium": chromium, "pictures": pictures, "playable": hasMedia(t),
		"published": seeded.Published, "running": seeded.Running, "retrying": seeded.Retrying, "dead": seeded.Dead,
		"waiting": seeded.Waiting, "replaced": seeded.Replaced,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, node, script, string(given))
	cmd.Env = append(os.Environ(), "CUELIGHT_NODE_MODULES="+dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	t.Logf("the browser says:\n%s", out.String())
	if err != nil {
		t.Errorf("%v; pictures are in %s", err, pictures)
	}
}

// daemon is the site on an address that stays the same when it is started anew.
type daemon struct {
	t      *testing.T
	site   *uitest.Site
	st     *store.Store
	pool   *pgxpool.Pool
	seeded uitest.Seeded

	address string
	server  *http.Server
	end     context.CancelFunc
	running *errgroup.Group
}

func (d *daemon) start() {
	d.t.Helper()
	if d.address == "" {
		d.address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	d.end, d.running = cancel, &errgroup.Group{}
	site := d.site
	d.server = &http.Server{Handler: site, ReadHeaderTimeout: 5 * time.Second}
	d.running.Go(func() error { return site.Run(ctx) })
	d.running.Go(func() error {
		if err := d.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

func (d *daemon) stop() {
	d.end()
	if err := errors.Join(d.server.Close(), d.running.Wait()); err != nil {
		d.t.Error(err)
	}
}

// control is another address, for what the script asks while the site is down.
func (d *daemon) control(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /test/{what}", d.asked)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // it ends by being closed
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return l.Addr().String()
}

// asked does what the script cannot do by itself.
func (d *daemon) asked(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.PathValue("what") {
	case "hold":
		d.site.Held.Store(true)
	case "let":
		d.site.Held.Store(false)
	case "out":
		d.stop()
		err = d.renew(true)
	case "in":
		d.site.Out.Store(false)
	case "stop":
		d.stop()
	case "start":
		err = d.renew(false)
	case "submit":
		_, err = d.st.Submit(r.Context(), store.Submission{Source: r.FormValue("source")})
	case "break":
		_, err = d.pool.Exec(r.Context(), "alter table tasks rename to tasks_away")
	case "mend":
		_, err = d.pool.Exec(r.Context(), "alter table tasks_away rename to tasks")
	case "finish":
		err = d.finish(r.Context(), r.FormValue("id"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// renew starts another: a daemon that was started anew knows nothing of what was
// before.
func (d *daemon) renew(out bool) (err error) {
	if d.site, err = uitest.NewSite(d.st, d.seeded.Published, media(d.t)); err != nil {
		return err
	}
	d.site.Out.Store(out)
	d.takeUploads()
	d.start()
	return nil
}

// finish completes the stages of a task, one after the other, as its worker would.
func (d *daemon) finish(ctx context.Context, text string) error {
	id, err := store.ParseID(text)
	if err != nil {
		return err
	}
	t, err := d.st.Get(ctx, id)
	if err != nil {
		return err
	}
	in := store.Turn{Free: make([]int, 5), Look: make([]bool, 5), Mature: make([]bool, 5)}
	for i, s := range t.Stages {
		in.Free[i] = 1
		if s.Status == store.StatusInProgress {
			in.Worker = s.LockedBy
			in.Reports = append(in.Reports, store.Report{Task: id, Stage: i, Token: s.Token, Outcome: store.Completed})
		}
	}
	for len(in.Reports) > 0 {
		out, err := d.st.Turn(ctx, in)
		if err != nil {
			return err
		}
		in.Reports = nil
		for _, c := range out.Claims {
			if c.Task == id {
				in.Reports = append(in.Reports, store.Report{Task: id, Stage: c.Stage, Token: c.Token, Outcome: store.Completed})
			}
		}
	}
	return nil
}

func (d *daemon) takeUploads() {
	h := d.uploads()
	d.site.Handle("/uploads", h)
	d.site.Handle("/uploads/", h)
}

// uploads takes files by as much of the tus protocol as a client that goes on needs,
// and submits what is complete.
func (d *daemon) uploads() http.Handler {
	var mu sync.Mutex
	sizes, parts := make(map[string]string), make(map[string][]byte)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.URL.Path
		w.Header().Set("Tus-Resumable", "1.0.0")
		switch r.Method {
		case http.MethodPost:
			id = "/uploads/" + hex.EncodeToString([]byte(time.Now().String()))
			sizes[id], parts[id] = r.Header.Get("Upload-Length"), nil
			w.Header().Set("Location", id)
			w.WriteHeader(http.StatusCreated)
		case http.MethodHead:
			w.Header().Set("Upload-Offset", number(len(parts[id])))
			w.Header().Set("Upload-Length", sizes[id])
		case http.MethodPatch:
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Upload-Offset") != number(len(parts[id])) {
				w.WriteHeader(http.StatusConflict)
				return
			}
			parts[id] = append(parts[id], body...)
			w.Header().Set("Upload-Offset", number(len(parts[id])))
			if number(len(parts[id])) == sizes[id] {
				sum := sha256.Sum256(parts[id])
				source := "/srv/uploads/" + hex.EncodeToString(sum[:8]) + ".mp4"
				if _, err := d.st.Submit(r.Context(), store.Submission{Source: source, RequestID: "upload:" + id}); err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

func number(n int) string { b, _ := json.Marshal(n); return string(b) }

// need finds the browser, Node and what the script imports.
func need(t *testing.T) (chromium, node, dir string) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("CI") != "" {
		skip = t.Fatalf
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		skip("there is no Chromium on this machine")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		skip("there is no Node on this machine")
	}
	if dir, err = install(t.Context()); err != nil {
		skip("install what the script needs: %v", err)
	}
	return chromium, node, dir
}

// install has npm install what package-lock.json says into the user's cache, beside
// its place first, so that it is there whole or not at all.
func install(ctx context.Context) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	contents := make(map[string][]byte)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		contents[name] = text
		hash.Write(text)
	}
	dir = filepath.Join(cache, "cuelight-test", "dashboard-"+hex.EncodeToString(hash.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(temporary, name), text, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = temporary
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New("npm ci: " + err.Error() + ": " + strings.Join(strings.Fields(string(out)), " "))
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // somebody else was first
		}
		return "", err
	}
	return dir, nil
}
