package upload

import (
	"cmp"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// handleSingleRequest receives a whole file in one request: as the body or in a form.
func (u *Uploads) handleSingleRequest(w http.ResponseWriter, r *http.Request, a *activeRequest, name string) error {
	metadata, err := metadataFromQuery(r.URL.Query(), name)
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case media == "multipart/form-data":
		return u.receiveForm(w, r, a, metadata)
	case r.ContentLength == 0:
		return errEmptyFile
	case media != "" && media != "application/x-www-form-urlencoded": // curl's default
		if _, ok := metadata["filetype"]; !ok {
			metadata["filetype"] = media
		}
	}
	return u.receiveFile(w, r, a, recordState{Length: r.ContentLength, Metadata: metadata}, r.Body)
}

// metadataFromQuery returns the metadata in the query. The file's name can also be the
// last part of the path.
func metadataFromQuery(query url.Values, name string) (map[string]string, error) {
	metadata := make(map[string]string)
	for key, values := range query {
		if len(values) != 1 || len(key) > maxMetadata || len(values[0]) > maxMetadata {
			return nil, badRequest("the query has a key twice, or a key or value of more than %d bytes", maxMetadata)
		}
		metadata[key] = values[0]
	}
	if filename := cmp.Or(metadata["filename"], name); filename != "" {
		metadata["filename"] = filename
	}
	return metadata, nil
}

// receiveFile receives a file completely or not at all.
func (u *Uploads) receiveFile(
	w http.ResponseWriter, r *http.Request, a *activeRequest, state recordState, body io.Reader,
) error {
	state.SingleRequest = true
	e, err := newRecord(state)
	if err != nil {
		return err
	}
	h, err := u.createUpload(r.Context(), a, e)
	if err != nil {
		return err
	}
	defer h.unlock()
	if err := u.appendBody(e, body, nil); err != nil {
		return u.discard(e, err)
	}
	a.endReading()
	if e.offset == 0 {
		return u.discard(e, errEmptyFile)
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
	return writeJSON(w, status, u.newView(e))
}

// withLocation sets the header Location if the upload is kept after an error.
func (u *Uploads) withLocation(w http.ResponseWriter, e *record, err error) error {
	if e.state.RequestIDTaken {
		w.Header().Set("Location", u.options.BasePath+e.ID)
	}
	return err
}
