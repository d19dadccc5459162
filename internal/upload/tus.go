package upload

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,creation-with-upload,expiration,checksum,termination"
	chunkType     = "application/offset+octet-stream"
	taskHeader    = "Cuelight-Task"
	existedHeader = "Cuelight-Task-Existed"
)

// ServeHTTP handles all requests below Options.BasePath.
func (u *Uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Tus-Resumable", tusVersion)
	h.Set("X-Content-Type-Options", "nosniff")
	id, isBelow := strings.CutPrefix(r.URL.Path, u.options.BasePath)
	if !isBelow {
		if r.URL.Path+"/" != u.options.BasePath {
			u.writeProblem(w, r, "", problem.New(problem.NotFound, "there is nothing at this path"))
			return
		}
		id = ""
	}
	a := newActiveRequest(http.NewResponseController(w), u.options.StallTimeout)
	a.bodyEnded = r.ContentLength == 0
	r.Body = timedBody{r.Body, a}
	defer a.endReading()
	if !u.enterRequest() {
		u.writeProblem(w, r, "", errClosing)
		return
	}
	defer u.requests.Done()
	defer u.watchPrincipal(r.Context(), a)()
	if err := u.route(w, r, a, id); err != nil {
		if !idPattern.MatchString(id) {
			id = ""
		}
		u.writeProblem(w, r, id, err)
	}
}

func (u *Uploads) route(w http.ResponseWriter, r *http.Request, a *activeRequest, id string) error {
	method := r.Method
	// Some clients cannot send the other methods. A GET cannot be overridden, because
	// protection against cross-site requests permits it.
	if override := r.Header.Get("X-HTTP-Method-Override"); method == http.MethodPost && override != "" {
		method = strings.ToUpper(override)
	}
	isTus := r.Header.Get("Tus-Resumable") != "" || r.Header.Get("Upload-Length") != ""
	switch {
	case method == http.MethodOptions:
		return u.handleOptions(w)
	case method == http.MethodPut, method == http.MethodPost && !isTus:
		return u.handleSingleRequest(w, r, a, id)
	case method == http.MethodPost && id == "":
		return u.handlePost(w, r, a)
	case method == http.MethodGet && id == "":
		return u.handleList(w, r)
	case method == http.MethodGet:
		return u.handleGet(w, r, id)
	case method == http.MethodHead && id != "":
		return u.handleHead(w, r, id)
	case method == http.MethodPatch && id != "":
		return u.handlePatch(w, r, a, id)
	case method == http.MethodDelete && id != "":
		return u.handleDelete(w, r, a, id)
	}
	allow := "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
	if id == "" {
		allow = "GET, OPTIONS, POST, PUT"
	}
	w.Header().Set("Allow", allow)
	return problem.New(problem.MethodNotAllowed, "this method is not allowed here; allowed: %s", allow)
}

func (u *Uploads) handleOptions(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Checksum-Algorithm", checksumAlgorithms)
	h.Set("Tus-Max-Size", strconv.FormatInt(u.options.MaxBytes, 10))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func checkTusVersion(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Tus-Resumable") == tusVersion {
		return nil
	}
	w.Header().Set("Tus-Version", tusVersion)
	return problem.New(problem.TusVersion, "Tus-Resumable must be %s", tusVersion)
}

func (u *Uploads) handlePost(w http.ResponseWriter, r *http.Request, a *activeRequest) error {
	if err := checkTusVersion(w, r); err != nil {
		return err
	}
	e, err := newTusRecord(r)
	if err != nil {
		return err
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	hasBody := r.Header.Get("Content-Type") == chunkType
	if hasBody && r.ContentLength > e.state.Length {
		return errTooManyBytes
	}
	h, err := u.createUpload(r.Context(), a, e)
	if err != nil {
		return err
	}
	defer h.unlock()
	e.lastWrite = e.Created
	if hasBody {
		if err := u.appendAndComplete(r, h, e, sum); err != nil {
			return u.withLocation(w, e, u.discard(e, err))
		}
		w.Header().Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	}
	w.Header().Set("Location", u.options.BasePath+e.ID)
	u.setHeaders(w, e)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// newTusRecord reads the headers of a request that creates an upload.
func newTusRecord(r *http.Request) (*record, error) {
	if r.Header.Get("Upload-Concat") != "" {
		return nil, badRequest("the tus extension concatenation is not supported; upload the file in order")
	}
	length, ok := parseSize(r.Header.Get("Upload-Length"))
	switch {
	case !ok:
		return nil, badRequest("Upload-Length is missing or not a number of bytes")
	case length == 0:
		return nil, errEmptyFile
	}
	header := r.Header.Get("Upload-Metadata")
	metadata, err := parseMetadata(header)
	if err != nil {
		return nil, err
	}
	return newRecord(recordState{Length: length, Metadata: metadata, MetadataHeader: header})
}

func newRecord(s recordState) (*record, error) {
	up, err := newUpload(s.Metadata)
	if err != nil {
		return nil, err
	}
	up.Created = time.Now().UTC()
	s.Created = up.Created
	return &record{Upload: up, state: s}, nil
}

// discard deletes an incomplete upload whose client does not know its id.
func (u *Uploads) discard(e *record, err error) error {
	if e.isComplete() {
		return err
	}
	return errors.Join(err, u.deleteFiles(e.ID))
}

// appendAndComplete appends the body, and completes the upload if it has all bytes, even
// if the client is gone.
func (u *Uploads) appendAndComplete(r *http.Request, h *lockedUpload, e *record, sum *checksum) error {
	err := u.appendBody(e, r.Body, sum)
	h.request.endReading()
	if !e.hasAllBytes() {
		return err
	}
	return u.completeAndSubmit(r.Context(), e)
}

// completeAndSubmit completes an upload and submits it. If the submission fails, it
// returns nil: the client is done, and CleanUp tries again.
func (u *Uploads) completeAndSubmit(ctx context.Context, e *record) error {
	if !e.isComplete() && errors.Is(u.options.CheckPrincipal(ctx), ErrRevoked) {
		return errors.Join(errRevoked, u.deleteFiles(e.ID)) // otherwise CleanUp would complete it
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(u.closed, cancel)()
	err := u.complete(ctx, e)
	if errors.Is(err, errNotSubmitted) {
		u.options.OnError(e.ID, err)
		return nil
	}
	return err
}

func (u *Uploads) handlePatch(w http.ResponseWriter, r *http.Request, a *activeRequest, id string) error {
	if err := checkTusVersion(w, r); err != nil {
		return err
	}
	if r.Header.Get("Content-Type") != chunkType {
		return problem.New(problem.UnsupportedMediaType, "Content-Type must be %s", chunkType)
	}
	offset, ok := parseSize(r.Header.Get("Upload-Offset"))
	if !ok {
		return badRequest("Upload-Offset is missing or not a number of bytes")
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	h, e, err := u.findAndLock(r.Context(), id, a, takeoverSilent)
	if err != nil {
		return err
	}
	defer h.unlock()
	if err := u.renewReservation(r.Context(), e); err != nil {
		return err
	}
	if err := u.appendAt(r, h, e, offset, sum); err != nil {
		return err
	}
	w.Header().Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	u.setHeaders(w, e)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// appendAt appends the body if offset is the end of the upload.
func (u *Uploads) appendAt(r *http.Request, h *lockedUpload, e *record, offset int64, sum *checksum) error {
	switch {
	case offset != e.offset:
		return problem.New(problem.UploadOffset, "the upload's offset is %d, not %d", e.offset, offset)
	case r.ContentLength > e.Size-e.offset:
		return errTooManyBytes
	case e.isComplete():
		h.request.endReading()
		if err := u.changeRequestID(r, e); err != nil {
			return err
		}
		return u.completeAndSubmit(r.Context(), e)
	}
	return u.appendAndComplete(r, h, e, sum)
}

// changeRequestID replaces a request id that belongs to another task.
func (u *Uploads) changeRequestID(r *http.Request, e *record) error {
	header := r.Header.Get("Upload-Metadata")
	if !e.state.RequestIDTaken || header == "" {
		return nil
	}
	changed, err := parseMetadata(header)
	if err != nil {
		return err
	}
	metadata := maps.Clone(e.state.Metadata)
	metadata["request_id"] = changed["request_id"] // "" removes it
	up, err := newUpload(metadata)
	if err != nil {
		return err
	}
	e.state.Metadata, e.state.RequestIDTaken, e.RequestID = metadata, false, up.RequestID
	return u.save(e)
}

func (u *Uploads) handleHead(w http.ResponseWriter, r *http.Request, id string) error {
	if _, err := u.find(r.Context(), id); err != nil {
		return err
	}
	if err := u.interruptSilent(r.Context(), id); err != nil {
		return err
	}
	e, err := u.find(r.Context(), id)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	h.Set("Upload-Length", strconv.FormatInt(e.Size, 10))
	h.Set("Cache-Control", "no-store")
	if e.state.MetadataHeader != "" {
		h.Set("Upload-Metadata", e.state.MetadataHeader)
	}
	u.setHeaders(w, e)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (u *Uploads) handleDelete(w http.ResponseWriter, r *http.Request, a *activeRequest, id string) error {
	h, e, err := u.findAndLock(r.Context(), id, a, takeoverAlways)
	if err != nil {
		return err
	}
	defer h.unlock()
	if e.isComplete() && !e.state.RequestIDTaken {
		return problem.New(problem.UploadComplete, "the upload is complete; cancel its task instead")
	}
	if err := u.deleteComplete(r.Context(), e); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// setHeaders sets the expiration time, or the task.
func (u *Uploads) setHeaders(w http.ResponseWriter, e *record) {
	if !e.isComplete() {
		w.Header().Set("Upload-Expires", u.expiresAt(e).UTC().Format(http.TimeFormat))
	}
	if e.Task != "" {
		w.Header().Set(taskHeader, e.Task)
	}
	if e.Existed {
		w.Header().Set(existedHeader, "true")
	}
}

func (u *Uploads) expiresAt(e *record) time.Time { return e.lastWrite.Add(u.options.Expiration) }
