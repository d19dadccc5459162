package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// A worker that cannot work at an address says why at once, and does not wait.
func TestRun_EndsWithTheReasonAtAnAddressThatIsNotItsCoordinators(t *testing.T) {
	t.Parallel()
	answers := func(status int, text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		})
	}
	speaks := func(version int) http.Handler {
		return answers(http.StatusOK, fmt.Sprintf(`{"protocol":%d,"pipeline":"test","stages":[{"name":"first","needs":[]}]}`, version))
	}
	refuses := func(kind problem.Kind) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && kind != problem.Forbidden {
				speaks(remote.ProtocolVersion).ServeHTTP(w, r)
				return
			}
			problem.New(kind, "for a reason").Write(w, r)
		})
	}
	for name, c := range map[string]struct {
		handler http.Handler
		tls     bool
		https   bool // in the address
		want    error
		text    string
	}{
		"a page":                        {answers(http.StatusOK, "<html>"), false, false, remote.ErrNoCoordinator, "at this address: http://"},
		"no page":                       {answers(http.StatusNotFound, "<html>"), false, false, remote.ErrNoCoordinator, ""},
		"a login of a proxy":            {answers(http.StatusUnauthorized, "<html>"), false, false, remote.ErrNoCoordinator, ""},
		"an empty answer":               {answers(http.StatusOK, ""), false, false, remote.ErrNoCoordinator, ""},
		"other JSON":                    {answers(http.StatusOK, `{"hello":1}`), false, false, remote.ErrNoCoordinator, ""},
		"a list":                        {answers(http.StatusOK, `[]`), false, false, remote.ErrNoCoordinator, ""},
		"no TLS":                        {speaks(1), false, true, remote.ErrNoCoordinator, "does not speak TLS"},
		"TLS":                           {speaks(1), true, false, remote.ErrNoCoordinator, ""},
		"a certificate that is unknown": {speaks(1), true, true, remote.ErrUntrusted, "unknown authority"},
		"an older version":              {speaks(0), false, false, remote.ErrVersion, "it speaks version 0, and this worker version 1"},
		"a newer version":               {speaks(2), false, false, remote.ErrVersion, "it speaks version 2, and this worker version 1"},
		"a version that it refuses":     {refuses(problem.ProtocolVersion), false, false, remote.ErrVersion, "for a reason"},
		"a member that it refuses":      {refuses(problem.InvalidRequest), false, false, remote.ErrVersion, "for a reason"},
		"a key of another scope":        {refuses(problem.Forbidden), false, false, remote.ErrKey, "for a reason"},
		"a key that it refuses":         {refuses(problem.Unauthenticated), false, false, remote.ErrKey, "for a reason"},
		"a lease that it refuses":       {refuses(problem.Invalid), false, false, remote.ErrRefused, "for a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(c.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			if c.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			p, err := stages.New("test", stages.Stage{Name: "first", Work: echo})
			if err != nil {
				t.Fatal(err)
			}
			_, address, _ := strings.Cut(server.URL, "://")
			scheme := map[bool]string{true: "https://", false: "http://"}[c.https]
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client, err := remote.NewClient(remote.ClientOptions{
				URL: scheme + address, Key: "key-1", Graph: p.Graph(), HTTP: &http.Client{Transport: transport},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err = stages.Runner{Pipeline: p, Backend: client.Backend(), Wakes: client.Wakes()}.Run(ctx)
			if !errors.Is(err, c.want) || !errors.Is(err, remote.ErrRefused) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("run returned %v", err)
			}
		})
	}
}
