package upload

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/cuelight/cuelight/internal/problem"
)

const (
	formOverhead  = 1 << 20   // bytes of a form in addition to its file
	maxFields     = 32        // before the file
	maxFieldBytes = 128 << 10 // of all fields and headers before the file's content
)

// receiveForm receives the file of a form. The form's other fields come before it.
func (u *Uploads) receiveForm(
	w http.ResponseWriter, r *http.Request, a *activeRequest, metadata map[string]string,
) error {
	if r.ContentLength > u.options.MaxBytes+formOverhead {
		return u.tooLarge()
	}
	fields := &formFieldsReader{ReadCloser: r.Body, remaining: maxFieldBytes}
	r.Body = fields
	parts, err := r.MultipartReader()
	if err != nil {
		return badRequest("the form is invalid: %v", err)
	}
	metadata = maps.Clone(metadata)
	for range maxFields {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return badRequest("the form contains no file")
		}
		if err != nil {
			return formError(err)
		}
		if part.FileName() != "" {
			fields.fileBegan = true
			media, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
			metadata["filename"] = cmp.Or(metadata["filename"], part.FileName())
			metadata["filetype"] = cmp.Or(metadata["filetype"], media)
			state := recordState{Length: -1, MaxLength: max(r.ContentLength, 0), Metadata: metadata}
			return u.receiveFile(w, r, a, state, lastPartReader{part, parts})
		}
		value, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
		if err != nil {
			return formError(err)
		}
		if len(value) > maxMetadata {
			return badRequest("a field of the form is longer than %d bytes", maxMetadata)
		}
		metadata[part.FormName()] = string(value)
	}
	return badRequest("the form has more than %d fields before its file", maxFields)
}

// formFieldsReader limits the part of a form before its file, which is kept in memory and
// saved.
type formFieldsReader struct {
	io.ReadCloser
	remaining int
	fileBegan bool
}

// Read reads the form. It returns an error when the fields before the file exceed the limit.
func (f *formFieldsReader) Read(p []byte) (int, error) {
	if f.fileBegan {
		return f.ReadCloser.Read(p)
	}
	if f.remaining == 0 {
		return 0, badRequest("the form has more than %d bytes before its file", maxFieldBytes)
	}
	n, err := f.ReadCloser.Read(p[:min(len(p), f.remaining)])
	f.remaining -= n
	return n, err
}

// lastPartReader reads a part of a form that must be the last one.
type lastPartReader struct {
	part  *multipart.Part
	parts *multipart.Reader
}

// Read reads the part. At its end it returns an error if another part follows.
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
	return n, badRequest("the file must be the last part of the form; send one file")
}

// formError returns problems of the connection unchanged. Other errors are errors of the
// form.
func formError(err error) error {
	if _, ok := errors.AsType[*problem.Problem](err); ok {
		return err
	}
	return badRequest("the form is invalid: %v", err)
}
