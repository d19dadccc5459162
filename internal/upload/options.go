package upload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// DirName is the name of the directory of uploads.
const DirName = "uploads"

// Options configure [New]. Dir and OnComplete are required.
type Options struct {
	// Dir is a directory. Uploads are in its subdirectory [DirName], to which no other
	// program may write.
	Dir string

	// BasePath is the URL path of the uploads. It begins and ends with "/". Default
	// "/uploads/".
	BasePath string

	// Prepare is called when an upload begins, and may change Params and Placement. After an error that
	// matches ErrRefused, or a *problem.Problem, which is the response, nothing is received; others are ignored, because
	// OnComplete may find them again. Default: nothing is done.
	Prepare func(ctx context.Context, u *Upload) error

	// OnComplete submits a complete file as a task. After an error, it is called again
	// by CleanUp or at the client's next request. After an error that
	// matches ErrRefused, the file is deleted; after ErrRequestIDTaken, it is kept. The
	// client gets the message of both. The context ends after a minute, not with the
	// request.
	OnComplete func(ctx context.Context, u Upload) (Receipt, error)

	// Store is called with a complete file before OnComplete, and again after an error. It may
	// copy the file to where other hosts find it, and may take long: its context ends with Close
	// or CleanUp. Default: nothing is done.
	Store func(ctx context.Context, u Upload) error

	// Release is called before a complete file is deleted, to delete what Store has made. After
	// an error the file is kept. Default: nothing is done.
	Release func(ctx context.Context, u Upload) error

	// Principal returns the principal of a request. Default "".
	Principal func(ctx context.Context) string

	// CheckPrincipal returns an error that matches ErrRevoked if the principal of a
	// request would no longer be authenticated. Other errors mean that this is unknown.
	// It is called every CheckPrincipalInterval (default 5 s) while data arrives, and
	// before a file is complete. Default: no principal is revoked.
	CheckPrincipal         func(ctx context.Context) error
	CheckPrincipalInterval time.Duration

	// IsRevoked reports whether a principal can never continue its uploads: they reserve nothing. Default: none.
	IsRevoked func(ctx context.Context, principal string) bool

	// SourceState says whether a finished upload's task needs the file; see the package
	// documentation. Default: finished files are kept.
	SourceState func(ctx context.Context, u Upload) (SourceState, error)

	// MaxBytes is the maximum size of an upload. Default 64 GiB.
	MaxBytes int64

	// MinFree is how many bytes stay free on the disk when all unfinished uploads are
	// complete. Default 1 GiB; negative: none.
	MinFree int64

	// MaxReserved is how many bytes all unfinished uploads may still receive, and
	// MaxReservedPerPrincipal how many those of one principal may. Defaults 256 GiB and
	// half of MaxReserved, and at least MaxBytes.
	MaxReserved, MaxReservedPerPrincipal int64

	// ReservationTimeout is how long a reservation lasts without new data. After this time an upload reserves eight
	// times as many bytes as it has received, at most. Default 15 min.
	ReservationTimeout time.Duration

	// MaxUnfinished is how many unfinished uploads a principal may have. Default 64.
	MaxUnfinished int

	// Expiration is how long an unfinished upload is kept without new data. Default 24 h.
	Expiration time.Duration

	// TaskEndedRetention is how long a finished upload is kept after its task was deleted,
	// or died or was cancelled without a copy of the file. Default 7 days.
	TaskEndedRetention time.Duration

	// StallTimeout ends a request whose client sends nothing. Default 1 min.
	StallTimeout time.Duration

	// TakeoverTimeout is how long a client must send nothing until another request of
	// its principal can take the upload over. A client is often back before the server
	// notices that its connection is lost. Default 5 s; at most StallTimeout.
	TakeoverTimeout time.Duration

	// OnError is called with errors that clients see only as internal. The id is empty
	// if the error concerns no upload.
	OnError func(id string, err error)
}

// SourceState says whether the task of an upload needs its source file.
type SourceState int

const (
	// SourceNeeded means that the task needs the file, or that this is unknown.
	SourceNeeded SourceState = iota
	// SourceCopied means that the task will not read the file again: its ingest stage is
	// completed, or it has another source.
	SourceCopied
	// TaskEnded means that the task does not exist, or that it died or was cancelled
	// before it had a copy of the file.
	TaskEnded
)

// ErrRefused matches permanent errors of Options.Prepare and Options.OnComplete. The upload is deleted.
var ErrRefused = errors.New("upload is refused")

// ErrRevoked matches errors of Options.CheckPrincipal about a revoked principal.
var ErrRevoked = errors.New("principal is revoked")

// ErrRequestIDTaken matches errors of Options.OnComplete that say that the RequestID belongs
// to the task of another file.
var ErrRequestIDTaken = errors.New("the request id names a task of another file")

// Receipt is the result of Options.OnComplete.
type Receipt struct {
	Task    string
	Existed bool // the task existed before, and was made of the same bytes
}

// Upload is a file that was sent, or will be.
type Upload struct {
	ID          string            // letters and digits; cannot be guessed
	Path        string            // absolute; empty until the file is complete
	Name        string            // from the client, for display: no path, no control characters, at most 255 bytes
	Type        string            // media type, from the client
	Size        int64             // bytes; negative if unknown
	SHA256      string            // hexadecimal; empty if the client did not send it; verified when complete
	Principal   string            // who created it
	Params      json.RawMessage   // a JSON object, or nil
	Placement   json.RawMessage   // a JSON object, or nil
	UserContext json.RawMessage   // a JSON object, or nil
	Priority    int16             // higher first
	UserID      string            // from the client; at most 2048 bytes
	RequestID   string            // from the client; may be empty
	Metadata    map[string]string // all metadata of the client, after Prepare
	Created     time.Time
	Task        string // from OnComplete
	Existed     bool   // from OnComplete
}

func (o Options) withDefaults() (Options, error) {
	o.BasePath = cmp.Or(o.BasePath, "/uploads/")
	switch {
	case o.Dir == "":
		return o, errors.New("uploads: Options.Dir is missing")
	case o.OnComplete == nil:
		return o, errors.New("uploads: Options.OnComplete is missing")
	case !strings.HasPrefix(o.BasePath, "/") || !strings.HasSuffix(o.BasePath, "/"):
		return o, errors.New(`uploads: Options.BasePath must begin and end with "/"`)
	}
	if o.CheckPrincipal == nil {
		o.CheckPrincipal = func(context.Context) error { return nil }
	}
	if o.IsRevoked == nil {
		o.IsRevoked = func(context.Context, string) bool { return false }
	}
	if o.Principal == nil {
		o.Principal = func(context.Context) string { return "" }
	}
	if o.SourceState == nil {
		o.SourceState = func(context.Context, Upload) (SourceState, error) { return SourceNeeded, nil }
	}
	nothing := func(context.Context, Upload) error { return nil }
	if o.Store == nil {
		o.Store = nothing
	}
	if o.Release == nil {
		o.Release = nothing
	}
	if o.Prepare == nil {
		o.Prepare = func(context.Context, *Upload) error { return nil }
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	o.MaxBytes = positive(o.MaxBytes, 64<<30)
	o.MaxReserved = max(positive(o.MaxReserved, 256<<30), o.MaxBytes)
	o.MaxReservedPerPrincipal = max(positive(o.MaxReservedPerPrincipal, o.MaxReserved/2), o.MaxBytes)
	o.ReservationTimeout = positive(o.ReservationTimeout, 15*time.Minute)
	o.MaxUnfinished = positive(o.MaxUnfinished, 64)
	o.Expiration = positive(o.Expiration, 24*time.Hour)
	o.TaskEndedRetention = positive(o.TaskEndedRetention, 7*24*time.Hour)
	o.CheckPrincipalInterval = positive(o.CheckPrincipalInterval, 5*time.Second)
	o.StallTimeout = positive(o.StallTimeout, time.Minute)
	o.TakeoverTimeout = min(positive(o.TakeoverTimeout, 5*time.Second), o.StallTimeout)
	o.MinFree = cmp.Or(o.MinFree, 1<<30)
	return o, nil
}

// positive returns value if it is positive, and otherwise the default.
func positive[T int | int64 | time.Duration](value, defaultValue T) T {
	if value > 0 {
		return value
	}
	return defaultValue
}
