package upload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,creation-with-upload,expiration,checksum,termination"
	chunkType     = "application/offset+octet-stream"
	taskHeader    = "Cuelight-Task"
	existedHeader = "Cuelight-Task-Existed"
)

// ServeHTTP answers all that is below Options.BasePath.
func (u *Uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Tus-Resumable", tusVersion)
	h.Set("X-Content-Type-Options", "nosniff")
	rest, below := strings.CutPrefix(r.URL.Path, u.options.BasePath)
	if !below && r.URL.Path+"/" != u.options.BasePath {
		u.writeProblem(w, r, "", newProblem(http.StatusNotFound, "there is nothing here"))
		return
	}
	if !below {
		rest = ""
	}
	s := newActiveRequest(http.NewResponseController(w), u.options.StallTimeout)
	s.bodyEnded = r.ContentLength == 0
	r.Body = timedBody{r.Body, s}
	defer s.endReading()
	if !u.enterRequest() {
		u.writeProblem(w, r, "", errClosing)
		return
	}
	defer u.requests.Done()
	defer u.watchPrincipal(r.Context(), s)()
	if err := u.route(w, r, s, rest); err != nil {
		id := ""
		if idPattern.MatchString(rest) {
			id = rest
		}
		u.writeProblem(w, r, id, err)
	}
}

func (u *Uploads) route(w http.ResponseWriter, r *http.Request, s *activeRequest, rest string) error {
	method := r.Method
	// Some clients cannot send the other methods. A GET stays one, whatever it
	// says, since that is what those who guard against forged requests let by.
	if override := r.Header.Get("X-HTTP-Method-Override"); method == http.MethodPost && override != "" {
		method = strings.ToUpper(override)
	}
	if method == http.MethodOptions {
		return u.handleOptions(w)
	}
	tus := r.Header.Get("Tus-Resumable") != "" || r.Header.Get("Upload-Length") != ""
	switch {
	case method == http.MethodPut, method == http.MethodPost && !tus:
		return u.handleSingleRequest(w, r, s, rest)
	case method == http.MethodPost && rest == "":
		return u.handlePost(w, r, s)
	case method == http.MethodGet && rest == "":
		return u.handleList(w, r)
	case method == http.MethodGet:
		return u.handleGet(w, r, rest)
	case method == http.MethodHead && rest != "":
		return u.handleHead(w, r, rest)
	case method == http.MethodPatch && rest != "":
		return u.handlePatch(w, r, s, rest)
	case method == http.MethodDelete && rest != "":
		return u.handleDelete(w, r, s, rest)
	}
	if rest == "" {
		w.Header().Set("Allow", "GET, OPTIONS, POST, PUT")
	} else {
		w.Header().Set("Allow", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT")
	}
	return newProblem(http.StatusMethodNotAllowed, "this cannot be done here")
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

// understood refuses versions that are not spoken.
func checkTusVersion(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Tus-Resumable") == tusVersion {
		return nil
	}
	w.Header().Set("Tus-Version", tusVersion)
	return newProblem(http.StatusPreconditionFailed, "Tus-Resumable must be %s", tusVersion)
}

func (u *Uploads) handlePost(w http.ResponseWriter, r *http.Request, s *activeRequest) error {
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
	withBody := r.Header.Get("Content-Type") == chunkType
	if withBody && r.ContentLength > e.state.Length {
		return errTooManyBytes
	}
	h, err := u.createUpload(r.Context(), s, e)
	if err != nil {
		return err
	}
	defer h.unlock()
	e.lastWrite = e.Created
	if withBody {
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

// undo deletes an upload of which its client never hears that it began.
func (u *Uploads) discard(e *record, why error) error {
	if e.isComplete() {
		return why
	}
	return errors.Join(why, u.deleteFiles(e.ID))
}

// announced reads what a client says of an upload that begins.
func newTusRecord(r *http.Request) (*record, error) {
	if r.Header.Get("Upload-Concat") != "" {
		return nil, newProblem(http.StatusBadRequest, "uploads in parallel parts are not supported")
	}
	length, ok := parseSize(r.Header.Get("Upload-Length"))
	switch {
	case !ok:
		return nil, newProblem(http.StatusBadRequest, "Upload-Length is missing or not a number of bytes")
	case length == 0:
		return nil, newProblem(http.StatusBadRequest, "an empty file is no video")
	}
	header := r.Header.Get("Upload-Metadata")
	said, err := parseMetadata(header)
	if err != nil {
		return nil, err
	}
	return newRecord(recordState{Length: length, Metadata: said, MetadataHeader: header})
}

func newRecord(s recordState) (*record, error) {
	about, err := newUpload(s.Metadata)
	if err != nil {
		return nil, err
	}
	about.Created = time.Now().UTC()
	s.Created = about.Created
	return &record{Upload: about, state: s}, nil
}

// append adds the request's body, and finishes the upload if that was all.
// What is complete is, even if the client is gone before it was told.
func (u *Uploads) appendAndComplete(r *http.Request, h *lockedUpload, e *record, sum *checksum) error {
	err := u.appendBody(e, r.Body, sum)
	h.request.endReading()
	if !e.hasAllBytes() {
		return err
	}
	return u.completeAndSubmit(r.Context(), e)
}

// finishNow finishes as far as that goes now. Who takes the file may not be
// able to; that is no concern of the client's, who has done its part.
func (u *Uploads) completeAndSubmit(ctx context.Context, e *record) error {
	if !e.isComplete() && errors.Is(u.options.CheckPrincipal(ctx), ErrRevoked) {
		return errors.Join(errRevoked, u.deleteFiles(e.ID)) // kept, Tidy would take it for complete
	}
	err := u.complete(ctx, e)
	if errors.Is(err, errNotSubmitted) {
		u.options.OnError(e.ID, err)
		return nil
	}
	return err
}

func (u *Uploads) handlePatch(w http.ResponseWriter, r *http.Request, s *activeRequest, id string) error {
	if err := checkTusVersion(w, r); err != nil {
		return err
	}
	if r.Header.Get("Content-Type") != chunkType {
		return newProblem(http.StatusUnsupportedMediaType, "Content-Type must be %s", chunkType)
	}
	offset, ok := parseSize(r.Header.Get("Upload-Offset"))
	if !ok {
		return newProblem(http.StatusBadRequest, "Upload-Offset is missing or not a number of bytes")
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	if _, err := u.find(r.Context(), id); err != nil {
		return err // before anybody is disturbed
	}
	h, err := u.lock(r.Context(), id, s, takeoverSilent)
	if err != nil {
		return err
	}
	defer h.unlock()
	e, err := u.find(r.Context(), id)
	if err != nil {
		return err
	}
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

// continued adds to what has come, if that is where the client thinks.
func (u *Uploads) appendAt(r *http.Request, h *lockedUpload, e *record, offset int64, sum *checksum) error {
	switch {
	case offset != e.offset:
		return &problem{status: http.StatusConflict, kind: "upload-offset", detail: fmt.Sprintf("%d bytes have come, not %d", e.offset, offset)}
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

// rename gives an upload another request id, where the one it had is taken.
func (u *Uploads) changeRequestID(r *http.Request, e *record) error {
	header := r.Header.Get("Upload-Metadata")
	if !e.state.RequestIDTaken || header == "" {
		return nil
	}
	changed, err := parseMetadata(header)
	if err != nil {
		return err
	}
	said := maps.Clone(e.state.Metadata)
	said["request_id"] = changed["request_id"] // none is one of the upload's own
	about, err := newUpload(said)
	if err != nil {
		return err
	}
	e.state.Metadata, e.state.RequestIDTaken, e.RequestID = said, false, about.RequestID
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

func (u *Uploads) handleDelete(w http.ResponseWriter, r *http.Request, s *activeRequest, id string) error {
	if _, err := u.find(r.Context(), id); err != nil {
		return err
	}
	h, err := u.lock(r.Context(), id, s, takeoverAlways)
	if err != nil {
		return err
	}
	defer h.unlock()
	e, err := u.find(r.Context(), id)
	if err != nil {
		return err
	}
	if e.isComplete() && !e.state.RequestIDTaken {
		return &problem{status: http.StatusConflict, kind: "upload-complete", detail: "the upload is complete and was handed over: cancel its task instead"}
	}
	if err := u.deleteFiles(id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// describeTo says until when an upload is kept, or what became of it.
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

// expires: an upload that was added to just now counts from now.
func (u *Uploads) expiresAt(e *record) time.Time { return e.lastWrite.Add(u.options.Expiration) }
