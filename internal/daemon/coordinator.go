package daemon

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// worksOn begins a sentence about a worker and its database. A remote worker has none itself, and its
// process is elsewhere.
func worksOn(w store.Worker) string {
	if w.Kind() == "remote" {
		return fmt.Sprintf("the remote worker %s works for", usererr.Printable(w.Name))
	}
	return fmt.Sprintf("process %d on %s works on", w.PID, usererr.Printable(w.Host))
}

// newCoordinator prepares what remote workers talk to. It has the pool of the work, because
// exchanges and heartbeats must not wait for slow reads.
func (s *services) newCoordinator() error {
	d := s.d
	pipeline, err := video.Pipeline(d.Engine.Stages...)
	if err != nil {
		return err
	}
	files := video.NewRemoteFiles(d.Config, d.DB.Store.Result)
	files.FromBucket = d.HTTP.SourcesFromBucket
	transcode, _ := pipeline.Graph().Stage("transcode")
	files.MaxAttempts = pipeline.MaxAttempts(transcode)
	s.refusals = newRefusals(d.DB.Store, d.Log)
	s.coordinator = remote.NewCoordinator(remote.Options{
		Pool: d.DB.Pool, Pipeline: pipeline, Wakes: s.coordinatorWakes,
		// The server has checked the scope.
		Authenticate: func(r *http.Request) (string, error) { return access.PrincipalOf(r.Context()).Name, nil },
		MayOffer:     mayOffer,
		// Ingest has fetched it, and an address may have a password.
		Source:    redact.Source,
		Files:     files,
		Stages:    video.RemoteStageNames(),
		OnRefused: s.refusals.observe,

		MaxRunningPerUser: d.Engine.MaxPerUser,
		OnError:           failureLogger(d.Log, "remote workers cannot be served", "remote workers are served again"),
	})
	return nil
}

// mayOffer reports whether the worker of a request may offer a label or an encoder: if its key has labels, only these
// and encoders, whose names no operator has given.
func mayOffer(r *http.Request, offer string) bool {
	labels := access.LabelsOf(r.Context())
	return len(labels) == 0 || slices.Contains(labels, offer) || media.IsEncoder(offer)
}
