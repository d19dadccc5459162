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
	rest, below := strings.CutPrefix(r.URL.Path, u.o.BasePath)
	if !below && r.URL.Path+"/" != u.o.BasePath {
		u.answer(w, r, "", refuse(http.StatusNotFound, "there is nothing here"))
		return
	}
	if !below {
		rest = ""
	}
	s := newSession(http.NewResponseController(w), u.o.Stall)
	s.ended = r.ContentLength == 0
	r.Body = body{r.Body, s}
	defer s.settle()
	if !u.enterRequest() {
		u.answer(w, r, "", errClosing)
		return
	}
	defer u.requests.Done()
	defer u.watch(r.Context(), s)()
	if err := u.route(w, r, s, rest); err != nil {
		id := ""
		if idPattern.MatchString(rest) {
			id = rest
		}
		u.answer(w, r, id, err)
	}
}

func (u *Uploads) route(w http.ResponseWriter, r *http.Request, s *session, rest string) error {
	method := r.Method
	// Some clients cannot send the other methods. A GET stays one, whatever it
	// says, since that is what those who guard against forged requests let by.
	if override := r.Header.Get("X-HTTP-Method-Override"); method == http.MethodPost && override != "" {
		method = strings.ToUpper(override)
	}
	if method == http.MethodOptions {
		return u.options(w)
	}
	tus := r.Header.Get("Tus-Resumable") != "" || r.Header.Get("Upload-Length") != ""
	switch {
	case method == http.MethodPut, method == http.MethodPost && !tus:
		return u.simple(w, r, s, rest)
	case method == http.MethodPost && rest == "":
		return u.post(w, r, s)
	case method == http.MethodGet && rest == "":
		return u.list(w, r)
	case method == http.MethodGet:
		return u.show(w, r, rest)
	case method == http.MethodHead && rest != "":
		return u.head(w, r, rest)
	case method == http.MethodPatch && rest != "":
		return u.patch(w, r, s, rest)
	case method == http.MethodDelete && rest != "":
		return u.delete(w, r, s, rest)
	}
	if rest == "" {
		w.Header().Set("Allow", "GET, OPTIONS, POST, PUT")
	} else {
		w.Header().Set("Allow", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT")
	}
	return refuse(http.StatusMethodNotAllowed, "this cannot be done here")
}

func (u *Uploads) options(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Checksum-Algorithm", checksumAlgorithms)
	h.Set("Tus-Max-Size", strconv.FormatInt(u.o.MaxBytes, 10))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// understood refuses versions that are not spoken.
func understood(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Tus-Resumable") == tusVersion {
		return nil
	}
	w.Header().Set("Tus-Version", tusVersion)
	return refuse(http.StatusPreconditionFailed, "Tus-Resumable must be %s", tusVersion)
}

func (u *Uploads) post(w http.ResponseWriter, r *http.Request, s *session) error {
	if err := understood(w, r); err != nil {
		return err
	}
	e, err := announced(r)
	if err != nil {
		return err
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	withBody := r.Header.Get("Content-Type") == chunkType
	if withBody && r.ContentLength > e.state.Length {
		return errTooLong
	}
	h, err := u.begin(r.Context(), s, e)
	if err != nil {
		return err
	}
	defer h.release()
	e.touched = e.Created
	if withBody {
		if err := u.append(r, h, e, sum); err != nil {
			return u.located(w, e, u.undo(e, err))
		}
		w.Header().Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	}
	w.Header().Set("Location", u.o.BasePath+e.ID)
	u.describeTo(w, e)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// undo deletes an upload of which its client never hears that it began.
func (u *Uploads) undo(e *entry, why error) error {
	if e.complete() {
		return why
	}
	return errors.Join(why, u.remove(e.ID))
}

// announced reads what a client says of an upload that begins.
func announced(r *http.Request) (*entry, error) {
	if r.Header.Get("Upload-Concat") != "" {
		return nil, refuse(http.StatusBadRequest, "uploads in parallel parts are not supported")
	}
	length, ok := parseSize(r.Header.Get("Upload-Length"))
	switch {
	case !ok:
		return nil, refuse(http.StatusBadRequest, "Upload-Length is missing or not a number of bytes")
	case length == 0:
		return nil, refuse(http.StatusBadRequest, "an empty file is no video")
	}
	header := r.Header.Get("Upload-Metadata")
	said, err := parseMetadata(header)
	if err != nil {
		return nil, err
	}
	return newEntry(state{Length: length, Said: said, Header: header})
}

func newEntry(s state) (*entry, error) {
	about, err := describe(s.Said)
	if err != nil {
		return nil, err
	}
	about.Created = time.Now().UTC()
	s.Created = about.Created
	return &entry{Upload: about, state: s}, nil
}

// append adds the request's body, and finishes the upload if that was all.
// What is complete is, even if the client is gone before it was told.
func (u *Uploads) append(r *http.Request, h *held, e *entry, sum *checksum) error {
	err := u.add(e, r.Body, sum)
	h.s.settle()
	if !e.full() {
		return err
	}
	return u.finishNow(r.Context(), e)
}

// finishNow finishes as far as that goes now. Who takes the file may not be
// able to; that is no concern of the client's, who has done its part.
func (u *Uploads) finishNow(ctx context.Context, e *entry) error {
	if !e.complete() && errors.Is(u.o.Still(ctx), ErrRevoked) {
		return errors.Join(errRevoked, u.remove(e.ID)) // kept, Tidy would take it for complete
	}
	err := u.finish(ctx, e)
	if errors.Is(err, errLater) {
		u.o.Trouble(e.ID, err)
		return nil
	}
	return err
}

func (u *Uploads) patch(w http.ResponseWriter, r *http.Request, s *session, id string) error {
	if err := understood(w, r); err != nil {
		return err
	}
	if r.Header.Get("Content-Type") != chunkType {
		return refuse(http.StatusUnsupportedMediaType, "Content-Type must be %s", chunkType)
	}
	offset, ok := parseSize(r.Header.Get("Upload-Offset"))
	if !ok {
		return refuse(http.StatusBadRequest, "Upload-Offset is missing or not a number of bytes")
	}
	sum, err := parseChecksum(r.Header.Get("Upload-Checksum"))
	if err != nil {
		return err
	}
	if _, err := u.own(r.Context(), id); err != nil {
		return err // before anybody is disturbed
	}
	h, err := u.hold(r.Context(), id, s, ifSilent)
	if err != nil {
		return err
	}
	defer h.release()
	e, err := u.own(r.Context(), id)
	if err != nil {
		return err
	}
	if err := u.readmit(r.Context(), e); err != nil {
		return err
	}
	if err := u.continued(r, h, e, offset, sum); err != nil {
		return err
	}
	w.Header().Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	u.describeTo(w, e)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// continued adds to what has come, if that is where the client thinks.
func (u *Uploads) continued(r *http.Request, h *held, e *entry, offset int64, sum *checksum) error {
	switch {
	case offset != e.offset:
		return &refusal{status: http.StatusConflict, kind: "upload-offset", detail: fmt.Sprintf("%d bytes have come, not %d", e.offset, offset)}
	case r.ContentLength > e.Size-e.offset:
		return errTooLong
	case e.complete():
		h.s.settle()
		if err := u.rename(r, e); err != nil {
			return err
		}
		return u.finishNow(r.Context(), e)
	}
	return u.append(r, h, e, sum)
}

// rename gives an upload another request id, where the one it had is taken.
func (u *Uploads) rename(r *http.Request, e *entry) error {
	header := r.Header.Get("Upload-Metadata")
	if !e.state.Taken || header == "" {
		return nil
	}
	changed, err := parseMetadata(header)
	if err != nil {
		return err
	}
	said := maps.Clone(e.state.Said)
	said["request_id"] = changed["request_id"] // none is one of the upload's own
	about, err := describe(said)
	if err != nil {
		return err
	}
	e.state.Said, e.state.Taken, e.RequestID = said, false, about.RequestID
	return u.save(e)
}

func (u *Uploads) head(w http.ResponseWriter, r *http.Request, id string) error {
	if _, err := u.own(r.Context(), id); err != nil {
		return err
	}
	if err := u.rouse(r.Context(), id); err != nil {
		return err
	}
	e, err := u.own(r.Context(), id)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Upload-Offset", strconv.FormatInt(e.offset, 10))
	h.Set("Upload-Length", strconv.FormatInt(e.Size, 10))
	h.Set("Cache-Control", "no-store")
	if e.state.Header != "" {
		h.Set("Upload-Metadata", e.state.Header)
	}
	u.describeTo(w, e)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (u *Uploads) delete(w http.ResponseWriter, r *http.Request, s *session, id string) error {
	if _, err := u.own(r.Context(), id); err != nil {
		return err
	}
	h, err := u.hold(r.Context(), id, s, now)
	if err != nil {
		return err
	}
	defer h.release()
	e, err := u.own(r.Context(), id)
	if err != nil {
		return err
	}
	if e.complete() && !e.state.Taken {
		return &refusal{status: http.StatusConflict, kind: "upload-complete", detail: "the upload is complete and was handed over: cancel its task instead"}
	}
	if err := u.remove(id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// describeTo says until when an upload is kept, or what became of it.
func (u *Uploads) describeTo(w http.ResponseWriter, e *entry) {
	if !e.complete() {
		w.Header().Set("Upload-Expires", u.expires(e).UTC().Format(http.TimeFormat))
	}
	if e.Task != "" {
		w.Header().Set(taskHeader, e.Task)
	}
	if e.Existed {
		w.Header().Set(existedHeader, "true")
	}
}

// expires: an upload that was added to just now counts from now.
func (u *Uploads) expires(e *entry) time.Time { return e.touched.Add(u.o.Expire) }
