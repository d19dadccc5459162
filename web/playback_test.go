package web_test

import (
	"net/http"
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
	b.publish(id, "gen-0001-aaaaaaaaaa/v/seg.m4s", "0123456789")
	other := b.submit("/other.mp4")
	b.publish(other, "master.m3u8", "#EXTM3U")
	b.do(call{method: "GET", path: at, as: "-"}).wantProblem(http.StatusUnauthorized, "unauthenticated")
	var links struct {
		HLS, DASH string
		ExpiresAt time.Time `json:"expires_at"`
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
