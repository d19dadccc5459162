package browser_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/browsertest"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
	"github.com/cuelight/cuelight/web/ui/internal/uitest"
)

func TestDashboard_InARealBrowser(t *testing.T) {
	b := browsertest.Require(t)
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	st := store.New(pool, g)
	seeded := uitest.Seed(t, pool)
	divided := uitest.SeedDivided(t, pool, seeded.Workers, "/srv/films/The long film.mkv", 121, false)
	deadPart := uitest.SeedDivided(t, pool, seeded.Workers, "/srv/films/A scratched disc.mkv", 725, true)
	site, err := uitest.NewSite(st, seeded.Published, newMedia(t))
	if err != nil {
		t.Fatal(err)
	}
	d := &testDaemon{t: t, site: site, st: st, pool: pool, seeded: seeded}
	d.handleUploads()
	d.start()

	ctx, cancel := context.WithCancel(t.Context())
	var workers errgroup.Group
	workers.Go(func() error { return uitest.RunWorkers(ctx, pool, seeded.Workers) })
	defer func() {
		cancel()
		if err := workers.Wait(); err != nil {
			t.Error(err)
		}
		d.stop()
	}()

	b.Run(t, "dashboard.mjs", map[string]any{
		"url": "http://" + d.address, "control": d.control(t), "playable": hasMedia(t),
		"published": seeded.Published, "running": seeded.Running, "retrying": seeded.Retrying, "dead": seeded.Dead,
		"waiting": seeded.Waiting, "replaced": seeded.Replaced,
		"divided": divided, "deadPart": deadPart,
	})
}

// testDaemon serves the site on an address that survives restarts.
type testDaemon struct {
	t      *testing.T
	site   *uitest.Site
	st     *store.Store
	pool   *pgxpool.Pool
	seeded uitest.Seeded

	address string
	server  *http.Server
	cancel  context.CancelFunc
	running *errgroup.Group
}

func (d *testDaemon) start() {
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
	d.cancel, d.running = cancel, &errgroup.Group{}
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

func (d *testDaemon) stop() {
	d.cancel()
	if err := errors.Join(d.server.Close(), d.running.Wait()); err != nil {
		d.t.Error(err)
	}
}

// control serves what the script cannot do in a page, even while the site is down.
func (d *testDaemon) control(t *testing.T) string {
	t.Helper()
	do := func(act func(form url.Values) error) func(url.Values) (string, error) {
		return func(form url.Values) (string, error) { return "", act(form) }
	}
	readOnly := func(to bool) func(url.Values) (string, error) {
		return do(func(url.Values) error { d.site.ReadOnly.Store(to); return nil })
	}
	exec := func(sql string) func(url.Values) (string, error) {
		return do(func(url.Values) error {
			_, err := d.pool.Exec(t.Context(), sql)
			return err
		})
	}
	return browsertest.Control(t, map[string]func(url.Values) (string, error){
		"read-only": readOnly(true), "read-write": readOnly(false),
		"sign-out": do(func(url.Values) error { d.stop(); return d.restart(true) }),
		"sign-in":  do(func(url.Values) error { d.site.SignedOut.Store(false); return nil }),
		"stop":     do(func(url.Values) error { d.stop(); return nil }),
		"start":    do(func(url.Values) error { return d.restart(false) }),
		"submit": do(func(form url.Values) error {
			_, err := d.st.Submit(t.Context(), store.Submission{Source: form.Get("source")})
			return err
		}),
		"break-database":  exec("alter table tasks rename to tasks_away"),
		"repair-database": exec("alter table tasks_away rename to tasks"),
		"complete-part":   do(func(form url.Values) error { return d.completePart(t.Context(), form.Get("id")) }),
		"finish":          do(func(form url.Values) error { return d.finish(t.Context(), form.Get("id")) }),
	})
}

// restart starts a new site, which knows nothing of the one before.
func (d *testDaemon) restart(out bool) (err error) {
	if d.site, err = uitest.NewSite(d.st, d.seeded.Published, newMedia(d.t)); err != nil {
		return err
	}
	d.site.SignedOut.Store(out)
	d.handleUploads()
	d.start()
	return nil
}

// finish completes the stages of a task in order, as its worker would.
func (d *testDaemon) finish(ctx context.Context, text string) error {
	id, err := store.ParseID(text)
	if err != nil {
		return err
	}
	t, err := d.st.Get(ctx, id)
	if err != nil {
		return err
	}
	in := engine.ExchangeRequest{FreeSlots: make([]int, 5), ClaimFrom: slices.Repeat([]bool{true}, 5), OnlyTasks: []store.ID{id}}
	for i, s := range t.Stages {
		in.FreeSlots[i] = 1
		if s.Status == store.StatusInProgress {
			in.Worker = s.LockedBy
			in.Reports = append(in.Reports, engine.Report{Task: id, Stage: i, Token: s.Token, Outcome: engine.Completed})
		}
	}
	for len(in.Reports) > 0 {
		out, err := engine.New(d.st.DB(), d.st.Graph()).Exchange(ctx, in)
		if err != nil {
			return err
		}
		in.Reports = nil
		for _, c := range out.Claims {
			in.Reports = append(in.Reports, engine.Report{Task: id, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed})
		}
	}
	return nil
}

// completePart completes the first running part of a task, as its worker would.
func (d *testDaemon) completePart(ctx context.Context, text string) error {
	id, err := store.ParseID(text)
	if err != nil {
		return err
	}
	parts, err := d.st.Parts(ctx, id)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.Status != store.StatusInProgress {
			continue
		}
		stage, _ := d.st.Graph().Stage(p.Stage)
		queues := d.st.Graph().Queues()
		_, err := engine.New(d.st.DB(), d.st.Graph()).Exchange(ctx, engine.ExchangeRequest{
			Worker: p.LockedBy, FreeSlots: make([]int, queues), ClaimFrom: make([]bool, queues),
			Reports: []engine.Report{{Task: id, Stage: stage, Part: p.Part, Token: p.Token, Outcome: engine.Completed}},
		})
		return err
	}
	return errors.New("no part runs")
}

func (d *testDaemon) handleUploads() {
	h := d.uploads()
	d.site.Handle("/uploads", h)
	d.site.Handle("/uploads/", h)
}

// uploads implements the parts of the tus protocol that a resuming client needs. It
// submits complete files.
func (d *testDaemon) uploads() http.Handler {
	var mu sync.Mutex
	sizes, parts := make(map[string]string), make(map[string][]byte)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.URL.Path
		w.Header().Set("Tus-Resumable", "1.0.0")
		switch r.Method {
		case http.MethodPost:
			if strings.Contains(r.Header.Get("Upload-Metadata"), base64.StdEncoding.EncodeToString([]byte("refused.mp4"))) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = io.WriteString(w, `{"type":"urn:cuelight:problem:invalid","status":422,`+
					`"detail":"this needs the scope submit, and the key has read"}`)
				return
			}
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
