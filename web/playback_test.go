package web_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

func TestPlayback_ASignedAddressNeedsNoKeyAndServesAllFilesOfOneVideo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/film.mp4")
	at := api + "/tasks/" + id.String() + "/playback"
	early := b.do(call{method: "GET", path: at, as: readText}).wantProblem(http.StatusNotFound, "not-found")
	if !strings.Contains(string(early.body), "not published") {
		t.Errorf("%s", early.body)
	}
	b.publish(id, "master.m3u8", "#EXTM3U")
	b.publish(id, "manifest.mpd", "<MPD/>")
	b.publish(id, "gen-0001-aaaaaaaaaa/v/seg.m4s", "0123456789")
	other := b.submit("/other.mp4")
	b.publish(other, "master.m3u8", "#EXTM3U")
	b.publish(id, "gen-0001-aaaaaaaaaa/video.mp4", "moov and mdat")
	generation := id.String() + "/gen-0001-aaaaaaaaaa/"
	b.exec(`insert into attempts (task_id, stage, attempt, outcome, token, started_at, finished_at, result)
		values ($1, 'publish', 1, 'completed', gen_random_uuid(), now(), now(), $2)`, id,
		`{"mp4": "`+generation+`video.mp4", "preview": "`+generation+`preview.mp4"}`)
	b.do(call{method: "GET", path: at, as: "-"}).wantProblem(http.StatusUnauthorized, "unauthenticated")
	var links struct {
		HLS, DASH, MP4, Preview string
		ExpiresAt               time.Time `json:"expires_at"`
	}
	b.do(call{method: "GET", path: at + "?expires_in=3600", as: readText}).wantStatus(200, &links)
	if left := time.Until(links.ExpiresAt); left < time.Hour-time.Second || left > time.Hour+time.Minute {
		t.Errorf("it expires in %s", left)
	}
	var proxied struct{ HLS string }
	behindTLS := call{method: "GET", path: at, as: readText, header: http.Header{"X-Forwarded-Proto": {"https"}}}
	if b.do(behindTLS).wantStatus(200, &proxied); !strings.HasPrefix(proxied.HLS, "https://") {
		t.Errorf("behind a proxy with TLS: %s", proxied.HLS)
	}
	_, path, _ := strings.Cut(links.HLS, "/play/")
	path = "/play/" + path
	if !strings.HasPrefix(links.HLS, "http://") || !strings.HasSuffix(links.DASH, "/manifest.mpd") {
		t.Errorf("%+v", links)
	}
	got := b.do(call{method: "GET", path: path, as: "-", header: http.Header{"Origin": {"https://site.example"}}}).wantStatus(200, nil)
	if string(got.body) != "#EXTM3U" || got.header.Get("Access-Control-Allow-Origin") != "*" ||
		got.header.Get("Cache-Control") != "public, no-cache" || got.header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%s %v", got.body, got.header)
	}
	segment := strings.TrimSuffix(path, "master.m3u8") + "gen-0001-aaaaaaaaaa/v/seg.m4s"
	part := b.do(call{method: "GET", path: segment, as: "-", header: http.Header{"Range": {"bytes=3-5"}}}).wantStatus(206, nil)
	if cache := part.header.Get("Cache-Control"); string(part.body) != "345" || !strings.HasPrefix(cache, "public, max-age=36") {
		t.Errorf("%s, %s", part.body, cache)
	}
	_, file, _ := strings.Cut(links.MP4, "/play/")
	download := b.do(call{method: "GET", path: "/play/" + file, as: "-", header: http.Header{"Range": {"bytes=0-3"}}}).wantStatus(206, nil)
	if string(download.body) != "moov" || download.header.Get("Content-Type") != "video/mp4" || links.Preview != "" {
		t.Errorf("%s, %v; the preview, which is not there: %q", download.body, download.header, links.Preview)
	}
	ofOther := strings.Replace(path, id.String(), other.String(), 1)
	b.do(call{method: "GET", path: ofOther, as: "-"}).wantProblem(http.StatusForbidden, "forbidden")
	hidden := strings.TrimSuffix(path, "master.m3u8") + ".cuelight-id"
	b.do(call{method: "GET", path: hidden, as: "-"}).wantProblem(http.StatusNotFound, "not-found")
	asked := b.do(call{method: "OPTIONS", path: segment, as: "-"}).wantStatus(204, nil)
	if !strings.Contains(asked.header.Get("Access-Control-Allow-Headers"), "Range") {
		t.Errorf("%v", asked.header)
	}
	b.get(at+"?expires_in=0").wantProblem(http.StatusUnprocessableEntity, "invalid")
	b.get(api+"/tasks/00000000-0000-0000-0000-000000000001/playback").wantProblem(http.StatusNotFound, "not-found")
}

func TestPlayback_EndsAtItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := store.ID{7}
	b.publish(id, "master.m3u8", "#EXTM3U")
	for token, want := range map[string]string{
		b.playbackKeys.Sign(id, time.Now().Add(-time.Second)): "the address has expired", "nonsense": "the address is not valid",
	} {
		path := web.PlaybackPath("", token, id, "master.m3u8")
		got := b.do(call{method: "GET", path: path, as: "-"}).wantProblem(http.StatusForbidden, "forbidden")
		if !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s", token, got.body)
		}
	}
}

func TestPlayback_WithoutATokenIsForPublicVideosOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	submit := func(params string) store.ID {
		t.Helper()
		r, err := b.Submit(t.Context(), store.Submission{Source: "/film.mp4", Params: json.RawMessage(params)})
		if err != nil {
			t.Fatal(err)
		}
		b.publish(r.ID, "master.m3u8", "#EXTM3U")
		b.publish(r.ID, "gen-0001-aaaaaaaaaa/v/seg.m4s", "0123456789")
		return r.ID
	}
	deleted, changing := submit(`{"visibility": "public"}`), submit(`{}`)
	if err := b.Delete(t.Context(), deleted, store.DeleteOptions{KeepPublished: true}); err != nil {
		t.Fatal(err)
	}
	unknown := store.ID{7}
	b.publish(unknown, "master.m3u8", "#EXTM3U")
	change := func(visibility string) {
		t.Helper()
		b.do(call{method: "PATCH", path: api + "/tasks/" + changing.String(), body: map[string]string{"visibility": visibility}}).
			wantStatus(http.StatusOK, nil)
	}
	change("public")
	signedLink := web.PlaybackPath("", b.playbackKeys.Sign(changing, time.Now().Add(time.Hour)), changing, "master.m3u8")
	b.do(call{method: "GET", path: signedLink, as: "-"}).wantStatus(http.StatusOK, nil)
	watch := func(name, id string, isPublic bool) {
		t.Helper()
		for file, cache := range map[string]string{
			"master.m3u8": "public, no-cache", "gen-0001-aaaaaaaaaa/v/seg.m4s": "public, max-age=60, immutable",
		} {
			got := b.do(call{method: "GET", path: "/play/" + id + "/" + file, as: "-"})
			if !isPublic {
				got.wantProblem(http.StatusNotFound, "not-found")
				if !strings.Contains(string(got.body), "no public video has this address") || got.header.Get("Cache-Control") != "no-store" {
					t.Errorf("%s: %s, %v", name, got.body, got.header)
				}
				continue
			}
			got.wantStatus(http.StatusOK, nil)
			if got.header.Get("Cache-Control") != cache || got.header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s: %s: %v", name, file, got.header)
			}
		}
	}
	for name, c := range map[string]struct {
		id       string
		isPublic bool
	}{
		"public": {submit(`{"visibility": "public"}`).String(), true}, "made public": {changing.String(), true},
		"signed": {submit(`{"visibility": "signed"}`).String(), false}, "without a visibility": {submit(`{}`).String(), false},
		"not valid": {submit(`{"visibility": "public", "nonsense": 1}`).String(), false},
		"deleted":   {deleted.String(), false}, "unknown": {unknown.String(), false}, "the zero id": {store.ID{}.String(), false},
	} {
		if watch(name, c.id, c.isPublic); !c.isPublic {
			continue
		}
		at := "/play/" + c.id
		segment := call{method: "GET", path: at + "/gen-0001-aaaaaaaaaa/v/seg.m4s", as: "-", header: http.Header{"Range": {"bytes=3-5"}}}
		if got := b.do(segment).wantStatus(http.StatusPartialContent, nil); string(got.body) != "345" {
			t.Errorf("%s: %s", name, got.body)
		}
		b.do(call{method: "GET", path: at + "/.cuelight-id", as: "-"}).wantProblem(http.StatusNotFound, "not-found")
		b.do(call{method: "OPTIONS", path: at + "/master.m3u8", as: "-"}).wantStatus(http.StatusNoContent, nil)
		var links map[string]string
		b.do(call{method: "GET", path: api + "/tasks/" + c.id + "/playback", as: readText}).wantStatus(http.StatusOK, &links)
		want := map[string]string{"hls": b.url + at + "/master.m3u8"} // without a DASH manifest, as of an encrypted video
		if !maps.Equal(links, want) {
			t.Errorf("%s: %v, want %v", name, links, want)
		}
	}
	change("signed")
	watch("signed again", changing.String(), false)
	b.do(call{method: "GET", path: signedLink, as: "-"}).wantStatus(http.StatusOK, nil)
}

func TestVisibility_IsChangedByAdminsAndAudited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := api + "/tasks/" + b.submit("/film.mp4").String()
	for name, c := range map[string]struct {
		call
		status int
		kind   string
	}{
		"a reader":       {call{path: at, as: readText, body: `{"visibility": "public"}`}, http.StatusForbidden, "forbidden"},
		"another value":  {call{path: at, body: `{"visibility": "secret"}`}, http.StatusUnprocessableEntity, "invalid"},
		"no value":       {call{path: at, body: `{}`}, http.StatusUnprocessableEntity, "invalid"},
		"another member": {call{path: at, body: `{"title": "a"}`}, http.StatusBadRequest, "invalid-request"},
		"an unknown task": {
			call{path: api + "/tasks/" + store.ID{7}.String(), body: `{"visibility": "public"}`}, http.StatusNotFound, "not-found",
		},
	} {
		t.Log(name)
		c.method = "PATCH"
		b.do(c.call).wantProblem(c.status, c.kind)
	}
	const body = `{"visibility": "public"}`
	checkRequestAgainstOpenAPI(t, "PATCH", at, body)
	var task struct{ Params map[string]string }
	b.do(call{method: "PATCH", path: at, body: body}).wantStatus(http.StatusOK, &task)
	if task.Params["visibility"] != "public" || !slices.Equal(b.auditActions(), []string{"visibility_set by admin"}) {
		t.Errorf("%v, %v", task.Params, b.auditActions())
	}
}
