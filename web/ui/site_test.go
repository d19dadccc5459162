package ui_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui"
	"github.com/cuelight/cuelight/web/ui/internal/uitest"
)

// testSite is a server of a dashboard over a seeded database.
type testSite struct {
	t      *testing.T
	pool   *pgxpool.Pool
	st     *store.Store
	seeded uitest.Seeded
	url    string
	client *http.Client
}

// newTestSite starts a server. change may alter the options.
func newTestSite(t *testing.T, change func(*ui.Options)) *testSite {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	s := &testSite{t: t, pool: pool, st: store.New(pool, g), seeded: uitest.Seed(t, pool)}
	base := "" // of o
	o := ui.Options{
		Store: ui.NewReader(s.st), Actions: uitest.Actions(s.st), Uploads: "/uploads", Logout: "/logout",
		Version: "v1", Profiles: uitest.Profiles, Captions: attached.New(s.st).List,
		SettingsOf: func(store.Task) (profile, settings string) { return "mobile", "quality 28" },
		Playback: func(_ context.Context, tasks ...store.Task) (map[store.ID]*playback.Video, error) {
			found := map[store.ID]*playback.Video{}
			for _, t := range tasks {
				v := &playback.Video{
					HLS: base + "/play/x/master.m3u8", DASH: base + "/play/x/manifest.mpd", Embed: base + "/embed/" + t.ID.String(),
					Poster: base + "/poster.jpg",
					MP4:    base + "/play/x/video.mp4", Width: 1080, Height: 1920, Duration: 83, Bytes: 7168,
					PublishedAt: t.CreatedAt.Add(2 * time.Minute),
				}
				if !video.IsPublic(t.Params) {
					v.ExpiresAt = time.Now().Add(time.Hour)
				}
				found[t.ID] = v
			}
			return found, nil
		},
	}
	if change != nil {
		change(&o)
	}
	base = o.BasePath
	u, err := ui.New(o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", u)
	if o.BasePath != "" {
		mux.Handle(o.BasePath+"/", http.StripPrefix(o.BasePath, u))
	}
	server := httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- u.Run(ctx) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.url, s.client = server.URL, server.Client()
	s.client.Jar = jar
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return s
}

func (s *testSite) pages() []string {
	video := "/videos/" + s.seeded.Waiting.String()
	return []string{
		"/", "/?state=dead", "/?state=ready&order=oldest", "/?q=nothing-like-it",
		"/videos/" + s.seeded.Published.String(), "/videos/" + s.seeded.Running.String(),
		"/videos/" + s.seeded.Retrying.String(), "/videos/" + s.seeded.Dead.String(), "/videos/" + s.seeded.Replaced.String(),
		"/workers", "/dead", "/dead?stage=ingest", "/dead?q=nothing-like-it", "/latency", "/latency?span=30d",
		"/workers?stopped", "/login", "/login?failed=wrong&next=%2Fdead", "/login?failed=limited&wait=30",
		video + "/retry", video + "/cancel", video + "/override", video + "/edit", "/dead/retry", "/dead/retry?selected=1", "/pause",
		"/pause?stage=ingest", "/resume?host=a",
		"/workers/" + s.seeded.Workers[0].String() + "/drain", "/add", "/nowhere", "/profiles", "/deleted", video + "/delete",
		"/videos/" + s.seeded.Deleted.String(),
		"/videos/" + s.seeded.Deleted.String() + "/undelete",
		"/keys/create", "/keys/" + s.seeded.Keys[0].ID.String() + "/disable", "/keys/" + s.seeded.Keys[2].ID.String() + "/enable",
	}
}

func (s *testSite) get(path string) (status int, text string, header http.Header) {
	s.t.Helper()
	answer, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(body), answer.Header
}

// post sends a form as a browser without scripts does, and returns the page after the
// redirect.
func (s *testSite) post(path string, form url.Values) (status int, text string) {
	s.t.Helper()
	return s.postBody(path, "application/x-www-form-urlencoded", form.Encode())
}

func (s *testSite) postBody(path, contentType, form string) (status int, text string) {
	s.t.Helper()
	answer, err := s.client.Post(s.url+path, contentType, strings.NewReader(form))
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func parse(t *testing.T, text string) *html.Node {
	t.Helper()
	doc, err := html.ParseWithOptions(strings.NewReader(text), html.ParseOptionEnableScripting(false))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func elements(doc *html.Node, names ...atom.Atom) []*html.Node {
	var out []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, n.DataAtom)) {
			out = append(out, n)
		}
	}
	return out
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// hasLabel reports whether an input or a button has a label.
func hasLabel(doc, n *html.Node) bool {
	if attr(n, "aria-label") != "" || attr(n, "type") == "hidden" || n.DataAtom == atom.Button && text(n) != "" {
		return true
	}
	for p := n.Parent; p != nil; p = p.Parent {
		if p.DataAtom == atom.Label && text(p) != "" {
			return true
		}
	}
	return slices.ContainsFunc(elements(doc, atom.Label), func(l *html.Node) bool {
		return attr(n, "id") != "" && attr(l, "for") == attr(n, "id")
	})
}
