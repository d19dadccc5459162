package web_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

func TestEncryptionKey_IsForClientsThatMayWatch(t *testing.T) {
	t.Parallel()
	const key, keyID = "0123456789abcdef", "aaaaaaaaaaaaaaaa"
	var broken store.ID
	b := setup(t, func(o *web.Options) {
		o.EncryptionKey = func(task store.ID, id string) ([16]byte, error) {
			switch {
			case task == broken:
				return [16]byte{}, errors.New("the disk is full of secrets")
			case id != keyID:
				return [16]byte{}, store.ErrNotFound
			}
			return [16]byte([]byte(key)), nil
		}
	})
	video, public, unpublished := b.submit("/film.mp4"), b.submit("/public.mp4"), b.submit("/early.mp4")
	broken = b.submit("/broken.mp4")
	for _, id := range []store.ID{video, public, broken} {
		b.publish(id, "master.m3u8", "#EXTM3U")
	}
	b.do(call{method: "PATCH", path: api + "/tasks/" + public.String(), body: `{"visibility": "public"}`}).wantStatus(200, nil)
	signed := func(id store.ID, valid time.Duration) string {
		return playbackPath(b.playbackKeys.Sign(id, time.Now().Add(valid)), id, "key/"+keyID)
	}
	other := strings.Replace(signed(video, time.Hour), video.String(), public.String(), 1)
	for name, c := range map[string]struct {
		as, path string
		status   int
	}{
		"by a signed address":        {"-", signed(video, time.Hour), 200},
		"of a public video":          {"-", playbackPath("", public, "key/"+keyID), 200},
		"with a key of the API":      {readText, publishedPath(video.String()) + "/key/" + keyID, 200},
		"without any":                {"-", publishedPath(video.String()) + "/key/" + keyID, 401},
		"by an expired address":      {"-", signed(video, -time.Minute), 403},
		"by that of another video":   {"-", other, 403},
		"of a video that is signed":  {"-", playbackPath("", video, "key/"+keyID), 404},
		"another key":                {"-", playbackPath("", public, "key/bbbbbbbbbbbbbbbb"), 404},
		"of one that is unpublished": {"-", signed(unpublished, time.Hour), 404},
		"no key":                     {readText, publishedPath(video.String()) + "/key", 404},
		"without the secrets":        {readText, publishedPath(broken.String()) + "/key/" + keyID, 500},
	} {
		t.Log(name)
		for _, method := range []string{"GET", "HEAD"} {
			got := b.do(call{method: method, path: c.path, as: c.as}).wantStatus(c.status, nil)
			if has := strings.Contains(string(got.body), key); has != (c.status == 200 && method == "GET") {
				t.Errorf("%s: the answer is %q", method, got.body)
			}
			if cache := got.header.Get("Cache-Control"); cache != "no-store" || strings.Contains(string(got.body), "secrets") {
				t.Errorf("%s: Cache-Control is %q: %s", method, cache, got.body)
			}
			isForSites := got.header.Get("Access-Control-Allow-Origin") == "*"
			if c.status == 200 && isForSites != strings.HasPrefix(c.path, "/play/") {
				t.Errorf("%s: other sites may read it: %v", method, isForSites)
			}
		}
	}
	without := setup(t)
	without.publish(video, "master.m3u8", "#EXTM3U")
	without.do(call{method: "GET", path: publishedPath(video.String()) + "/key/" + keyID, as: readText}).
		wantProblem(http.StatusNotFound, "not-found")
}
