package remote_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// The Runner of an idle worker makes no exchanges of its own that could fail.
func TestClient_ReportsThatAnIdleWorkerHasLostAndFoundItsCoordinator(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	k := newLink(t, s.url)
	contact := make(chan error, 1000)
	s.work(func(o *remote.ClientOptions, _ *stages.Runner) {
		o.URL, o.OnContact = k.url, func(err error) { contact <- err }
	})
	receive := func() error {
		t.Helper()
		select {
		case err := <-contact:
			return err
		case <-time.After(10 * time.Second): // shorter than a waiting request
			t.Fatal("OnContact is not called")
			return nil
		}
	}
	for again := range 2 {
		waittest.Equal(t, "the waiting workers", 1, s.Waiting)
		if again == 0 && len(contact) > 0 {
			t.Errorf("while the coordinator answers: %v", <-contact)
		}
		k.setDown(true)
		// A request on a connection of before the first loss may have failed after others were answered.
		for receive() == nil {
		}
		waittest.Equal(t, "the waiting workers", 0, s.Waiting)
		k.setDown(false)
		for receive() != nil {
		}
	}
}
