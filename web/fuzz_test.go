package web_test

import (
	"encoding/json"
	"io/fs"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

func FuzzPublishedName(f *testing.F) {
	for _, seed := range []string{
		"master.m3u8", "gen-1/a", "../x", "a/../../b", "/etc", ".switch/x", "a.tmp/b", "a//b", "", ".", "a\\b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		task := store.ID{7}
		full, err := web.PublishedName(task, name)
		if err != nil {
			return
		}
		if !fs.ValidPath(full) || !strings.HasPrefix(full, task.String()+"/") || strings.Contains(full, "/.") ||
			strings.HasSuffix(full, ".tmp") {
			t.Errorf("%q leads to %q", name, full)
		}
	})
}

func FuzzNextPage(f *testing.F) {
	for _, seed := range []string{
		"/cue/", "/cue/x?y", "//evil", "/cue//evil", "https://evil", "/cue/../x", "/cue/%2E%2e/x", "/cue/..",
		"/cue/\\evil", "/cue/login", "/cue/\t/evil",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, next string) {
		for _, base := range []string{"", "/cue"} {
			to := web.NextPage(base, next)
			at, err := url.Parse("https://host.example/somewhere")
			if err == nil {
				at, err = at.Parse(to)
			}
			if err != nil || at.Host != "host.example" || at.Scheme != "https" || strings.HasPrefix(to, "//") ||
				strings.ContainsAny(to, "\\\r\n") {
				t.Errorf("%q leads to %q: %v, %v", next, to, at, err)
			}
			// Browsers take dots that are encoded for dots.
			if err == nil && !strings.HasPrefix(path.Clean(at.Path)+"/", base+"/") {
				t.Errorf("%q leads out of %s/: %q", next, base, to)
			}
		}
	})
}

func FuzzEventIDsAndTypes(f *testing.F) {
	for _, seed := range []string{
		"0", "-1", "9223372036854775807", "9223372036854775808", " 1", "1e3", "+1", "done", "done,,", "done,cancelled",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, given, ok := web.ParseEventID(text)
		if n < 0 || ok && !given && text != "" || !ok && n != 0 {
			t.Errorf("%q is %d, %t, %t", text, n, given, ok)
		}
		if web.ParseEventTypes(text) == nil && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_,") != "" {
			t.Errorf("%q are types", text)
		}
	})
}

func FuzzTaskQuery(f *testing.F) {
	for _, seed := range []string{
		"status=dead", "limit=5&after=x", "stage=ingest&stage_status=dead", "source=%00", "a=b", ";",
		"limit=99999999999999999999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.RawQuery = query
		filter, limit, err := web.ParseTaskQuery(r)
		if err != nil {
			return
		}
		for _, text := range []string{filter.UserID, filter.RequestID, filter.Source, filter.Error, filter.Stage} {
			if strings.ContainsRune(text, 0) || len(text) > 2048 {
				t.Errorf("%q has the condition %q", query, text)
			}
		}
		if limit < 1 || limit > 1000 || (filter.Stage == "") != (filter.StageStatus == "") {
			t.Errorf("%q is %+v, %d", query, filter, limit)
		}
	})
}

func FuzzSubmission(f *testing.F) {
	for _, seed := range []string{
		`{"source":"/a"}`, `{"tasks":[{"source":"/a"},{"source":"/b","params":{}}]}`,
		`{"tasks":[]}`, `{"tasks":[],"source":"x"}`,
		`{"source":"/a","not_before":"2030-01-31T08:00:00Z","priority":-32768}`, `{"source":"/a","params":null}`,
		`null`, `[]`, `7`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		subs, err := web.ReadSubmissions([]byte(text))
		if err != nil {
			return
		}
		if len(subs) == 0 || len(subs) > 1000 {
			t.Errorf("%q is %d submissions", text, len(subs))
		}
		for _, s := range subs {
			if len(s.Source) > 2048 || len(s.Params) > 10<<10 || len(s.Params) > 0 && !json.Valid(s.Params) {
				t.Errorf("%q is %+v", text, s)
			}
		}
	})
}
