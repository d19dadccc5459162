package web_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// publishResult records that the publish stage of a task completed. Its generation has a poster and captions.
func (b *testServer) publishResult(id store.ID, more string) (generation string) {
	b.t.Helper()
	generation = id.String() + "/gen-0001-aaaaaaaaaa/"
	b.exec(`insert into attempts (task_id, stage, attempt, outcome, token, started_at, finished_at, result)
		values ($1, 'publish', 1, 'completed', gen_random_uuid(), now(), now(), $2)`, id,
		`{"master": "`+id.String()+`/master.m3u8", "poster": "`+generation+`poster.jpg", "duration": 83.5, "bytes": 7000,
		"renditions": [{"name": "480p", "width": 854, "height": 480}, {"name": "720p", "width": 1280, "height": 720}],
		"captions": [{"language": "de", "name": "Deutsch", "dir": "captions-de"}],
		"generation": "`+strings.TrimSuffix(generation, "/")+`"`+more+`}`)
	return generation
}

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
	b.publish(id, "gen-0001-aaaaaaaaaa/v/seg.m4s", "0123456789")
	other := b.submit("/other.mp4")
	b.publish(other, "master.m3u8", "#EXTM3U")
	b.publish(id, "gen-0001-aaaaaaaaaa/video.mp4", "moov and mdat")
	b.publishResult(id, `, "manifest": "`+id.String()+`/manifest.mpd", "mp4": "`+id.String()+`/gen-0001-aaaaaaaaaa/video.mp4"`)
	b.do(call{method: "GET", path: at, as: "-"}).wantProblem(http.StatusUnauthorized, "unauthenticated")
	var links playback.Video
	b.do(call{method: "GET", path: at + "?expires_in=3600", as: readText}).wantStatus(200, &links)
	if left := time.Until(links.ExpiresAt); left < time.Hour-time.Second || left > time.Hour+time.Minute {
		t.Errorf("it expires in %s", left)
	}
	if links.Duration != 83.5 || links.Width != 1280 || links.Height != 720 || len(links.Renditions) != 2 || links.Bytes != 7000 {
		t.Errorf("%+v", links)
	}
	var proxied playback.Video
	behindTLS := call{method: "GET", path: at, as: readText, header: http.Header{"X-Forwarded-Proto": {"https"}}}
	if b.do(behindTLS).wantStatus(200, &proxied); !strings.HasPrefix(proxied.HLS, "https://") {
		t.Errorf("behind a proxy with TLS: %s", proxied.HLS)
	}
	_, path, _ := strings.Cut(links.HLS, "/play/")
	path = "/play/" + path
	if !strings.HasPrefix(links.HLS, "http://") || !strings.HasSuffix(links.DASH, "/manifest.mpd") ||
		!strings.HasSuffix(links.Poster, "/gen-0001-aaaaaaaaaa/poster.jpg") || len(links.Captions) != 1 ||
		!strings.HasSuffix(links.Captions[0].URL, "/gen-0001-aaaaaaaaaa/captions-de/captions.vtt") {
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

func TestTasks_SayHowTheyAreWatched(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.PublicURL = "https://media.example/cue" })
	submit := func(params string) store.ID {
		t.Helper()
		r, err := b.Submit(t.Context(), store.Submission{Source: "/film.mp4", Params: json.RawMessage(params)})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	public, signed, unpublished := submit(`{"visibility": "public"}`), submit(`{}`), submit(`{"watch_early": true}`)
	b.publishResult(public, "")
	b.publishResult(signed, "")
	early := submit(`{"watch_early": true}`)
	b.publish(early, "master.m3u8", "#EXTM3U")
	want := map[store.ID]string{
		public: "https://media.example/cue/play/" + public.String() + "/master.m3u8", signed: "https://media.example/cue/play/", unpublished: "",
		early: "https://media.example/cue/play/",
	}
	check := func(where string, id store.ID, v *playback.Video) {
		t.Helper()
		switch {
		case (v != nil) != (want[id] != ""):
			t.Errorf("%s: %+v, want %s", where, v, want[id])
		case v != nil && (!strings.HasPrefix(v.HLS, want[id]) || !strings.HasSuffix(v.HLS, id.String()+"/master.m3u8") ||
			v.ExpiresAt.IsZero() != (id == public) || !strings.HasPrefix(v.Embed, "https://media.example/cue/embed/")):
			t.Errorf("%s: %+v, want %s", where, v, want[id])
		}
	}
	type task struct {
		ID       store.ID        `json:"task_id"`
		Playback *playback.Video `json:"playback"`
	}
	var list struct{ Tasks []task }
	b.get(api+"/tasks").wantStatus(200, &list)
	if len(list.Tasks) != len(want) {
		t.Fatalf("%d tasks", len(list.Tasks))
	}
	for _, one := range list.Tasks {
		check("list", one.ID, one.Playback)
		var alone task
		b.get(api+"/tasks/"+one.ID.String()).wantStatus(200, &alone)
		check("task", one.ID, alone.Playback)
	}
}

func TestEvents_OfCompletedTasksSayHowTheyAreWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/film.mp4")
	b.exec(`update tasks set ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed',
		assemble_status = 'completed', publish_status = 'completed' where id = $1`, id)
	b.publishResult(id, "")
	var page struct {
		Events []struct {
			Type store.EventType
			Data struct{ Playback *playback.Video }
		}
	}
	b.get(api+"/events").wantStatus(200, &page)
	for _, e := range page.Events {
		if (e.Type == store.TaskCompleted) != (e.Data.Playback != nil && e.Data.Playback.Duration == 83.5) {
			t.Errorf("%+v", e)
		}
	}
	stream := string(b.do(call{method: "GET", path: api + "/tasks/" + id.String() + "/events?after=0", header: http.Header{
		"Accept": {"text/event-stream"},
	}}).wantStatus(200, nil).body)
	if !strings.Contains(stream, `"data":{"playback":{"hls":"http://`) {
		t.Errorf("%s", stream)
	}
}

func TestEmbed_ShowsThePlayerToWhoMayWatch(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.PublicURL, o.BasePath = "https://media.example", "/cue" })
	r, err := b.Submit(t.Context(), store.Submission{
		Source: "/secret/film.mp4", Params: json.RawMessage(`{"title": "<Sea & sky>", "visibility": "public"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	public, signed, unpublished := r.ID, b.submit("/secret/other.mp4"), b.submit("/secret/third.mp4")
	b.publishResult(public, "")
	b.publishResult(signed, "")
	sign := func(id store.ID, valid time.Duration) string {
		return "/cue/embed/" + b.playbackKeys.Sign(id, time.Now().Add(valid)) + "/" + id.String()
	}
	for name, c := range map[string]struct {
		path   string
		status int
		text   string
	}{
		"public":                {"/cue/embed/" + public.String(), 200, `data-hls="/cue/play/` + public.String() + `/master.m3u8"`},
		"its title":             {"/cue/embed/" + public.String(), 200, "<title>&lt;Sea &amp; sky&gt;</title>"},
		"signed":                {sign(signed, time.Hour), 200, `data-hls="/cue/play/`},
		"signed, without":       {"/cue/embed/" + signed.String(), 404, "no public video"},
		"of another video":      {strings.Replace(sign(signed, time.Hour), signed.String(), unpublished.String(), 1), 403, "not valid"},
		"expired":               {sign(signed, -time.Second), 403, "has expired"},
		"not published":         {sign(unpublished, time.Hour), 404, "not published yet"},
		"unknown":               {"/cue/embed/" + store.ID{7}.String(), 404, "no public video"},
		"a file of the player":  {"/cue/player/player.js", 200, "Hls"},
		"a file that is no one": {"/cue/player/nothing.js", 404, ""},
	} {
		got := b.do(call{method: "GET", path: c.path, as: "-"}).wantStatus(c.status, nil)
		if !strings.Contains(string(got.body), c.text) || strings.Contains(string(got.body), "secret") {
			t.Errorf("%s: %s", name, got.body)
		}
		if isPage := strings.Contains(c.path, "/embed/"); isPage && (got.header.Get("X-Frame-Options") != "" ||
			!strings.Contains(got.header.Get("Content-Security-Policy"), "frame-ancestors *")) {
			t.Errorf("%s: %v", name, got.header)
		}
	}
}

func TestPlayback_EndsAtItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := store.ID{7}
	b.publish(id, "master.m3u8", "#EXTM3U")
	for token, want := range map[string]string{
		b.playbackKeys.Sign(id, time.Now().Add(-time.Second)): "the address has expired", "nonsense": "the address is not valid",
	} {
		path := playbackPath(token, id, "master.m3u8")
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
		b.publishResult(r.ID, "")
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
	signedLink := playbackPath(b.playbackKeys.Sign(changing, time.Now().Add(time.Hour)), changing, "master.m3u8")
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
		var links playback.Video
		b.do(call{method: "GET", path: api + "/tasks/" + c.id + "/playback", as: readText}).wantStatus(http.StatusOK, &links)
		if links.HLS != b.url+at+"/master.m3u8" || links.DASH != "" || !links.ExpiresAt.IsZero() { // as of an encrypted video
			t.Errorf("%s: %+v", name, links)
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
		"another member": {call{path: at, body: `{"source": "a"}`}, http.StatusBadRequest, "invalid-request"},
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
	if task.Params["visibility"] != "public" || !slices.Equal(b.auditActions(), []string{"task_edited by admin"}) {
		t.Errorf("%v, %v", task.Params, b.auditActions())
	}
}
