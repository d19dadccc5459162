package upload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Options say where uploads lie and what becomes of them. Dir and OnComplete
// must be set.
type Options struct {
	// Dir is a directory, absolute. Uploads are in its subdirectory uploads,
	// which nobody else writes to.
	Dir string

	// BasePath is the path of the address at which the Uploads are served. It
	// begins and ends with "/". Default "/uploads/".
	BasePath string

	// OnComplete is handed a file that is complete, and makes a task of it. It
	// returns what to call that task. After an error it is called again, by
	// Recover, by Tidy, or when the client asks again; after one that matches
	// ErrRefused the file is deleted instead, and the client is told its text,
	// as it is of one that matches ErrRequestTaken, after which the file is kept.
	// The context does not end with the request, but after a minute.
	OnComplete func(ctx context.Context, u Upload) (Receipt, error)

	// Principal names who makes a request. Default: everybody is "".
	Principal func(ctx context.Context) string

	// Still says whether who made a request would still be let in, with an error
	// that matches ErrRevoked where not; any other means that nobody can tell now.
	// It is asked every AskEvery while something comes, and before a file counts as
	// complete. Default: everybody is.
	CheckPrincipal func(ctx context.Context) error

	// AskEvery is how often Still is asked. Default 5 s.
	CheckPrincipalInterval time.Duration

	// Check refuses an upload when it begins, so that nobody sends gigabytes
	// for nothing, with an error that matches ErrRefused: the client is told
	// its text. Default: none is refused.
	Check func(ctx context.Context, u Upload) error

	// Fate says what became of a finished upload's task; see the package's
	// documentation. Default: finished files are kept.
	SourceState func(ctx context.Context, u Upload) (SourceState, error)

	// MaxBytes is the largest upload. Default 64 GiB.
	MaxBytes int64

	// MinFree is how many bytes must stay free on the disk, all uploads that
	// have begun being complete. Default 1 GiB; negative: none.
	MinFree int64

	// MaxReserved is how many bytes may be yet to come of all uploads that
	// have begun, and MaxReservedEach of those of one principal. One of which
	// nobody knows how long it is counts as MaxBytes. Default 256 GiB, and half
	// of MaxReserved; neither is ever less than MaxBytes.
	MaxReserved, MaxReservedPerPrincipal int64

	// Lapse is for how long room is kept for an upload to which nothing is added.
	// It can be continued after that, if there is room. Default 15 min.
	ReservationTimeout time.Duration

	// MaxUnfinished is how many uploads a principal may have begun and not
	// finished. Default 64.
	MaxUnfinished int

	// Expire is how long an unfinished upload is kept to which nothing is
	// added. Default 24 h.
	Expiration time.Duration

	// GoneFor is how long the task of a finished upload must have been gone
	// until the file is deleted. Default 7 days.
	TaskGoneRetention time.Duration

	// Stall is how long a client may send nothing until its connection is
	// cut. One that is slow is not. Default 1 min.
	StallTimeout time.Duration

	// Silence is how long a client may send nothing until another request of
	// the same principal may take the upload over from it: a client that has
	// lost its connection is often back before the server knows of the loss.
	// Default 5 s, and never more than Stall.
	TakeoverTimeout time.Duration

	// Problems is what the types of problems begin with, such as
	// "urn:example:problem:". Default: their type is about:blank.
	ProblemTypePrefix string

	// Title is that of a kind of problem, the end of its type; empty for one that is
	// this package's alone. Default: none is known.
	ProblemTitle func(kind string) string

	// Trouble is told what goes wrong on this side: an error that a client was
	// only told of as such, with the upload's id where there is one.
	OnError func(id string, err error)
}

// Fate is what became of the task that was made of an upload.
type SourceState int

const (
	// Needed: the task still needs the file, or nobody knows.
	SourceNeeded SourceState = iota
	// Taken: the task has a copy of its own and will not look for the file
	// again. Its ingest stage is completed, or its source is another file.
	SourceCopied
	// Gone: there is no such task any more.
	TaskGone
)

// ErrRefused is matched by errors of Options.OnComplete and Options.Check that
// trying again cannot help. There is then no such upload.
var ErrRefused = errors.New("upload is refused")

// ErrRevoked is matched by errors of Options.Still that say that the principal of a
// request is one no more.
var ErrRevoked = errors.New("principal is revoked")

// ErrRequestTaken is matched by errors of Options.OnComplete that say that the
// upload's RequestID names a task that was made of something else.
var ErrRequestTaken = errors.New("the request id names a task of another file")

// Receipt says what became of a complete upload.
type Receipt struct {
	Task    string
	Existed bool // the task was there before, made of the same bytes
}

// ErrNotFound says that there is no such upload, or that it has not finished.
var ErrNotFound = errors.New("no such upload")

// Upload is a file that was sent, or is going to be.
type Upload struct {
	ID        string            // letters and digits; cannot be guessed
	Path      string            // where the file is, absolute; empty until it is complete
	Name      string            // what the client calls it, for people: no path, no control characters, at most 255 bytes
	Type      string            // the media type according to the client
	Size      int64             // bytes; negative where that is not known yet
	SHA256    string            // hexadecimal, if the client gave it: it is then right
	Principal string            // who began it
	Params    json.RawMessage   // a JSON object, or nil
	Priority  int16             // higher first
	UserID    string            // whom the client uploads it for, if it says so; at most 2048 bytes
	RequestID string            // what the client wants the submission known by, if anything
	Metadata  map[string]string // all that the client said, raw
	Created   time.Time         // when it began
	Task      string            // what OnComplete returned; empty before
	Existed   bool              // and of that
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Dir == "":
		return o, errors.New("uploads need a directory")
	case o.OnComplete == nil:
		return o, errors.New("uploads need to be told what to do with a complete file")
	}
	o.BasePath = cmp.Or(o.BasePath, "/uploads/")
	if !strings.HasPrefix(o.BasePath, "/") || !strings.HasSuffix(o.BasePath, "/") {
		return o, errors.New(`the uploads' base path must begin and end with "/"`)
	}
	if o.ProblemTitle == nil {
		o.ProblemTitle = func(string) string { return "" }
	}
	if o.CheckPrincipal == nil {
		o.CheckPrincipal = func(context.Context) error { return nil }
	}
	if o.Principal == nil {
		o.Principal = func(context.Context) string { return "" }
	}
	if o.Check == nil {
		o.Check = func(context.Context, Upload) error { return nil }
	}
	if o.SourceState == nil {
		o.SourceState = func(context.Context, Upload) (SourceState, error) { return SourceNeeded, nil }
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
	o.TaskGoneRetention = positive(o.TaskGoneRetention, 7*24*time.Hour)
	o.CheckPrincipalInterval = positive(o.CheckPrincipalInterval, 5*time.Second)
	o.StallTimeout = positive(o.StallTimeout, time.Minute)
	o.TakeoverTimeout = min(positive(o.TakeoverTimeout, 5*time.Second), o.StallTimeout)
	if o.MinFree == 0 {
		o.MinFree = 1 << 30
	}
	return o, nil
}

func positive[T int | int64 | time.Duration](given, standard T) T {
	if given > 0 {
		return given
	}
	return standard
}
