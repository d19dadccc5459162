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
const formSlack = 1 << 20

// maxFields is how many fields a form may have before its file; maxForm how many
// bytes these have together, and what is said of the file, each with its headers.
const (
	maxFields = 32
	maxForm   = 128 << 10
)

// simple takes a whole file in one request, as it is or in a form.
func (u *Uploads) simple(w http.ResponseWriter, r *http.Request, s *session, name string) error {
	said, err := fromQuery(r.URL.Query(), name)
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == "multipart/form-data" {
		return u.form(w, r, s, said)
	}
	switch {
	case r.ContentLength == 0:
		return refuse(http.StatusBadRequest, "an empty file is no video")
	case media != "" && media != "application/x-www-form-urlencoded": // what curl says of anything
		if _, ok := said["filetype"]; !ok {
			said["filetype"] = media
		}
	}
	return u.whole(w, r, s, state{Length: r.ContentLength, Said: said}, r.Body)
}

// fromQuery reads what tus has in Upload-Metadata. The name may also be the end
// of the path.
func fromQuery(query url.Values, name string) (map[string]string, error) {
	said := make(map[string]string)
	for key, values := range query {
		if len(values) != 1 || len(key) > maxMetadata || len(values[0]) > maxMetadata {
			return nil, refuse(http.StatusBadRequest, "the query has something twice, or something too long")
		}
		said[key] = values[0]
	}
	if name != "" && said["filename"] == "" {
		said["filename"] = name
	}
	return said, nil
}

// form takes the file of a form, whose other fields come before it.
func (u *Uploads) form(w http.ResponseWriter, r *http.Request, s *session, said map[string]string) error {
	if r.ContentLength > u.o.MaxBytes+formSlack {
		return refuse(http.StatusRequestEntityTooLarge, "an upload may have %d bytes", u.o.MaxBytes)
	}
	ahead := &formAhead{ReadCloser: r.Body, left: maxForm}
	r.Body = ahead
	parts, err := r.MultipartReader()
	if err != nil {
		return refuse(http.StatusBadRequest, "the form cannot be read: %v", err)
	}
	said = maps.Clone(said)
	for range maxFields {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return refuse(http.StatusBadRequest, "there is no file in the form")
		}
		if err != nil {
			return formError(err)
		}
		if part.FileName() != "" {
			ahead.passed = true
			if said["filename"] == "" {
				said["filename"] = part.FileName()
			}
			if media, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); said["filetype"] == "" {
				said["filetype"] = media
			}
			return u.whole(w, r, s, state{Length: -1, Most: max(r.ContentLength, 0), Said: said}, formFile{part, parts})
		}
		value, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
		if err != nil {
			return formError(err)
		}
		if len(value) > maxMetadata {
			return refuse(http.StatusBadRequest, "a field of the form is longer than %d bytes", maxMetadata)
		}
		said[part.FormName()] = string(value)
	}
	return refuse(http.StatusBadRequest, "the form has more than %d fields before its file", maxFields)
}

// formAhead is a form up to its file. All of that is kept in memory, and written
// down.
type formAhead struct {
	io.ReadCloser
	left   int
	passed bool // the file has begun
}

func (f *formAhead) Read(p []byte) (int, error) {
	if f.passed {
		return f.ReadCloser.Read(p)
	}
	if f.left == 0 {
		return 0, refuse(http.StatusBadRequest, "the form has more than %d bytes before its file", maxForm)
	}
	n, err := f.ReadCloser.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// formError tells what is wrong with the connection from what is wrong with the
// form.
func formError(err error) error {
	var told *refusal
	if errors.As(err, &told) {
		return err
	}
	return refuse(http.StatusBadRequest, "the form cannot be read: %v", err)
}

// formFile is the file in a form, which must be the last thing in it.
type formFile struct {
	part  *multipart.Part
	parts *multipart.Reader
}

func (f formFile) Read(p []byte) (int, error) {
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
	return n, refuse(http.StatusBadRequest, "something comes after the form's file: send one at a time, last")
}

// whole takes a file that is there at the end of the request, or never was.
func (u *Uploads) whole(w http.ResponseWriter, r *http.Request, s *session, about state, from io.Reader) (err error) {
	about.OneShot = true
	e, err := newEntry(about)
	if err != nil {
		return err
	}
	h, err := u.begin(r.Context(), s, e)
	if err != nil {
		return err
	}
	defer h.release()
	if err := u.add(e, from, nil); err != nil {
		return u.undo(e, err)
	}
	s.settle()
	if e.offset == 0 {
		return u.undo(e, refuse(http.StatusBadRequest, "an empty file is no video"))
	}
	e.state.Length = e.offset
	if err := u.finishNow(r.Context(), e); err != nil {
		return u.located(w, e, err)
	}
	w.Header().Set("Location", u.o.BasePath+e.ID)
	u.describeTo(w, e)
	status := http.StatusCreated
	switch {
	case e.Task == "":
		status = http.StatusAccepted
	case e.Existed:
		status = http.StatusOK
	}
	writeJSON(w, status, "application/json", u.view(e))
	return nil
}

// located tells the client of an error where the file is, if it is kept.
func (u *Uploads) located(w http.ResponseWriter, e *entry, err error) error {
	if e.state.Taken {
		w.Header().Set("Location", u.o.BasePath+e.ID)
	}
	return err
}

// view is what a principal is shown of an upload.
type view struct {
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

func (u *Uploads) view(e *entry) view {
	v := view{
		ID: e.ID, Name: e.Name, Type: e.Type, Size: e.Size, Offset: e.offset,
		CreatedAt: e.Created, TaskID: e.Task, Existed: e.Existed,
	}
	if !e.complete() {
		at := u.expires(e).UTC()
		v.ExpiresAt = &at
	}
	return v
}

func (u *Uploads) show(w http.ResponseWriter, r *http.Request, id string) error {
	e, err := u.own(r.Context(), id)
	if err != nil {
		return err
	}
	u.describeTo(w, e)
	writeJSON(w, http.StatusOK, "application/json", u.view(e))
	return nil
}

// list shows the uploads that the principal can continue.
func (u *Uploads) list(w http.ResponseWriter, r *http.Request) error {
	begun, err := u.unfinished(r.Context())
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	mine := []view{}
	for _, e := range begun {
		if e.Principal == u.o.Principal(r.Context()) && !e.state.OneShot && !u.expired(e) {
			mine = append(mine, u.view(e))
		}
	}
	writeJSON(w, http.StatusOK, "application/json", map[string]any{"uploads": mine})
	return nil
}
