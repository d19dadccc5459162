package upload

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"
)

// formSlack is how much more than its file a form may have.
const formOverhead = 1 << 20

// maxFields is how many fields a form may have before its file; maxForm how many
// bytes these have together, and what is said of the file, each with its headers.
const (
	maxFields     = 32
	maxFieldBytes = 128 << 10
)

// simple takes a whole file in one request, as it is or in a form.
func (u *Uploads) handleSingleRequest(w http.ResponseWriter, r *http.Request, s *activeRequest, name string) error {
	said, err := metadataFromQuery(r.URL.Query(), name)
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == "multipart/form-data" {
		return u.receiveForm(w, r, s, said)
	}
	switch {
	case r.ContentLength == 0:
		return newProblem(http.StatusBadRequest, "an empty file is no video")
	case media != "" && media != "application/x-www-form-urlencoded": // what curl says of anything
		if _, ok := said["filetype"]; !ok {
			said["filetype"] = media
		}
	}
	return u.receiveFile(w, r, s, recordState{Length: r.ContentLength, Metadata: said}, r.Body)
}

// fromQuery reads what tus has in Upload-Metadata. The name may also be the end
// of the path.
func metadataFromQuery(query url.Values, name string) (map[string]string, error) {
	said := make(map[string]string)
	for key, values := range query {
		if len(values) != 1 || len(key) > maxMetadata || len(values[0]) > maxMetadata {
			return nil, newProblem(http.StatusBadRequest, "the query has something twice, or something too long")
		}
		said[key] = values[0]
	}
	if name != "" && said["filename"] == "" {
		said["filename"] = name
	}
	return said, nil
}

// form takes the file of a form, whose other fields come before it.
func (u *Uploads) receiveForm(w http.ResponseWriter, r *http.Request, s *activeRequest, said map[string]string) error {
	if r.ContentLength > u.options.MaxBytes+formOverhead {
		return newProblem(http.StatusRequestEntityTooLarge, "an upload may have %d bytes", u.options.MaxBytes)
	}
	ahead := &formFieldsReader{ReadCloser: r.Body, remaining: maxFieldBytes}
	r.Body = ahead
	parts, err := r.MultipartReader()
	if err != nil {
		return newProblem(http.StatusBadRequest, "the form cannot be read: %v", err)
	}
	said = maps.Clone(said)
	for range maxFields {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return newProblem(http.StatusBadRequest, "there is no file in the form")
		}
		if err != nil {
			return formError(err)
		}
		if part.FileName() != "" {
			ahead.fileBegan = true
			if said["filename"] == "" {
				said["filename"] = part.FileName()
			}
			if media, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); said["filetype"] == "" {
				said["filetype"] = media
			}
			return u.receiveFile(w, r, s, recordState{Length: -1, MaxLength: max(r.ContentLength, 0), Metadata: said}, lastPartReader{part, parts})
		}
		value, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
		if err != nil {
			return formError(err)
		}
		if len(value) > maxMetadata {
			return newProblem(http.StatusBadRequest, "a field of the form is longer than %d bytes", maxMetadata)
		}
		said[part.FormName()] = string(value)
	}
	return newProblem(http.StatusBadRequest, "the form has more than %d fields before its file", maxFields)
}

// formAhead is a form up to its file. All of that is kept in memory, and written
// down.
type formFieldsReader struct {
	io.ReadCloser
	remaining int
	fileBegan bool // the file has begun
}

func (f *formFieldsReader) Read(p []byte) (int, error) {
	if f.fileBegan {
		return f.ReadCloser.Read(p)
	}
	if f.remaining == 0 {
		return 0, newProblem(http.StatusBadRequest, "the form has more than %d bytes before its file", maxFieldBytes)
	}
	n, err := f.ReadCloser.Read(p[:min(len(p), f.remaining)])
	f.remaining -= n
	return n, err
}

// formError tells what is wrong with the connection from what is wrong with the
// form.
func formError(err error) error {
	var told *problem
	if errors.As(err, &told) {
		return err
	}
	return newProblem(http.StatusBadRequest, "the form cannot be read: %v", err)
}

// formFile is the file in a form, which must be the last thing in it.
type lastPartReader struct {
	part  *multipart.Part
	parts *multipart.Reader
}

func (f lastPartReader) Read(p []byte) (int, error) {
	n, err := f.part.Read(p)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, formError(err)
	}
	switch _, err := f.parts.NextPart(); {
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
		return n, formError(err)
	}
	return n, newProblem(http.StatusBadRequest, "something comes after the form's file: send one at a time, last")
}

// whole takes a file that is there at the end of the request, or never was.
func (u *Uploads) receiveFile(w http.ResponseWriter, r *http.Request, s *activeRequest, about recordState, from io.Reader) (err error) {
	about.SingleRequest = true
	e, err := newRecord(about)
	if err != nil {
		return err
	}
	h, err := u.createUpload(r.Context(), s, e)
	if err != nil {
		return err
	}
	defer h.unlock()
	if err := u.appendBody(e, from, nil); err != nil {
		return u.discard(e, err)
	}
	s.endReading()
	if e.offset == 0 {
		return u.discard(e, newProblem(http.StatusBadRequest, "an empty file is no video"))
	}
	e.state.Length = e.offset
	if err := u.completeAndSubmit(r.Context(), e); err != nil {
		return u.withLocation(w, e, err)
	}
	w.Header().Set("Location", u.options.BasePath+e.ID)
	u.setHeaders(w, e)
	status := http.StatusCreated
	switch {
	case e.Task == "":
		status = http.StatusAccepted
	case e.Existed:
		status = http.StatusOK
	}
	writeJSON(w, status, "application/json", u.newView(e))
	return nil
}

// located tells the client of an error where the file is, if it is kept.
func (u *Uploads) withLocation(w http.ResponseWriter, e *record, err error) error {
	if e.state.RequestIDTaken {
		w.Header().Set("Location", u.options.BasePath+e.ID)
	}
	return err
}

// view is what a principal is shown of an upload.
type uploadView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	Type      string     `json:"type,omitempty"`
	Size      int64      `json:"size"`
	Offset    int64      `json:"offset"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	TaskID    string     `json:"task_id,omitempty"`
	Existed   bool       `json:"existed"` // the task was there before
}

func (u *Uploads) newView(e *record) uploadView {
	v := uploadView{
		ID: e.ID, Name: e.Name, Type: e.Type, Size: e.Size, Offset: e.offset,
		CreatedAt: e.Created, TaskID: e.Task, Existed: e.Existed,
	}
	if !e.isComplete() {
		at := u.expiresAt(e).UTC()
		v.ExpiresAt = &at
	}
	return v
}

func (u *Uploads) handleGet(w http.ResponseWriter, r *http.Request, id string) error {
	e, err := u.find(r.Context(), id)
	if err != nil {
		return err
	}
	u.setHeaders(w, e)
	writeJSON(w, http.StatusOK, "application/json", u.newView(e))
	return nil
}

// list shows the uploads that the principal can continue.
func (u *Uploads) handleList(w http.ResponseWriter, r *http.Request) error {
	begun, err := u.unfinished(r.Context())
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	mine := []uploadView{}
	for _, e := range begun {
		if e.Principal == u.options.Principal(r.Context()) && !e.state.SingleRequest && !u.isExpired(e) {
			mine = append(mine, u.newView(e))
		}
	}
	writeJSON(w, http.StatusOK, "application/json", map[string]any{"uploads": mine})
	return nil
}
