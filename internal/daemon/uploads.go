package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// submitUpload returns a function that submits an uploaded file as a task, or its copy in the
// bucket, if there is one. Called again for the same upload, it returns the same task.
func submitUpload(st *store.Store, bucket *video.Bucket) func(context.Context, upload.Upload) (upload.Receipt, error) {
	return func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
		params, err := uploadParams(u)
		if err != nil {
			return upload.Receipt{}, err
		}
		placement, err := uploadPlacement(u)
		if err != nil {
			return upload.Receipt{}, err
		}
		actions := ops.Actions{Store: st, Prepare: profiles.Prepare, Authorize: func(ctx context.Context, _ access.Scope) (string, error) {
			return u.Principal, checkKey(ctx, st, u.Principal) // the route has checked the scope
		}}
		r, err := actions.SubmitUpload(ctx, u, store.Submission{
			Source: uploadSource(bucket, u), Params: params, Priority: u.Priority, RequestID: cmp.Or(u.RequestID, "upload:"+u.ID),
			SubmittedBy: access.Principal{Name: u.Principal}.Submitter(), UserID: cmp.Or(u.UserID, u.Principal),
			Traceparent: trace.Traceparent(ctx), Placement: placement, UserContext: u.UserContext,
		})
		switch {
		case errors.Is(err, upload.ErrRefused):
			return upload.Receipt{}, err
		case errors.Is(err, store.ErrRequestIDTaken):
			return existingReceipt(ctx, st, bucket, r.ID, u)
		case errors.Is(err, store.ErrInvalid) || store.IsRejected(err):
			return upload.Receipt{}, fmt.Errorf("%w: %w", upload.ErrRefused, err)
		}
		return upload.Receipt{Task: r.ID.String()}, err
	}
}

// prepareTimeout limits how long an upload waits for the database before it begins without its profile, which is
// then resolved at the end.
const prepareTimeout = 5 * time.Second

// prepareUpload returns a function that checks the params of an upload when it begins, and resolves
// their profile: the file is received only if its task can be submitted. maxPerMinute limits the submissions for each user;
// 0 for no limit.
func prepareUpload(st *store.Store, maxPerMinute int) func(context.Context, *upload.Upload) error {
	return func(ctx context.Context, u *upload.Upload) error {
		placement, err := uploadPlacement(*u)
		if err != nil {
			return err
		}
		subs := []store.Submission{{Params: u.Params, Placement: placement}}
		ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
		defer cancel()
		if err := checkUploadRate(ctx, st, cmp.Or(u.UserID, u.Principal), maxPerMinute); err != nil {
			return err
		}
		if err := profiles.Prepare(ctx, st, subs); err != nil {
			if errors.Is(err, store.ErrInvalid) {
				err = fmt.Errorf("%w: %w", upload.ErrRefused, err)
			}
			return err
		}
		u.Params = subs[0].Params
		if len(subs[0].Placement) > 0 {
			u.Placement, err = json.Marshal(subs[0].Placement)
		}
		return err
	}
}

// checkUploadRate returns a problem if a user has submitted too much to begin an upload.
func checkUploadRate(ctx context.Context, st *store.Store, user string, maxPerMinute int) error {
	if user == "" || maxPerMinute <= 0 {
		return nil
	}
	wait, err := ops.SubmissionDelay(ctx, st, user, 1, maxPerMinute)
	if err == nil && wait > 0 {
		rate := &ops.RateError{User: user, Limit: maxPerMinute, Wait: wait}
		return problem.New(problem.TooManySubmissions, "%v", rate).After(wait)
	}
	return err
}

func uploadPlacement(u upload.Upload) (placement map[string]store.Placement, err error) {
	if len(u.Placement) > 0 {
		if err := json.Unmarshal(u.Placement, &placement); err != nil {
			return nil, fmt.Errorf("%w: %w", upload.ErrRefused, err)
		}
	}
	return placement, nil
}

// storedUploadID is the id of an upload's copy in a bucket.
func storedUploadID(u upload.Upload) string { return "upload-" + u.ID }

// checkKey refuses an upload whose key has been revoked since, also after its request has
// ended.
func checkKey(ctx context.Context, st *store.Store, principal string) error {
	prefix, ok := access.Principal{Name: principal}.KeyPrefix()
	if !ok {
		return nil
	}
	key, err := access.NewKeyStore(st.DB()).FindKey(ctx, prefix)
	if errors.Is(err, store.ErrNotFound) || err == nil && key.RevokedAt != nil {
		return fmt.Errorf("%w: the API key of the upload has been revoked", upload.ErrRefused)
	}
	return err
}

// isRevokedTimeout is short, because other uploads wait to begin meanwhile.
const isRevokedTimeout = time.Second

// isRevoked returns a function that reports whether the key of an upload has been revoked. A key that cannot be read
// counts as valid.
func isRevoked(st *store.Store) func(ctx context.Context, principal string) bool {
	return func(ctx context.Context, principal string) bool {
		ctx, cancel := context.WithTimeout(ctx, isRevokedTimeout)
		defer cancel()
		return errors.Is(checkKey(ctx, st, principal), upload.ErrRefused)
	}
}

// stillAuthorized returns a function that asks the guard whether the client of a request
// is still authorized.
func stillAuthorized(guard *access.Guard) func(context.Context) error {
	return func(ctx context.Context) error {
		err := guard.Revalidate(ctx)
		if errors.Is(err, access.ErrNoCredentials) || errors.Is(err, access.ErrInvalidCredentials) {
			return fmt.Errorf("%w: %w", upload.ErrRevoked, err)
		}
		return err
	}
}

// uploadParams returns the parameters of an upload's task. The stored file has a random
// name, so the title keeps the original one.
func uploadParams(u upload.Upload) (json.RawMessage, error) {
	params := map[string]json.RawMessage{}
	if len(u.Params) > 0 {
		if err := json.Unmarshal(u.Params, &params); err != nil {
			return nil, fmt.Errorf("%w: params: %w", upload.ErrRefused, err)
		}
	}
	if _, titled := params["title"]; !titled && u.Name != "" {
		title, err := json.Marshal(u.Name)
		if err != nil {
			return nil, err
		}
		params["title"] = title
	}
	return json.Marshal(params)
}

// existingReceipt returns the receipt of an upload whose request id names a task already: that
// task, if its file has the same bytes, for a client that has lost the first response. Otherwise
// the error is [upload.ErrRequestIDTaken].
func existingReceipt(
	ctx context.Context, st *store.Store, bucket *video.Bucket, id store.ID, u upload.Upload,
) (upload.Receipt, error) {
	t, err := st.Get(ctx, id)
	if err != nil {
		return upload.Receipt{}, err
	}
	same, err := sameBytes(ctx, st, bucket, t, u)
	if err != nil {
		return upload.Receipt{}, err
	}
	if !same {
		return upload.Receipt{}, fmt.Errorf("%w: %q is task %s", upload.ErrRequestIDTaken, u.RequestID, id)
	}
	return upload.Receipt{Task: id.String(), Existed: true}, nil
}

// sameBytes reports whether a task has the bytes of an upload. It compares the digest
// from ingest, or else the file. If neither exists any more, it returns false.
func sameBytes(ctx context.Context, st *store.Store, bucket *video.Bucket, t store.Task, u upload.Upload) (bool, error) {
	if video.StoredSourceID(t.Source) == storedUploadID(u) {
		return true, nil
	}
	in, err := ingestResult(ctx, st, t.ID)
	if err == nil && in.SHA256 == "" {
		switch {
		case strings.HasPrefix(t.Source, "/"):
			in.Bytes, in.SHA256, err = digest(t.Source, u.Size)
		case bucket != nil:
			in.Bytes, in.SHA256, err = bucket.SourceDigest(ctx, t.Source)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err != nil || in.SHA256 == "" || in.Bytes != u.Size {
		return false, err
	}
	if u.SHA256 != "" {
		return in.SHA256 == u.SHA256, nil
	}
	_, sum, err := digest(u.Path, u.Size)
	return sum == in.SHA256, err
}

// ingestResult returns the result of a task's ingest stage; it is empty before that is
// completed.
func ingestResult(ctx context.Context, st *store.Store, id store.ID) (in video.Ingest, err error) {
	raw, err := st.Result(ctx, id, st.Graph().Stages()[0])
	if errors.Is(err, store.ErrNotFound) {
		return in, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	return in, err
}

// digest returns the size and the SHA-256 of a file; only the size if it is not the one
// wanted.
func digest(path string, want int64) (size int64, sum string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, "", err
	}
	if info.Size() != want || !info.Mode().IsRegular() {
		return info.Size(), "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return 0, "", err
	}
	return info.Size(), hex.EncodeToString(h.Sum(nil)), nil
}

// uploadSourceState returns a function that reports whether the task of an upload still needs the
// file. Ingest takes a copy.
func uploadSourceState(st *store.Store, bucket *video.Bucket) func(context.Context, upload.Upload) (upload.SourceState, error) {
	return func(ctx context.Context, u upload.Upload) (upload.SourceState, error) {
		id, err := store.ParseID(u.Task)
		if err != nil {
			return upload.SourceNeeded, err
		}
		t, err := st.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			if _, err := st.GetDeleted(ctx, id); !errors.Is(err, store.ErrNotFound) {
				return upload.SourceNeeded, err // it can be restored
			}
			return upload.TaskEnded, nil
		case err != nil:
			return upload.SourceNeeded, err
		case t.Source != u.Path && video.StoredSourceID(t.Source) != storedUploadID(u): // the request id had a task already
			same, err := sameBytes(ctx, st, bucket, t, u)
			if err != nil || !same {
				return upload.SourceNeeded, err
			}
			return upload.SourceCopied, nil
		}
		switch t.Stages[0].Status { // ingest
		case store.StatusCompleted:
			return upload.SourceCopied, nil
		case store.StatusDead, store.StatusCancelled:
			return upload.TaskEnded, nil // operators have some days to retry it
		}
		return upload.SourceNeeded, nil
	}
}
