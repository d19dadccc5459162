package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// playerPage plays the published video at four times its speed and reports the result.
const playerPage = `<!doctype html><video id="v" muted autoplay></video><script src="/hls.js"></script><script>
const v = document.getElementById("v");
const report = (text) => fetch("/ended", {method: "POST", body: text});
const hls = new Hls();
hls.on(Hls.Events.ERROR, (_, e) => report("error " + e.type + " " + e.details));
hls.on(Hls.Events.MANIFEST_PARSED, (_, e) => { levels = e.levels.length; v.playbackRate = 4; v.play(); });
let levels = 0;
v.onended = () => report("played " + levels + " " + v.currentTime.toFixed(2) + " " + v.videoWidth);
v.onerror = () => report("error " + v.error.message);
hls.loadSource("/master.m3u8");
hls.attachMedia(v);
</script>`

func TestPublishedVideo_PlaysInABrowser(t *testing.T) {
	chromium := browsertest.Chromium(t)
	h := newEnvironment(t)
	file := makeClip(t, t.TempDir(), 8*time.Second, "640x480")
	all, _ := h.run(file)
	o := all[file]
	if o.Status != "completed" {
		t.Fatalf("outcome is %+v", o)
	}
	ended := make(chan string, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, playerPage) })
	mux.HandleFunc("GET /hls.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../web/ui/assets/vendor/hls.light.min.js")
	})
	mux.HandleFunc("POST /ended", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		ended <- string(text)
	})
	mux.Handle("GET /", http.FileServer(http.Dir(filepath.Dir(*o.Published))))
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	browser := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
		"--autoplay-policy=no-user-gesture-required", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", server.URL)
	var stderr bytes.Buffer
	browser.Stderr = &stderr                                  // child processes share it, so Wait waits for them, too
	browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill its child processes
	browser.Cancel = func() error { return syscall.Kill(-browser.Process.Pid, syscall.SIGKILL) }
	browser.WaitDelay = 5 * time.Second
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := browser.Wait(); errors.Is(err, exec.ErrWaitDelay) || t.Failed() {
			t.Errorf("%v; the browser printed:\n%s", err, stderr.String())
		}
	}()
	select {
	case got := <-ended:
		var levels, width int
		var at float64
		if n, _ := fmt.Sscanf(got, "played %d %f %d", &levels, &at, &width); n != 3 || at < 7.9 || levels < 3 || width == 0 {
			t.Errorf("the page reports %q; want at least three levels, played for 8 s", got)
		}
	case <-ctx.Done():
		t.Error("the browser did not play to the end")
	}
}
