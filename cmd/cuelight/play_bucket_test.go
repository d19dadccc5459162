package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// answers requests published files in many ways, and returns what is the same wherever they are.
func (s *site) answers(task, generation string) map[string]string {
	s.t.Helper()
	found := make(map[string]string)
	for _, name := range []string{
		"master.m3u8", "manifest.mpd", generation + "/poster.jpg", generation + "/metadata.json", generation + "/none.m4s",
		generation, generation + "/.cuelight-manifest.json", "../.cuelight-id", generation + ".tmp/poster.jpg",
	} {
		for what, header := range map[string]http.Header{
			"GET": {}, "HEAD": {}, "ranges": {"Range": {"bytes=10-29"}}, "after the end": {"Range": {"bytes=99999999-"}},
			"without a key": {}, "unchanged": {},
		} {
			req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.base+"/api/v1/published/"+task+"/"+name, nil)
			if err != nil {
				s.t.Fatal(err)
			}
			req.Header = header
			if what != "without a key" {
				header.Set("Authorization", "Bearer "+s.secret)
			}
			if what == "HEAD" {
				req.Method = what
			}
			resp := s.answer(req)
			if what == "unchanged" {
				header.Set("If-None-Match", resp.Header.Get("Etag"))
				resp = s.answer(req)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				s.t.Fatal(err)
			}
			if resp.StatusCode >= 400 {
				text = nil // it has an id of the request
			}
			found[what+" "+name] = fmt.Sprint(resp.StatusCode, resp.Header["Content-Type"], resp.Header["Cache-Control"],
				resp.Header["Content-Range"], resp.Header["Accept-Ranges"], resp.ContentLength, string(text))
		}
	}
	return found
}

func (s *site) answer(req *http.Request) *http.Response {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestServe_PlaysFromABucketAsFromADirectory(t *testing.T) {
	t.Parallel()
	p, s := newWorkDirWithServer(t)
	proxy := s3test.NewProxy(t, s)
	p.env = append(p.env, "AWS_ENDPOINT_URL="+proxy.Endpoint)
	task := decode[reported](p.run(0, "run", "--json", "clip.mp4"))[0].TaskID
	generations, err := filepath.Glob(filepath.Join(p.path("data"), "published", task.String(), "gen-*"))
	if err != nil || len(generations) != 1 {
		t.Fatalf("%q, %v", generations, err)
	}
	generation := path.Base(generations[0])
	listen := []string{"serve", "--listen", "127.0.0.1:0"}
	daemon := p.start(listen...)
	fromDirectory := p.site(daemon).answers(task.String(), generation)
	daemon.stop()

	s.Upload(t, p.path("data/tasks"), "videos", "data/tasks")
	s.Upload(t, p.path("data/published"), "videos", "public")
	p.run(0, "relocate", "--to-data-dir", "s3://videos/data", "--to-publish-dir", "s3://videos/public")
	if err := os.RemoveAll(p.path("data/published")); err != nil {
		t.Fatal(err)
	}
	daemon = p.start(append(listen, "--data-dir", "s3://videos/data", "--publish-dir", "s3://videos/public", "--local-dir", p.path("data"))...)
	web := p.site(daemon)
	if diff := cmp.Diff(fromDirectory, web.answers(task.String(), generation)); diff != "" {
		t.Error(diff)
	}
	var shown struct{ Playback playback.Video }
	if err := json.Unmarshal(web.do(200, "GET", "/api/v1/tasks/"+task.String(), nil), &shown); err != nil {
		t.Fatal(err)
	}
	_, embed, _ := strings.Cut(shown.Playback.Embed, "/embed/")
	player := string(web.do(200, "GET", "/embed/"+embed, nil))
	if !strings.Contains(player, "/"+task.String()+`/master.m3u8"`) || !strings.Contains(player, generation+`/poster.jpg"`) {
		t.Errorf("the page has no player:\n%s", player)
	}
	proxy.Reset()
	if board := string(web.do(200, "GET", "/", nil)); !strings.Contains(board, generation+`/poster.jpg"`) {
		t.Errorf("the board has no poster:\n%s", board)
	}
	if n := proxy.Reset(); n > 0 {
		t.Errorf("the board takes %d requests to the service", n)
	}
	for _, name := range []string{"master.m3u8", "manifest.mpd"} {
		out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-headers", "Authorization: Bearer "+web.secret+"\r\n",
			"-i", web.base+"/api/v1/published/"+task.String()+"/"+name, "-f", "null", "-").CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("play %s: %v: %s", name, err, out)
		}
	}
	p.run(0, "edit", task.String(), "--visibility", "public")
	out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-i", web.base+"/play/"+task.String()+"/master.m3u8", "-f", "null", "-").
		CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("play the public video without a key: %v: %s", err, out)
	}
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.ServerError })
	master := "/api/v1/published/" + task.String() + "/master.m3u8"
	if text := string(web.do(503, "GET", master, nil)); !strings.Contains(text, "storage service is not available") {
		t.Errorf("without the service: %s", text)
	}
	proxy.Inject(nil)
	web.do(200, "GET", master, nil)
	daemon.signal(syscall.SIGTERM)
	daemon.end(0)
}
