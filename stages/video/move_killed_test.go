package video

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// moveVariable names the locations of a move in another process.
const moveVariable = "CUELIGHT_TEST_MOVE"

func TestMove_HelperMovesUntilItIsKilled(t *testing.T) {
	locations := strings.Split(os.Getenv(moveVariable), "|")
	if len(locations) != 5 {
		t.Skip("it is started by another test")
	}
	h := &moveTest{harness: &harness{t: t}, proxy: &s3test.Proxy{Endpoint: locations[4]}}
	if err := moveAll(t.Context(), h.move(locations[0], locations[1], locations[2], locations[3])); err != nil {
		t.Fatal(err)
	}
}

// killAtRequest runs a move in another process and kills it when it sends a request. It reports
// whether there was such a request.
func (h *moveTest) killAtRequest(at int, locations ...string) bool {
	h.t.Helper()
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.proxy.Reset()
	h.proxy.Observe(func(number int, _ *http.Request) {
		if number >= at {
			once.Do(func() { close(reached) })
			<-killed
		}
	}, nil)
	defer h.proxy.Observe(nil, nil)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMove_HelperMovesUntilItIsKilled$")
	cmd.Env = append(os.Environ(), moveVariable+"="+strings.Join(append(locations, h.proxy.Endpoint), "|"))
	child, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer child.Kill()
	defer func() { close(killed); h.proxy.Wait() }()
	select {
	case <-reached:
		child.Kill()
		return true
	case <-child.Done():
		if err := child.Err(); err != nil {
			h.t.Fatal(err)
		}
		return false
	}
}

func TestMove_KilledAtAnyRequestIsContinued(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	step := 13
	if testing.Short() {
		step = 40
	}
	kills := 0
	for at := 1; ; at += step {
		public := fmt.Sprintf("s3://videos/%d/public", at)
		m := h.move(h.DataDir, h.PublishDir, fmt.Sprintf("s3://videos/%d/data", at), public)
		isKilled := h.killAtRequest(at, h.DataDir, h.PublishDir, m.Data.To.String(), public)
		for _, location := range []Location{m.Published.From, m.Published.To} {
			if _, err := h.served(location); err != nil {
				t.Errorf("killed at request %d: %v", at, err)
			}
		}
		if err := moveAll(t.Context(), m); err != nil {
			t.Fatalf("killed at request %d: %v", at, err)
		}
		// And back, killed as well.
		data, published := t.TempDir(), t.TempDir()
		isKilledBack := h.killAtRequest(at, m.Data.To.String(), public, data, published)
		if _, err := h.served(Location{Dir: published}); err != nil {
			t.Errorf("killed at request %d: %v", at, err)
		}
		if err := moveAll(t.Context(), h.move(m.Data.To.String(), public, data, published)); err != nil {
			t.Fatalf("killed at request %d: %v", at, err)
		}
		if diff := cmp.Diff(h.before, fileHashes(t, data, published)); diff != "" {
			t.Errorf("killed at request %d: %s", at, diff)
		}
		for kind, route := range m.Routes() {
			if err := route.From.removeMoved(t.Context(), kind); err != nil {
				t.Fatal(err)
			}
		}
		if !isKilled && !isKilledBack {
			break
		}
		kills++
	}
	t.Logf("killed %d times", kills)
	if kills < 3 {
		t.Errorf("killed only %d times", kills)
	}
}
